# unasync: sync/__init__.py
"""Queues, deliveries and engines that record their calls in a history."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Unpack

from bide.engines.aio import AsyncEngine
from bide.engines.base import Claim, End, Ended, Hold, Move
from bide.engines.guard.aio import AsyncGuard
from bide.prove.history import History
from bide.prove.operation import SendOperation
from bide.queue import AsyncDelivery, AsyncQueue
from bide.queue.bulk import complete
from bide.types import CancelResult, Duration, Info, Requeued, RescheduleResult, SendOptions, Sent, State


class AsyncRecordedDelivery:
    """A delivery whose end is recorded."""

    def __init__(self, delivery: AsyncDelivery, history: History) -> None:
        self.plain = delivery
        self._history = history

    async def ack(self) -> None:
        with self._history.ending("ack", self.plain) as op:
            await self.plain.ack()
            op.ok()

    async def retry(self, delay: Duration | None = None, *, error: object = None) -> None:
        with self._history.ending("retry", self.plain, delay=delay) as op:
            await self.plain.retry(delay, error=error)
            op.ok()

    async def release(self, delay: Duration = 0) -> None:
        with self._history.ending("release", self.plain, delay=delay) as op:
            await self.plain.release(delay)
            op.ok()

    async def bury(self, reason: str) -> None:
        with self._history.ending("bury", self.plain) as op:
            await self.plain.bury(reason)
            op.ok()

    async def extend(self, lease: Duration) -> None:
        with self._history.extending(self.plain, lease) as op:
            await self.plain.extend(lease)
            op.ok()


class AsyncRecorded:
    """The verbs of a queue, recorded. They mean what they mean to the queue. For `listen`, see `History.listening`."""

    def __init__(self, queue: AsyncQueue, history: History) -> None:
        self.plain = queue
        self.history = history

    async def send(
        self, topic: str, body: object = None, *, again: SendOperation | None = None, **options: Unpack[SendOptions]
    ) -> Sent:
        """`again`: the send that this one repeats, after OutcomeUnknown for example."""
        with self.history.sending(topic, body, again=again, **options) as op:
            return op.ok(await self.plain.send(topic, op.body, **options))

    async def send_many(self, topic: str, messages: Sequence[object], *, operation: str | None = None) -> list[Sent]:
        with self.history.sending_many(topic, messages, operation=operation) as batch:
            return batch.ok(await self.plain.send_many(topic, batch.messages, operation=operation))

    async def cancel(
        self, message: str | Sent | None = None, *, topic: str | None = None, key: str | None = None
    ) -> CancelResult:
        with self.history.cancelling(message, topic=topic, key=key) as op:
            return op.ok(await self.plain.cancel(message, topic=topic, key=key))

    async def reschedule(
        self,
        message: str | Sent | None = None,
        *,
        topic: str | None = None,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
    ) -> RescheduleResult:
        with self.history.rescheduling(message, topic=topic, key=key, delay=delay, at=at) as op:
            return op.ok(await self.plain.reschedule(message, topic=topic, key=key, delay=delay, at=at))

    async def receive(
        self, *topics: str, limit: int = 1, wait: Duration = 0, lease: Duration = "30s"
    ) -> list[AsyncRecordedDelivery]:
        with self.history.receiving(topics, limit=limit, lease=lease) as op:
            found = op.ok(await self.plain.receive(*topics, limit=limit, wait=wait, lease=lease))
        return [AsyncRecordedDelivery(each, self.history) for each in found]

    async def requeue(self, topic: str, ids: Sequence[str] | None = None, *, delay: Duration = 0) -> Requeued:
        with self.history.requeuing(topic, ids, delay=delay) as op:
            return op.ok(await self.plain.requeue(topic, ids, delay=delay))

    async def purge(self, topic: str, *, state: State) -> int:
        with self.history.purging(topic, state) as op:
            return op.ok(await self.plain.purge(topic, state=state))

    async def pause(self, topic: str) -> None:
        with self.history.pausing(topic) as op:
            await self.plain.pause(topic)
            op.ok()

    async def resume(self, topic: str) -> None:
        with self.history.resuming(topic) as op:
            await self.plain.resume(topic)
            op.ok()

    async def look(self, *, drained: bool = True) -> None:
        """Record all that is left. Call it last, when no other process uses the queue any more."""
        stats = complete(await self.plain.stats())
        left: list[Info] = []
        for topic in stats.topics:
            after: str | None = None
            while True:
                page = complete(await self.plain.messages(topic, limit=1_000, after=after))
                left += page
                after = page.after
                if after is None:
                    break
        self.history.left(left, stats, drained=drained)


class AsyncRecordedEngine(AsyncGuard):
    """An engine that records the deliveries that it hands out, their ends, and the messages that are called at gates."""

    def __init__(self, engine: AsyncEngine, history: History) -> None:
        super().__init__(engine, "")
        self._history = history

    async def claim(self, topics: Sequence[str], limit: int, lease: int, **how: Any) -> Claim:
        if not topics:  # asks again for what a claim of the same request holds
            claim = await super().claim(topics, limit, lease, **how)
            self._history.claimed_again(claim)
            return claim
        with self._history.claiming(topics, limit=limit, lease=lease) as op:
            return op.claimed(await super().claim(topics, limit, lease, **how))

    async def settle(self, ends: Sequence[End], **how: Any) -> list[Ended]:
        with self._history.settling(ends) as op:
            return op.ok(await super().settle(ends, **how))

    async def extend(self, holds: Sequence[Hold], lease: int, **how: Any) -> list[bool]:
        with self._history.extending_many(holds, lease=lease) as op:
            return op.ok(await super().extend(holds, lease, **how))

    async def reschedule(self, moves: Sequence[Move], **how: Any) -> list[RescheduleResult]:
        if any(each.origin != "since" for each in moves):  # a user's, who records it
            return await super().reschedule(moves, **how)
        with self._history.calling([each.ref.id or "" for each in moves]) as op:
            return op.ok(await super().reschedule(moves, **how))

# unasync: ../sync/recorded.py
"""A queue that writes down all that is done with it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from bide.queue import AsyncDelivery, AsyncQueue
from bide.testing.history.operation import Sending
from bide.testing.history.writing import History
from bide.types import CancelResult, Duration, IfExists, Info, Requeued, RescheduleResult, Sent, State


class AsyncRecordedDelivery:
    """A delivery whose end is written down."""

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
    """The verbs of a queue that histories are made of; they mean what they mean to the queue. For listen, see `History`."""

    def __init__(self, queue: AsyncQueue, history: History) -> None:
        self.plain = queue
        self.history = history

    async def send(
        self,
        topic: str,
        body: object = None,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        if_exists: IfExists = "keep",
        expires_in: Duration | None = None,
        max_attempts: int | None = None,
        headers: Mapping[str, str] | None = None,
        operation: str | None = None,
        again: Sending | None = None,
    ) -> Sent:
        """`again`: the send that is tried once more, as OutcomeUnknown would have it."""
        with self.history.sending(
            topic,
            body,
            delay=delay,
            at=at,
            key=key,
            if_exists=if_exists,
            expires_in=expires_in,
            max_attempts=max_attempts,
            headers=headers,
            operation=operation,
            again=again,
        ) as op:
            sent = await self.plain.send(
                topic,
                op.body,
                delay=delay,
                at=at,
                key=key,
                if_exists=if_exists,
                expires_in=expires_in,
                max_attempts=max_attempts,
                headers=headers,
                operation=operation,
            )
            return op.ok(sent)

    async def send_many(self, topic: str, bodies: Sequence[object], *, operation: str | None = None) -> list[Sent]:
        with self.history.sending_many(topic, bodies, operation=operation) as batch:
            return batch.ok(await self.plain.send_many(topic, batch.bodies, operation=operation))

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
        """Write down all that is left, as the last thing in a run. Nobody else may be at work then."""
        stats = await self.plain.stats()
        left: list[Info] = []
        for topic in stats.topics:
            after: str | None = None
            while True:
                page = await self.plain.messages(topic, limit=1_000, after=after)
                left += page
                after = page.after
                if after is None:
                    break
        self.history.left(left, stats, drained=drained)

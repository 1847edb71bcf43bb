# Generated from ../aio.py by tools/unasync.py; change that file instead.
"""Queues, deliveries and engines that record their calls in a history."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Unpack

from bide.engines.base import Claim, End, Ended, Hold, Move
from bide.engines.guard.sync import Guard
from bide.engines.sync import Engine
from bide.prove.history import History
from bide.prove.operation import SendOperation
from bide.queue import Delivery, Queue
from bide.queue.bulk import complete
from bide.types import CancelResult, Duration, Info, Requeued, RescheduleResult, SendOptions, Sent, State


class RecordedDelivery:
    """A delivery whose end is recorded."""

    def __init__(self, delivery: Delivery, history: History) -> None:
        self.plain = delivery
        self._history = history

    def ack(self) -> None:
        with self._history.ending("ack", self.plain) as op:
            self.plain.ack()
            op.ok()

    def retry(self, delay: Duration | None = None, *, error: object = None) -> None:
        with self._history.ending("retry", self.plain, delay=delay) as op:
            self.plain.retry(delay, error=error)
            op.ok()

    def release(self, delay: Duration = 0) -> None:
        with self._history.ending("release", self.plain, delay=delay) as op:
            self.plain.release(delay)
            op.ok()

    def bury(self, reason: str) -> None:
        with self._history.ending("bury", self.plain) as op:
            self.plain.bury(reason)
            op.ok()

    def extend(self, lease: Duration) -> None:
        with self._history.extending(self.plain, lease) as op:
            self.plain.extend(lease)
            op.ok()


class Recorded:
    """The verbs of a queue, recorded. They mean what they mean to the queue. For `listen`, see `History.listening`."""

    def __init__(self, queue: Queue, history: History) -> None:
        self.plain = queue
        self.history = history

    def send(
        self, topic: str, body: object = None, *, again: SendOperation | None = None, **options: Unpack[SendOptions]
    ) -> Sent:
        """`again`: the send that this one repeats, after OutcomeUnknown for example."""
        with self.history.sending(topic, body, again=again, **options) as op:
            return op.ok(self.plain.send(topic, op.body, **options))

    def send_many(self, topic: str, messages: Sequence[object], *, operation: str | None = None) -> list[Sent]:
        with self.history.sending_many(topic, messages, operation=operation) as batch:
            return batch.ok(self.plain.send_many(topic, batch.messages, operation=operation))

    def cancel(self, message: str | Sent | None = None, *, topic: str | None = None, key: str | None = None) -> CancelResult:
        with self.history.cancelling(message, topic=topic, key=key) as op:
            return op.ok(self.plain.cancel(message, topic=topic, key=key))

    def reschedule(
        self,
        message: str | Sent | None = None,
        *,
        topic: str | None = None,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
    ) -> RescheduleResult:
        with self.history.rescheduling(message, topic=topic, key=key, delay=delay, at=at) as op:
            return op.ok(self.plain.reschedule(message, topic=topic, key=key, delay=delay, at=at))

    def receive(self, *topics: str, limit: int = 1, wait: Duration = 0, lease: Duration = "30s") -> list[RecordedDelivery]:
        with self.history.receiving(topics, limit=limit, lease=lease) as op:
            found = op.ok(self.plain.receive(*topics, limit=limit, wait=wait, lease=lease))
        return [RecordedDelivery(each, self.history) for each in found]

    def requeue(self, topic: str, ids: Sequence[str] | None = None, *, delay: Duration = 0) -> Requeued:
        with self.history.requeuing(topic, ids, delay=delay) as op:
            return op.ok(self.plain.requeue(topic, ids, delay=delay))

    def purge(self, topic: str, *, state: State) -> int:
        with self.history.purging(topic, state) as op:
            return op.ok(self.plain.purge(topic, state=state))

    def pause(self, topic: str) -> None:
        with self.history.pausing(topic) as op:
            self.plain.pause(topic)
            op.ok()

    def resume(self, topic: str) -> None:
        with self.history.resuming(topic) as op:
            self.plain.resume(topic)
            op.ok()

    def look(self, *, drained: bool = True) -> None:
        """Record all that is left. Call it last, when no other process uses the queue any more."""
        stats = complete(self.plain.stats())
        left: list[Info] = []
        for topic in stats.topics:
            after: str | None = None
            while True:
                page = complete(self.plain.messages(topic, limit=1_000, after=after))
                left += page
                after = page.after
                if after is None:
                    break
        self.history.left(left, stats, drained=drained)


class RecordedEngine(Guard):
    """An engine that records the deliveries that it hands out, their ends, and the messages that are called at gates."""

    def __init__(self, engine: Engine, history: History) -> None:
        super().__init__(engine, "")
        self._history = history

    def claim(self, topics: Sequence[str], limit: int, lease: int, **how: Any) -> Claim:
        if not topics:  # asks again for what a claim of the same request holds
            claim = super().claim(topics, limit, lease, **how)
            self._history.claimed_again(claim)
            return claim
        with self._history.claiming(topics, limit=limit, lease=lease) as op:
            return op.claimed(super().claim(topics, limit, lease, **how))

    def settle(self, ends: Sequence[End], **how: Any) -> list[Ended]:
        with self._history.settling(ends) as op:
            return op.ok(super().settle(ends, **how))

    def extend(self, holds: Sequence[Hold], lease: int, **how: Any) -> list[bool]:
        with self._history.extending_many(holds, lease=lease) as op:
            return op.ok(super().extend(holds, lease, **how))

    def reschedule(self, moves: Sequence[Move], **how: Any) -> list[RescheduleResult]:
        if any(each.origin != "since" for each in moves):  # a user's, who records it
            return super().reschedule(moves, **how)
        with self._history.calling([each.ref.id or "" for each in moves]) as op:
            return op.ok(super().reschedule(moves, **how))

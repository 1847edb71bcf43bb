"""The copies that a queue has of what is held at a source: each is sent under an operation that its name makes.

Engines remember an operation for ten minutes: within that time no name is sent twice, and who sends it again learns which
message it is.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bide.adopt.doubt import SURE
from bide.adopt.source import Found
from bide.core.when import MAX_DELAY_MS
from bide.engines.base import NewMessage, Ref
from bide.errors import OutcomeUnknown
from bide.types import CancelResult, Sent

if TYPE_CHECKING:
    from bide.queue import Queue

_FAR = MAX_DELAY_MS - 10 * 365 * 86_400_000  # ms until a message is due that was sent to be found, and never delivered


class Copies:
    def __init__(self, queue: "Queue", kind: str) -> None:
        self.known: bool = queue.capabilities.idempotent  # by their names
        self._queue = queue
        self._kind = kind

    def put(self, batch: Sequence[Found], since: float | None = None) -> Sequence[Sent]:
        """`since`: when it was taken, if the put is to be known again. A process that was frozen for longer sends nothing."""
        if since is not None and self.known and batch and time.time() - since > SURE:
            raise OutcomeUnknown("This process stood still for minutes, so another run may have sent what it took.", answers=[])
        return self._queue.session.put_many([self._named(each) for each in batch])

    def end(self, copies: Sequence[Sent]) -> Counter[CancelResult]:
        if not copies or not self._queue.capabilities.cancel:
            return Counter({CancelResult.GONE: len(copies)})
        engine = self._queue.session.engine()
        ends = engine.cancel([Ref(id=each.id) for each in copies])
        for each in (each for each, end in zip(copies, ends, strict=True) if end is CancelResult.DEAD):
            engine.purge(each.topic, "dead", [each.id])
        return Counter(ends)

    def end_if_sent(self, ended: Sequence[Found]) -> Counter[CancelResult]:
        """End those that an earlier run has sent, or is sending yet; what it has not is not counted.

        If it was not sent, there is a message for a moment that nobody gets: far away, or a dead letter, which holds no key.
        """
        sent = [each for each in self.put(ended) if each.outcome == "created"]
        far = time.time_ns() // 1_000_000 + _FAR
        self.end([each for each in sent if each.due >= far])
        return self.end([each for each in sent if each.due < far])

    def _named(self, found: Found) -> NewMessage:
        return replace(found.message, operation=f"adopt/{self._kind}/{found.name}" if self.known else None)

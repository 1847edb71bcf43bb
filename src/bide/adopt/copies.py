"""The copies that a queue has of what is held at a source: each is sent under an operation that its name makes.

Engines remember an operation for ten minutes: within that time no name is sent twice, and who sends it again learns which
message it is.
"""

import time
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bide.adopt.doubt import SURE
from bide.adopt.source import Found
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import NewMessage, Ref, Seen, Stored
from bide.errors import OutcomeUnknown
from bide.queue.choosing import complete
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

    def end(self, copies: Sequence[tuple[Found, Sent]]) -> Counter[CancelResult]:
        """A copy that somebody has replaced or moved since, by its key, is a message of theirs: it is gone for us."""
        if not copies or not self._queue.capabilities.cancel:
            return Counter({CancelResult.GONE: len(copies)})
        stored = self._queue.session.engine().get([Ref(id=sent.id) for _, sent in copies])
        return Counter(self._end(*copy, now) for copy, now in zip(copies, stored, strict=True))

    def _end(self, found: Found, sent: Sent, now: Stored | None) -> CancelResult:
        """RUNNING: also if a worker has tried it. Then it waits for the next attempt, or is a dead letter."""
        engine = self._queue.session.engine()
        if now is None or zlib.crc32(now.body) != _crc_of(found):
            return CancelResult.GONE
        tried = now.attempt > (found.message.past.attempt if found.message.past else 0)
        if now.state != "dead":
            due = sent.due if found.message.key is not None and not tried else now.due
            [end] = engine.cancel([Ref(id=now.id)], seen=[Seen(due, now.body)])
        else:  # it has no key any more, so nobody can change it
            end = CancelResult.DEAD if complete(engine.purge(now.topic, "dead", [now.id])).count else CancelResult.GONE
        return CancelResult.RUNNING if tried and end in (CancelResult.CANCELLED, CancelResult.DEAD) else end

    def end_if_sent(self, ended: Sequence[Found]) -> Counter[CancelResult]:
        """End those that an earlier run has sent, or is sending yet; what it has not is not counted.

        If it was not sent, there is a message for a moment that nobody gets: far away, or a dead letter, which holds no key.
        """
        sent = [(found, each) for found, each in zip(ended, self.put(ended), strict=True) if each.outcome == "created"]
        far = time.time_ns() // 1_000_000 + _FAR
        self._end_nothing([each for _, each in sent if each.due >= far])
        return self.end([(found, each) for found, each in sent if each.due < far])

    def _end_nothing(self, sent: Sequence[Sent]) -> None:
        engine = self._queue.session.engine()
        ends = engine.cancel([Ref(id=each.id) for each in sent]) if sent else ()
        for each in (each for each, end in zip(sent, ends, strict=True) if end is CancelResult.DEAD):
            complete(engine.purge(each.topic, "dead", [each.id]))

    def _named(self, found: Found) -> NewMessage:
        return replace(found.message, operation=f"adopt/{self._kind}/{found.name}" if self.known else None)


def _crc_of(found: Found) -> int:
    """Of the body of its copy."""
    return zlib.crc32(found.message.body) if found.crc is None else found.crc

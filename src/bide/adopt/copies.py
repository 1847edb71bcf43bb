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
from bide.core.when import MAX_DELAY_MS
from bide.engines.base import NewMessage, Ref, Seen
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

    def end(self, copies: Sequence[tuple[Found, Sent]]) -> Counter[CancelResult]:
        """A copy that somebody has replaced or moved since, by its key, is a message of theirs: it is gone for us."""
        if not copies or not self._queue.capabilities.cancel:
            return Counter({CancelResult.GONE: len(copies)})
        keyed = [(sent, _crc_of(found)) for found, sent in copies if found.message.key is not None]
        return self._end([sent for found, sent in copies if found.message.key is None]) + self._end_unchanged(keyed)

    def _end(self, copies: Sequence[Sent]) -> Counter[CancelResult]:
        if not copies:
            return Counter()
        engine = self._queue.session.engine()
        ends = engine.cancel([Ref(id=each.id) for each in copies])
        for each in (each for each, end in zip(copies, ends, strict=True) if end is CancelResult.DEAD):
            engine.purge(each.topic, "dead", [each.id])
        return Counter(ends)

    def _end_unchanged(self, copies: Sequence[tuple[Sent, int]]) -> Counter[CancelResult]:
        engine, dead = self._queue.session.engine(), list[Sent]()
        ends: Counter[CancelResult] = Counter()
        for (sent, crc), stored in zip(copies, engine.get([Ref(id=sent.id) for sent, _ in copies]), strict=True):
            if stored is None or zlib.crc32(stored.body) != crc:
                ends[CancelResult.GONE] += 1
            elif stored.state == "dead":  # has no key any more, so nobody can change it
                dead.append(sent)
            else:  # after an attempt it waits for the next one
                due = stored.due if stored.attempt else sent.due
                ends.update(engine.cancel([Ref(id=sent.id)], seen=[Seen(due, stored.body)]))
        return ends + self._end(dead)

    def end_if_sent(self, ended: Sequence[Found]) -> Counter[CancelResult]:
        """End those that an earlier run has sent, or is sending yet; what it has not is not counted.

        If it was not sent, there is a message for a moment that nobody gets: far away, or a dead letter, which holds no key.
        """
        sent = [(found, each) for found, each in zip(ended, self.put(ended), strict=True) if each.outcome == "created"]
        far = time.time_ns() // 1_000_000 + _FAR
        self._end([each for _, each in sent if each.due >= far])
        return self.end([(found, each) for found, each in sent if each.due < far])

    def _named(self, found: Found) -> NewMessage:
        return replace(found.message, operation=f"adopt/{self._kind}/{found.name}" if self.known else None)


def _crc_of(found: Found) -> int:
    """Of the body of its copy."""
    return zlib.crc32(found.message.body) if found.crc is None else found.crc

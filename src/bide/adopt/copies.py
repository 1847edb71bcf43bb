"""The copies that a queue has of what is held at a source, and what a run says that can't know what became of a batch.

Engines remember an operation for ten minutes: within that time no name is sent twice, and who sends it again learns which
message it is.
"""

import time
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from bide.adopt.source import FoundEntry, RefusedEntry
from bide.core.formats import iso, plural
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import OPERATION_MS, NewMessage, Ref, Seen, Stored
from bide.errors import BideError, OutcomeUnknown
from bide.queue.bulk import complete
from bide.types import CancelResult, Sent

if TYPE_CHECKING:
    from bide.queue import Queue


SURE = OPERATION_MS / 1000 - 60  # seconds since a take in which its put can be repeated; a minute is for clocks that differ

Doubt: TypeAlias = Literal["stop", "send", "give-back", "forget"]
"""What to do with a batch whose put may have been done, when that is too long ago to find out."""


def _told(message: NewMessage) -> str:
    """What it can be found by in another queue, where it has another id."""
    key = "" if message.key is None else f", with the key {message.key!r}"
    return key if message.at is None else f"{key}, due at {iso(message.at)}"


class InDoubt(BideError):
    """A run was stopped between the take and the finish of a batch, too long ago to repeat its put. Nothing was changed."""

    def __init__(self, count: int, age: float, example: NewMessage | None = None, *, unsure: bool = False) -> None:
        first = "" if example is None else f" The first is one of topic {example.topic}{_told(example)}."
        what = (
            f"A run was stopped while it moved {plural(count, 'message')}, and workers may have begun some of them before they "
            "were told not to. Look in their logs, then run this command again with one more option: --doubtful send, if none "
            "was begun; --doubtful forget, if all were; --doubtful give-back, if the old system is to have them."
            if unsure
            else f"A run was stopped {age / 60:,.0f} minutes ago while it moved {plural(count, 'message')}, and the new queue "
            f"no longer knows whether it got them.{first} Look there with `bide list` for several of them: it may have a part. "
            "Then run this command again with one more option: --doubtful send, if the new queue has none of them; --doubtful "
            "forget, if it has them all; --doubtful give-back, if they are to go back to where they were."
        )
        super().__init__(what)
        self.count: int = count


class OtherQueue(BideError):
    """A run was stopped while it moved messages to another queue. Nothing was changed."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"A run was stopped while it moved {plural(count, 'message')} to another queue, which may have them. First run the "
            "same command with the URL of that queue, as it was written then: it goes on with them. If that queue is gone, add "
            "--doubtful give-back: they go back to where they were."
        )
        self.count: int = count


class EarlierUnread(BideError):
    """What an earlier run was moving can't be read with the options of this one. Nothing was changed."""

    def __init__(self, held: Sequence[RefusedEntry]) -> None:
        super().__init__(
            f"Of what a run was moving when it was stopped, {plural(len(held), 'message')} can't be read now, and the queue "
            f"may have them. One {held[0].reason}, for example: {held[0].entry}. Give the options of that run; or --doubtful "
            "give-back, if what can't be read is to go back to where it was."
        )


_FAR = MAX_DELAY_MS - 10 * 365 * 86_400_000  # ms until a message is due that was sent to be found, and never delivered


class Copies:
    def __init__(self, queue: "Queue", kind: str) -> None:
        self.known: bool = queue.capabilities.idempotent  # by their names
        self._queue = queue
        self._kind = kind

    def put(self, batch: Sequence[FoundEntry], since: float | None = None) -> Sequence[Sent]:
        """`since`: when it was taken, if the put is to be known again. A process that was frozen for longer sends nothing."""
        if since is not None and self.known and batch and time.time() - since > SURE:
            raise OutcomeUnknown("This process stood still for minutes, so another run may have sent what it took.", answers=[])
        return self._queue.session.put_many([self._named(each) for each in batch])

    def end(self, copies: Sequence[tuple[FoundEntry, Sent]]) -> Counter[CancelResult]:
        """A copy that somebody has replaced or moved since, by its key, is a message of theirs: it is gone for us."""
        if not copies or not self._queue.capabilities.cancel:
            return Counter({CancelResult.GONE: len(copies)})
        stored = self._queue.session.engine().get([Ref(id=sent.id) for _, sent in copies])
        return Counter(self._end(*copy, now) for copy, now in zip(copies, stored, strict=True))

    def _end(self, found: FoundEntry, sent: Sent, now: Stored | None) -> CancelResult:
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

    def end_if_sent(self, ended: Sequence[FoundEntry]) -> Counter[CancelResult]:
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

    def _named(self, found: FoundEntry) -> NewMessage:
        return replace(found.message, operation=f"adopt/{self._kind}/{found.name}" if self.known else None)


def _crc_of(found: FoundEntry) -> int:
    """Of the body of its copy."""
    return zlib.crc32(found.message.body) if found.crc is None else found.crc

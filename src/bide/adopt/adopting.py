"""An adoption: takes batch after batch from a source, puts each into a queue, and counts what became of every entry.

A batch is taken, then put, then finished; while it is put, the one before it is finished and the next one is taken. A run that
was killed in between leaves all three held at the source, and the next run begins with them. Each message has an operation,
which engines remember for ten minutes: within that time, nothing is put twice.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec.structs import replace

from bide.adopt.source import Entries, Found, Refused, Source
from bide.core.amounts import plural
from bide.engines.base import MAX_BATCH, OPERATION_MS, NewMessage, Ref
from bide.errors import BadMessage, BideError, ConfigError, OutcomeUnknown, QueueFull, SchemaMismatch, Unavailable, Unsupported
from bide.types import CancelResult, Sent

if TYPE_CHECKING:
    from bide.queue import Queue

SURE = OPERATION_MS / 1000 - 60  # seconds since a take in which its put can be repeated; a minute is for clocks that differ
_NOT_STORED = (BadMessage, ConfigError, QueueFull, SchemaMismatch, Unavailable, Unsupported)
"""Errors of a put that has done nothing."""
HAS_KEY = "has the key of a message that waits in the queue"

Doubt: TypeAlias = Literal["stop", "send", "give-back", "forget"]
"""What to do with a batch whose put may have been done, when that is too long ago to find out."""


class InDoubt(BideError):
    """A run was stopped between the take and the finish of a batch, too long ago to repeat its put. Nothing was changed."""

    def __init__(self, count: int, age: float, *, unsure: bool = False) -> None:
        what = (
            f"A run was stopped while it moved {plural(count, 'message')}, and workers may have begun some of them before they "
            "were told not to. Look in their logs, then run this command again with one more option: --doubtful send, if none "
            "was begun; --doubtful forget, if all were; --doubtful give-back, if the old system is to have them."
            if unsure
            else f"A run was stopped {age / 60:,.0f} minutes ago while it moved {plural(count, 'message')}, and the queue no "
            "longer knows whether it got them. Look for them with `bide list`, then run this command again with one more "
            "option: --doubtful send, if the queue has none of them; --doubtful forget, if it has them; --doubtful give-back, "
            "if the old consumers are to have them."
        )
        super().__init__(what)
        self.count: int = count


def _unreadable(held: Sequence[Refused]) -> BideError:
    return ConfigError(
        f"Of what a run was moving when it was stopped, {plural(len(held), 'message')} can't be read now, and the queue may "
        f"have them. One {held[0].reason}, for example: {held[0].entry}. Give the options of that run; or --doubtful "
        "give-back, if the old consumers are to have what can't be read."
    )


class Adoption:
    """One run. Its counts are right at every moment, also after an error."""

    def __init__(self, source: Source, queue: "Queue", *, doubt: Doubt = "stop", batch: int = MAX_BATCH) -> None:
        self.adopted: int = 0
        self.resumed: int = 0  # of those adopted, how many an earlier run had taken
        self.gone: int = 0  # old consumers took them meanwhile
        self.late: int = 0  # were changed at the source when bide had delivered them, or as good as
        self.given_back: int = 0  # as the operator wants it, of those that an earlier run had taken
        self.refused: Counter[str] = Counter()  # by the reason: left where they are
        self.examples: dict[str, str] = {}  # an entry for each reason
        self.topics: set[str] = set()
        self.in_hand: int = 0  # are held at the source: taken, and neither finished nor given back
        self._source = source
        self._queue = queue
        self._named = queue.capabilities.idempotent
        self._doubt = doubt
        self._batch = batch
        self._moved: Callable[[int], Any] = lambda _: None
        self._taken_at = 0.0

    @property
    def perhaps_twice(self) -> int:
        """How many messages may have come twice, because the queue remembers no operations."""
        return 0 if self._named else self.resumed

    def run(self, moved: Callable[[int], Any], stopped: Callable[[], bool]) -> None:
        """Resume what an earlier run left, then go on until a pass finds nothing, or until it is stopped after a batch.

        `moved` is told how many entries are done. Raises InDoubt, and the errors of the source and of the queue.
        """
        self._moved = moved
        self.resume()
        with ThreadPoolExecutor(1, "bide-adopt") as beside:
            self._move_all(beside, stopped)
        if not stopped():
            self.resume()  # a take whose answer was lost is held, too

    def _move_all(self, beside: Executor, stopped: Callable[[], bool]) -> None:
        """While a batch is put, the one before it is finished and the next one taken: only this thread uses the source."""
        before: tuple[Sequence[Found], Sequence[Sent]] = (), ()
        taken = Entries() if stopped() else self._take()
        while taken.found or taken.gone:
            put = beside.submit(self._put, taken.found, self._taken_at)
            following = Entries()
            try:
                self._finish(*before)
                following = Entries() if stopped() else self._take()
            except BideError:
                with suppress(BideError):
                    self._finish(taken.found, self._answers(taken.found, following.found, put))
                raise
            before = taken.found, self._answers(taken.found, following.found, put)
            taken = following
        self._finish(*before)

    def _take(self) -> Entries:
        self._taken_at = time.time()
        taken = self._source.take(self._batch)
        self.gone += taken.gone
        self.in_hand += len(taken.found)
        self._leave(taken.refused)
        return taken

    def _answers(self, batch: Sequence[Found], following: Sequence[Found], put: Future[Sequence[Sent]]) -> Sequence[Sent]:
        try:
            return put.result()
        except _NOT_STORED:  # nobody has tried to put it before, so it can be given back
            self._source.give_back([each.name for each in (*batch, *following)])
            self.in_hand -= len(batch) + len(following)
            raise
        except OutcomeUnknown as error:  # what has no answer stays held, for the next run, as after any other error
            self._finish(batch, error.answers)
            raise

    def resume(self) -> None:
        """Finish what an earlier run has taken. Raises InDoubt."""
        looked_at = time.time()
        held = self._source.held()
        if held.refused and self._doubt == "stop":
            self.in_hand = len(held.found) + len(held.refused)
            raise _unreadable(held.refused)
        self._leave(held.refused)
        if not held.found and not held.ended:
            return
        doubtful = held.age > SURE or held.unsure
        if self._doubt == "stop" and (held.unsure or (doubtful and self._named)):
            self.in_hand = len(held.found)
            raise InDoubt(len(held.found) + len(held.ended), held.age, unsure=held.unsure)
        if not doubtful and self._named:
            self._take_back_ended(held.ended)
        if doubtful and self._doubt in ("give-back", "forget"):
            end = self._source.give_back if self._doubt == "give-back" else self._source.finish
            end([each.name for each in held.found])
            self.given_back += len(held.found) if self._doubt == "give-back" else 0
            return
        self.in_hand = len(held.found)
        for first in range(0, len(held.found), self._batch):
            batch = held.found[first : first + self._batch]
            try:
                self.resumed += self._finish(batch, self._put(batch, None if doubtful else looked_at - held.age))
            except OutcomeUnknown as error:
                self._finish(batch, error.answers)
                raise

    def _put(self, batch: Sequence[Found], since: float | None = None) -> Sequence[Sent]:
        """`since`: when it was taken, if the put is to be known again. A process that was frozen for longer sends nothing."""
        if since is not None and self._named and batch and time.time() - since > SURE:
            raise OutcomeUnknown("This process stood still for minutes, so another run may have sent what it took.", answers=[])
        return self._queue.session.put_many([self._named_message(each) for each in batch])

    def _finish(self, batch: Sequence[Found], answers: Sequence[Sent | None]) -> int:
        """End at the source what the queue has, and give back what it refused. Gives how many messages were moved."""
        stored = {found.name: sent for found, sent in zip(batch, answers, strict=False) if sent is not None}
        kept = [found for found in batch if found.name in stored and stored[found.name].outcome in ("kept", "exists")]
        if kept:
            self._source.give_back([each.name for each in kept])
            self.refused[HAS_KEY] += len(kept)
            self.examples.setdefault(HAS_KEY, kept[0].message.key or "")
            for each in kept:
                del stored[each.name]
        changed = list(self._source.finish(list(stored)) or ()) if stored else []
        if changed:
            self._take_back([stored.pop(name) for name in changed])
        self.in_hand -= len(stored) + len(kept) + len(changed)
        self.adopted += len(stored)
        self.topics |= {sent.topic for sent in stored.values()}
        self._moved(self.adopted + self.gone)
        return len(stored)

    def _take_back(self, copies: Sequence[Sent]) -> None:
        """End copies of entries that were changed or ended at the source meanwhile."""
        engine, can = self._queue.session.engine(), self._queue.capabilities
        ended = engine.cancel([Ref(id=each.id) for each in copies]) if can.cancel else []
        dead = [each for each, end in zip(copies, ended, strict=False) if end is CancelResult.DEAD]
        for each in dead:
            engine.purge(each.topic, "dead", [each.id])
        self.gone += sum(end in (CancelResult.CANCELLED, CancelResult.DEAD) for end in ended)
        self.late += len(copies) - sum(end in (CancelResult.CANCELLED, CancelResult.DEAD) for end in ended)

    def _take_back_ended(self, ended: Sequence[Found]) -> None:
        """End copies that an earlier run has sent of what was changed or ended at the source since.

        Who sends a name again learns which message it is. If it was not sent, a message is there for a moment that nobody gets;
        under a key only if another message has it already, as no sender may meet it there.
        """
        waits = [each.message.key is not None and each.message.past is None for each in ended]
        refs = [Ref(topic=each.message.topic, key=each.message.key) for each, keyed in zip(ended, waits, strict=True) if keyed]
        there = {each.key for each in self._queue.session.engine().get(refs) if each is not None} if refs else set[str | None]()
        asked = [each for each, keyed in zip(ended, waits, strict=True) if not keyed or each.message.key in there]
        self.gone += len(ended) - len(asked)
        for first in range(0, len(asked), self._batch):
            sent = self._put(asked[first : first + self._batch])
            self._take_back([each for each in sent if each.outcome == "created"])

    def _named_message(self, found: Found) -> NewMessage:
        operation = f"adopt/{self._source.kind}/{found.name}"
        return replace(found.message, operation=operation if self._named else None)

    def _leave(self, refused: Sequence[Refused]) -> None:
        for each in refused:
            self.refused[each.reason] += 1
            self.examples.setdefault(each.reason, each.entry)
        if back := [each.held for each in refused if each.held]:
            self._source.give_back(back)

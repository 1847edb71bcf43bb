"""One run of `bide adopt`: reads what waits in another system, sends it, and takes it away there.

A batch is taken, then put, then finished; while it is put, the one before it is finished and the next one is taken. A run that
was killed in between leaves all three held at the source, and the next run begins with them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from bide.adopt.copies import SURE, Copies, Doubt, EarlierUnread, InDoubt, OtherQueue
from bide.adopt.source import AdoptSource, EarlierRun, Entries, FoundEntry, Names, RefusedEntry, is_for_another
from bide.engines.base import MAX_BATCH
from bide.errors import BadMessage, BideError, ConfigError, OutcomeUnknown, QueueFull, SchemaMismatch, Unavailable, Unsupported
from bide.types import CancelResult, Sent

if TYPE_CHECKING:
    from bide.queue import Queue


_NOT_STORED = (BadMessage, ConfigError, QueueFull, SchemaMismatch, Unavailable, Unsupported)
"""Errors of a put that has done nothing."""
T = TypeVar("T")
HAS_KEY = "has the key of a message that waits in the queue"


def destination_of(queue: "Queue") -> str:
    """What tells a queue from others. No password is in it."""
    source = queue.session.setup.source
    return f"{source.shown} {source.namespace}"


class Adoption:
    """One run. Its counts are right at every moment, also after an error."""

    def __init__(self, source: AdoptSource, queue: "Queue", *, doubt: Doubt = "stop", batch: int = MAX_BATCH) -> None:
        self.adopted: int = 0
        self.resumed: int = 0  # of those adopted, how many an earlier run had taken
        self.gone: int = 0  # old consumers took them meanwhile
        self.late: int = 0  # were changed at the source when bide had delivered them, or as good as
        self.given_back: int = 0  # as the operator wants it, of those that an earlier run had taken
        self.forgotten: int = 0  # the same, since the queue has them
        self.asked: bool = False  # the run has ended with a question: what to do with what an earlier run had taken
        self.refused: Counter[str] = Counter()  # by the reason: left where they are
        self.examples: dict[str, str] = {}  # an entry for each reason
        self.topics: set[str] = set()
        self.broke_off: bool = False  # an error of the source: what it was taking may be on its way
        self._source = source
        self._queue = queue
        self._copies = Copies(queue, source.kind)
        self._doubt = doubt
        self._batch = batch
        self._moved: Callable[[int], Any] = lambda _: None
        self._destination: str = destination_of(queue)
        source.aim(self._destination)
        self._taken_at = 0.0
        self._in_hand: set[str] = set()  # names of what was taken, and neither finished nor given back

    @property
    def shown(self) -> str:
        """Where the messages go, without a password."""
        return self._queue.session.setup.source.shown

    @property
    def in_hand(self) -> int:
        """How many entries are held at the source."""
        return len(self._in_hand)

    @property
    def counts(self) -> dict[str, Any]:
        """What became of the entries that were not simply adopted, for a program."""
        names = ("resumed", "gone", "given_back", "forgotten")
        return {name: getattr(self, name) for name in names} | {"held": self.in_hand, "refused": dict(self.refused)}

    @property
    def perhaps_twice(self) -> int:
        """How many messages may have come twice, because the queue remembers no operations."""
        return 0 if self._copies.known else self.resumed

    def run(self, moved: Callable[[int], Any], stopped: Callable[[], bool]) -> None:
        """Resume what an earlier run left, then go on until a pass finds nothing, or until it is stopped after a batch.

        `moved` is told how many entries are done. Raises InDoubt, and the errors of the source and of the queue.
        """
        self._moved = moved
        self.resume()
        self._move_all(stopped)
        if not stopped() and self.resume():  # a take whose answer was lost is held, too
            self._move_all(stopped)

    def _move_all(self, stopped: Callable[[], bool]) -> None:
        with ThreadPoolExecutor(1, "bide-adopt") as beside:
            self._move_beside(beside, stopped)

    def _move_beside(self, beside: Executor, stopped: Callable[[], bool]) -> None:
        """While a batch is put, the one before it is finished and the next one taken: only this thread uses the source."""
        before: tuple[Sequence[FoundEntry], Sequence[Sent]] = (), ()
        taken = Entries() if stopped() else self._take()
        while taken.found or taken.gone:
            put = beside.submit(self._copies.put, taken.found, self._taken_at)
            following = Entries()
            try:
                self._finish(*before)
                following = Entries() if stopped() else self._take()
            except BideError:
                self.broke_off = True
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
        self._in_hand |= {each.name for each in taken.found}
        self._leave(taken.refused)
        return taken

    def _answers(
        self, batch: Sequence[FoundEntry], following: Sequence[FoundEntry], put: Future[Sequence[Sent]]
    ) -> Sequence[Sent]:
        try:
            return put.result()
        except _NOT_STORED:  # nobody has tried to put it before, so it can be given back
            self._give_back([each.name for each in (*batch, *following)])
            raise
        except OutcomeUnknown as error:  # what has no answer stays held, for the next run, as after any other error
            self._finish(batch, error.answers)
            raise

    def resume(self) -> bool:
        """Finish what an earlier run has taken, if there is something. Raises InDoubt, OtherQueue, Unread."""
        try:
            found = self._resume()
        except (InDoubt, OtherQueue, EarlierUnread):
            self.asked = True
            raise
        if found:
            self._source.settle()
        return found

    def _resume(self) -> bool:
        looked_at = time.time()
        held = self._source.held()
        if held.refused and self._doubt != "give-back":
            self._in_hand |= {each.name for each in held.found} | {each.held for each in held.refused}
            raise EarlierUnread(held.refused)
        self._leave(held.refused)
        if not (found := held.found or held.ended or held.known):
            return False
        self._in_hand |= {each.name for each in held.found}
        if elsewhere := [each.name for each in held.found if is_for_another(each.name, self._destination)]:
            self._leave_to_another(elsewhere)
            return True
        doubtful = held.age > SURE or held.unsure
        if self._doubt == "stop" and (held.unsure or (doubtful and self._copies.known)):
            raise InDoubt(len(found), held.age, found[0].message, unsure=held.unsure)
        if self._copies.known and not doubtful:
            self._take_back_what_was_sent(held)
        if doubtful and self._doubt in ("give-back", "forget"):
            self._leave_alone([each.name for each in held.found])
            return True
        for first in range(0, len(held.found), self._batch):
            batch = held.found[first : first + self._batch]
            try:
                self.resumed += self._finish(batch, self._copies.put(batch, None if doubtful else looked_at - held.age))
            except OutcomeUnknown as error:
                self._finish(batch, error.answers)
                raise
        return True

    def _leave_alone(self, names: Sequence[str]) -> None:
        """As the operator wants it."""
        if self._doubt == "give-back":
            self._give_back(names)
            self.given_back += len(names)
            return
        changed: list[str] = []
        self._forget(names, changed.extend)
        self.forgotten += len(names) - len(changed)
        self.late += len(changed)

    def _leave_to_another(self, names: Sequence[str]) -> None:
        """What an earlier run has taken for another queue may be there already."""
        if self._doubt != "give-back":
            raise OtherQueue(len(names))
        self._give_back(names)
        self.given_back += len(names)

    def _finish(self, batch: Sequence[FoundEntry], answers: Sequence[Sent | None]) -> int:
        """End at the source what the queue has, and give back what it refused. Gives how many messages were moved."""
        stored = {found.name: sent for found, sent in zip(batch, answers, strict=False) if sent is not None}
        kept = [found for found in batch if found.name in stored and stored[found.name].outcome in ("kept", "exists")]
        if kept:
            self._give_back([each.name for each in kept])
            self.refused[HAS_KEY] += len(kept)
            self.examples.setdefault(HAS_KEY, kept[0].message.key or "")
            for each in kept:
                del stored[each.name]
        by_name = {each.name: each for each in batch}
        self._forget(list(stored), lambda changed: self._take_back([(by_name[name], stored.pop(name)) for name in changed]))
        self.adopted += len(stored)
        self.topics |= {sent.topic for sent in stored.values()}
        self._moved(self.adopted + self.gone)
        return len(stored)

    def _take_back_what_was_sent(self, held: EarlierRun) -> None:
        for each in self._parts(held.ended):
            ends = self._copies.end_if_sent(each)
            self._count_ends(ends)
            self.late += ends[CancelResult.GONE]
        for each in self._parts(held.known):
            self._count_ends(self._copies.end_if_sent(each))

    def _take_back(self, copies: Sequence[tuple[FoundEntry, Sent]]) -> None:
        """End copies of entries that were changed or ended at the source meanwhile."""
        ends = self._copies.end(copies)
        self._count_ends(ends)
        self.late += ends[CancelResult.GONE]

    def _count_ends(self, ends: Counter[CancelResult]) -> None:
        self.gone += ends[CancelResult.CANCELLED] + ends[CancelResult.DEAD]
        self.late += ends[CancelResult.RUNNING]

    def _leave(self, refused: Sequence[RefusedEntry]) -> None:
        for each in refused:
            self.refused[each.reason] += 1
            self.examples.setdefault(each.reason, each.entry)
        if back := [each.held for each in refused if each.held]:
            self._give_back(back)

    def _forget(self, names: Sequence[str], changed: Names = lambda _: None) -> None:
        for part in self._parts(names):
            self._source.finish(part, changed)
            self._in_hand.difference_update(part)

    def _give_back(self, names: Sequence[str]) -> None:
        """The last ones first: who waits in a list is put back in front of those that stand behind."""
        for part in reversed(list(self._parts(names))):
            self._source.give_back(part)
            self._in_hand.difference_update(part)

    def _parts(self, all_of_it: Sequence[T]) -> Iterator[Sequence[T]]:
        return (all_of_it[first : first + self._batch] for first in range(0, len(all_of_it), self._batch))


class Several:
    """What is taken keeps the name that its own source gave it, which no other source has given."""

    def __init__(self, kind: str, shown: str, sources: Sequence[AdoptSource]) -> None:
        self._kind = kind
        self._shown = shown
        self._sources = sources
        self._of: dict[str, AdoptSource] = {}

    @property
    def kind(self) -> str:
        return self._kind

    @property
    def shown(self) -> str:
        return self._shown

    def aim(self, destination: str) -> None:
        for each in self._sources:
            each.aim(destination)

    def count(self) -> int | None:
        counts = [each.count() for each in self._sources]
        return sum(each or 0 for each in counts) if None not in counts else None

    def peek(self, limit: int) -> Entries:
        seen = [each.peek(limit) for each in self._sources]
        found = sorted((found for each in seen for found in each.found), key=lambda found: found.message.at or 0)
        return Entries(found, [refused for each in seen for refused in each.refused])

    def held(self) -> EarlierRun:
        found, refused, ended, age, unsure = list[FoundEntry](), list[RefusedEntry](), list[FoundEntry](), 0.0, False
        for source in self._sources:
            held = source.held()
            self._note(source, [*(each.name for each in held.found), *(each.held for each in held.refused)])
            found += held.found
            refused += held.refused
            ended += held.ended
            age = max(age, held.age)
            unsure = unsure or held.unsure
        return EarlierRun(found, refused, age, unsure, ended)

    def take(self, limit: int) -> Entries:
        refused, gone = list[RefusedEntry](), 0
        for source in self._sources:
            taken = source.take(limit)
            refused += taken.refused
            gone += taken.gone
            if taken.found or taken.gone:
                self._note(source, [*(each.name for each in taken.found), *(each.held for each in taken.refused)])
                return Entries(taken.found, refused, gone)
        return Entries((), refused, gone)

    def finish(self, names: Sequence[str], changed: Names) -> None:
        for source, part in self._parts(names):
            source.finish(part, changed)
        for name in names:
            self._of.pop(name, None)

    def give_back(self, names: Sequence[str]) -> None:
        for source, part in self._parts(names):
            source.give_back(part)

    def settle(self) -> None:
        for each in self._sources:
            each.settle()

    def close(self) -> None:
        for each in self._sources:
            each.close()

    def _note(self, source: AdoptSource, names: Sequence[str]) -> None:
        self._of.update(dict.fromkeys(names, source))

    def _parts(self, names: Sequence[str]) -> list[tuple[AdoptSource, list[str]]]:
        parts = [(source, [name for name in names if self._of[name] is source]) for source in self._sources]
        return [(source, part) for source, part in parts if part]

"""Messages that a run of a move holds in the old queue, those that a killed run has left, and how they end there.

As long as the note of a batch is there, only a step that was noted can have ended a message of it. An engine does a step as a
whole or not at all: if its mark is there, or a message of it as it was, it was not done, and somebody else has ended what is
gone.

The pending messages of a batch end together with its note, and only if all of them are as they were: so as long as the note is
there, no run has ended any of them. Where that can't be done, what is going to be ended is noted first, as a step.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from bide.adopt.queue.messages import brought_back, is_away, is_same
from bide.adopt.queue.transfer_log import BatchStep, ListedMark, TransferBatch, TransferLog, mark_of
from bide.engines.base import MAX_BATCH, Condition, Ref, Seen, Stored
from bide.errors import BideError
from bide.queue.bulk import complete
from bide.types import CancelResult

if TYPE_CHECKING:
    from bide.engines.sync import Engine


Get: TypeAlias = Callable[[Sequence[str]], Sequence[Stored | None]]
_LARGE = 2**20  # bytes of bodies that are compared at once


class LeftBehind(NamedTuple):
    held: list[tuple[ListedMark, Stored]]
    changed: list[ListedMark]  # or ended, by others: their copies are to be taken back
    known: list[ListedMark]  # the same, as an earlier run has found


class Last(NamedTuple):
    """Of each id, the name of the last batch that has it, and of the last one that has a step for it.

    Before a second kill a message may have been taken again; or have been noted again by a run that did not move it then. Of
    two runs the one that began later is the last one, also if the other one was slow to note something.
    """

    has: Mapping[str, str]
    ends: Mapping[str, str]

    @classmethod
    def of(cls, batches: Iterable[TransferBatch]) -> "Last":
        ordered = sorted(batches, key=lambda each: (each.began, each.since))
        has = {id: each.name for each in ordered for id in each.ids}
        return cls(has, {id: each.name for each in ordered for step in each.steps for id in step.ids})


def left_of(batch: TransferBatch, get: Get, last: Last) -> LeftBehind:
    found, gone = LeftBehind([], [], []), list[ListedMark]()
    for mark, stored in zip(batch.marks, get(batch.ids), strict=True):
        owner = last.ends.get(mark.id, batch.name) if stored is None else last.has[mark.id]
        if owner != batch.name or mark.id in batch.changed:
            found.known.append(mark)
        elif stored is None:
            gone.append(mark)
        elif (is_away(stored, mark.due) or mark.dead) and mark == mark_of(brought_back(stored, mark.due)):
            found.held.append((mark, stored))
        else:
            found.changed.append(mark)
    there = still(batch, get) if gone and batch.whole else []
    others = set(ended_by_others([mark.id for mark in gone], batch.steps, there))
    found.changed.extend(mark for mark in gone if mark.id in others)
    return found


def still(batch: TransferBatch, get: Get) -> Sequence[str]:
    """Of all that earlier runs may have ended in steps, what is as it was, when all others have been read. What somebody has
    changed tells nothing: a dead letter that gets a new life just before such a step is not ended with the others."""
    named = {mark.id: mark for mark in batch.marks}
    ids = list(dict.fromkeys(id for step in batch.steps if not step.mark for id in step.ids))
    return [id for id, stored in zip(ids, get(ids), strict=True) if stored is not None and named[id] == mark_of(stored)]


def ended_by_others(gone: Iterable[str], steps: Iterable[BatchStep], there: Collection[str]) -> list[str]:
    """Of ids that are gone: those that none of these steps can have ended. `there`: what was there after that."""
    known = set(there)
    done = {id for step in steps if not (step.mark or known.intersection(step.ids)) for id in step.ids}
    return [id for id in gone if id not in done]


class Holding(NamedTuple):
    """A message that is on its way."""

    batch: TransferBatch
    message: Stored  # as it was before it was moved away
    away: int  # when it is due since then


class HeldEnds:
    def __init__(self, engine: "Engine", log: TransferLog, get: Get) -> None:
        most = engine.capabilities.together
        self.whole: bool = most > 1  # messages end together or not at all, so many
        self.size: int = most - 1 if self.whole else MAX_BATCH  # of a batch, which has a note
        self._engine = engine
        self._log = log
        self._get = get
        self._number = count().__next__  # of a step of this run

    def page(self, limit: int) -> int:
        """How many messages are taken at once, so that batches are full."""
        return limit - limit % self.size if limit > self.size else limit

    def batches(self, messages: Sequence[Stored]) -> Iterator[Sequence[Stored]]:
        """What can end together: the pending, or dead letters of one topic."""
        for _, alike in groupby(messages, lambda each: each.state == "dead" and each.topic):
            some, size = list[Stored](), 0
            for each in alike:
                large = len(_body(each) or b"")
                if some and (len(some) == self.size or size + large > _LARGE):
                    yield some
                    some, size = [], 0
                some.append(each)
                size += large
            yield some

    def condition(self, batch: TransferBatch) -> Condition | None:
        """That no run has taken it over, where an engine can see to that."""
        return batch.condition if self.whole else None

    def end(self, batch: TransferBatch, held: Mapping[str, Holding], *, rest: bool) -> list[str]:
        """By name; `rest`: they are all that is left of the batch. Gives the names of those that somebody has changed or ended:
        if there are any, nothing was done."""
        named = {each.message.id: each for each in held.values()}
        if not self.whole or any(map(_dead, named.values())):
            others = self._looking(batch, named)
        else:
            others = self._changed(named) or self._together(batch, named, rest=rest)
        return [name for name, each in held.items() if each.message.id in others]

    def _changed(self, held: Mapping[str, Holding]) -> set[str]:
        """Those to which somebody has sent something new under their key. That may have left their time and body."""
        keyed = [id for id, each in held.items() if each.message.key is not None]
        now = self._get(keyed)
        return {id for id, each in zip(keyed, now, strict=True) if each is None or not is_same(each, held[id].message)}

    def _together(self, batch: TransferBatch, held: Mapping[str, Holding], *, rest: bool) -> set[str]:
        """All of them with a note, or none."""
        step = BatchStep(list(held), batch.own, batch.noted) if rest else self._log.note_step(batch, self._number(), list(held))
        if not rest:
            self._log.check()  # who has taken over before the step was noted does not know of it
        seen = [Seen(each.away, _body(each.message)) for each in held.values()]
        refs = [Ref(id=id) for id in (*held, step.mark)]
        *ends, end = self._engine.cancel(refs, seen=[*seen, Seen(step.noted)])
        if end is CancelResult.GONE:  # it was done: by this call, which was repeated; or by a run that has taken over
            self._log.check()
            return set()
        others = {id for id, end in zip(held, ends, strict=True) if end is not CancelResult.CANCELLED}
        if rest and not others:
            batch.notes.remove(batch.own)
        return others

    def _looking(self, batch: TransferBatch, held: Mapping[str, Holding]) -> set[str]:
        """Dead letters, or what nothing can end together."""
        now, step = self._looked(batch, held)
        gone = [id for id, each in now.items() if each is None]
        there = still(batch, self._get) if gone and batch.whole else []
        others = {id for id, each in now.items() if each is not None} - set(step.ids)
        others.update(ended_by_others(gone, batch.steps, there))
        if others or not step.ids:
            return others
        if _dead(first := held[step.ids[0]]):
            complete(self._engine.purge(first.message.topic, "dead", step.ids))
        else:
            self._engine.cancel([Ref(id=id) for id in step.ids])
        return set()

    def _looked(self, batch: TransferBatch, held: Mapping[str, Holding]) -> tuple[Mapping[str, Stored | None], BatchStep]:
        """Note a step, and look: what somebody has changed or ended is not to be taken for ended by us. Raises OtherMove."""
        same, number = list(held), self._number()
        while True:
            try:
                step = self._log.note_step(batch, number, same, marked=False)
                self._log.check()
                now = dict(zip(held, self._get(list(held)), strict=True))
            except BideError:
                with suppress(BideError):  # it fails for another reason already
                    self._log.note_step(batch, number, [], marked=False)
                raise
            same = [id for id in step.ids if (there := now[id]) is not None and _is_still(there, held[id].message)]
            if len(same) == len(step.ids):
                return now, step


def _body(message: Stored) -> bytes | None:
    """If somebody can change it without its time: that needs a key."""
    return None if message.key is None else message.body


def _dead(holding: Holding) -> bool:
    return holding.message.state == "dead"


def _is_still(now: Stored, held: Stored) -> bool:
    """Whether nobody has changed it."""
    return now.state == "dead" if held.state == "dead" else is_same(now, held)


class InHand:
    def __init__(self, log: TransferLog, together: int) -> None:
        """`together`: how many end at once."""
        self._log = log
        self._together = together
        self._held: dict[str, Holding] = {}  # by name
        self._met: dict[str, TransferBatch] = {}  # by name, those of which something is noted
        self._open: Counter[str] = Counter()  # by batch, how many are held
        self._done: dict[str, TransferBatch] = {}  # by name: have been moved, and their notes are still there
        self._unsettled: list[TransferBatch] = []  # copies of what was changed after a kill are being taken back

    @property
    def ids(self) -> Collection[str]:
        """Of the messages."""
        return {each.message.id for each in self._held.values()}

    @property
    def is_empty(self) -> bool:
        return not (self._held or self._unsettled)

    def add(self, batches: Sequence[TransferBatch]) -> None:
        self._met |= {each.name: each for each in batches}

    def meet(self, batch: TransferBatch) -> bool:
        """Whether it is new, of a run before. Of a batch that is known its note is due at another time now."""
        known = self._met.setdefault(batch.name, batch)
        known.noted = batch.noted
        return known is batch

    def is_open(self, batch: TransferBatch) -> bool:
        """Whether a part of it is held."""
        return bool(self._open[batch.name])

    def waits(self, batch: TransferBatch) -> bool:
        """Whether a part of it is held, or not settled."""
        return self.is_open(batch) or batch in self._unsettled

    def hold(self, batch: TransferBatch, mark: ListedMark, message: Stored, away: int) -> str:
        """Gives its name."""
        name = batch.named(mark)
        self._held[name] = Holding(batch, message, away)
        self._open[batch.name] += 1
        return name

    def let_go(self, names: Sequence[str]) -> Iterator[tuple[TransferBatch, dict[str, Holding]]]:
        """The messages by their names, by batch, and by what can end together: the queue may have had more shards before."""
        of: dict[str, list[str]] = {}
        for name in names:
            of.setdefault(self._held[name].batch.name, []).append(name)
        for named in of.values():
            for first in range(0, len(named), self._together):
                held = {name: self._held.pop(name) for name in named[first : first + self._together]}
                [batch] = {each.batch.name: each.batch for each in held.values()}.values()
                self._open[batch.name] -= len(held)
                yield batch, held

    def end(self, batch: TransferBatch) -> None:
        """What is noted of it can go, unless a part of it is held."""
        if not self.is_open(batch):
            del self._open[batch.name]
            if batch.notes:
                self._done[batch.name] = batch
            else:
                self._met.pop(batch.name, None)

    def settle_later(self, batch: TransferBatch) -> None:
        self._unsettled.append(batch)

    def settle(self) -> None:
        """Copies of what was changed after an earlier run was killed have been taken back."""
        unsettled, self._unsettled = self._unsettled, []
        for batch in unsettled:
            self.end(batch)

    def tidy(self, most: int) -> None:
        """Remove the notes of batches that are done, if they are more than so many. Raises OtherMove."""
        if len(self._done) > most:
            self._log.take_off(list(self._done.values()))
            for name in self._done:
                self._met.pop(name, None)
            self._done = {}

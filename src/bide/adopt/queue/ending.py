"""The end of messages in the queue that they leave, once the other queue has them. What somebody has changed stays there.

The pending messages of a batch end together with its note, and only if all of them are as they were: so as long as the note is
there, no run has ended any of them. Where that can't be done, what is going to be ended is noted first, as a step.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, groupby
from typing import TYPE_CHECKING, NamedTuple

from bide.adopt.queue.left import Get, ended_by_others, still
from bide.adopt.queue.moved_message import is_same
from bide.adopt.queue.notes import Batch, Step
from bide.adopt.queue.on_the_way import Log
from bide.engines.base import MAX_BATCH, Condition, Ref, Seen, Stored
from bide.errors import BideError
from bide.queue.choosing import complete
from bide.types import CancelResult

if TYPE_CHECKING:
    from bide.engines.sync import Engine


_LARGE = 2**20  # bytes of bodies that are compared at once


class Holding(NamedTuple):
    """A message that is on its way."""

    batch: Batch
    message: Stored  # as it was before it was moved away
    away: int  # when it is due since then


class Ending:
    def __init__(self, engine: "Engine", log: Log, get: Get) -> None:
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

    def condition(self, batch: Batch) -> Condition | None:
        """That no run has taken it over, where an engine can see to that."""
        return batch.condition if self.whole else None

    def end(self, batch: Batch, held: Mapping[str, Holding], *, rest: bool) -> list[str]:
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

    def _together(self, batch: Batch, held: Mapping[str, Holding], *, rest: bool) -> set[str]:
        """All of them with a note, or none."""
        step = Step(list(held), batch.own, batch.noted) if rest else self._log.note_step(batch, self._number(), list(held))
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

    def _looking(self, batch: Batch, held: Mapping[str, Holding]) -> set[str]:
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

    def _looked(self, batch: Batch, held: Mapping[str, Holding]) -> tuple[Mapping[str, Stored | None], Step]:
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

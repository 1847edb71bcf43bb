"""What a run that was killed has left on its way, and who has ended what is no longer there: that run, or somebody else.

A run notes what it is going to cancel, step by step. An engine does a step as a whole or not at all. So a note that goes with
it, or one message of it, that is there later is the proof that it was not done: somebody else has ended what is gone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from bide.adopt.queue.moved_message import brought_back, is_away
from bide.adopt.queue.notes import Batch, Mark, Step, mark_of
from bide.engines.base import Stored

Get: TypeAlias = Callable[[Sequence[str]], Sequence[Stored | None]]


class Left(NamedTuple):
    held: list[tuple[Mark, Stored]]  # as they were before they were moved away
    changed: list[Mark]  # or ended, by others: their copies are to be taken back
    known: list[Mark]  # the same, as an earlier run has found


class Last(NamedTuple):
    """Of each id, the name of the last batch that has it, and of the last one that has a step for it.

    Before a second kill a message may have been taken again; or have been noted again by a run that then did not move it.
    """

    has: Mapping[str, str]
    ends: Mapping[str, str]

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> "Last":
        ordered = sorted(batches, key=lambda each: each.since)
        has = {id: each.name for each in ordered for id in each.ids}
        return cls(has, {id: each.name for each in ordered for step in each.steps for id in step.ids})


def left_of(batch: Batch, get: Get, last: Last, *, whole: bool) -> Left:
    """`whole`: steps are done as a whole."""
    found, gone = Left([], [], []), list[Mark]()
    for mark, stored in zip(batch.marks, get(batch.ids), strict=True):
        owner = last.ends.get(mark.id, batch.name) if stored is None else last.has[mark.id]
        if owner != batch.name or mark.id in batch.changed:
            found.known.append(mark)
        elif stored is None:
            gone.append(mark)
        elif (is_away(stored) or mark.dead) and mark == mark_of(before := brought_back(stored)):
            found.held.append((mark, before))
        else:
            found.changed.append(mark)
    if gone and batch.steps:
        there = still([mark.id for mark, _ in found.held], batch.steps, get) if whole else []
        others = set(ended_by_others([mark.id for mark in gone], batch.steps, there))
    else:
        others = {mark.id for mark in gone}
    found.changed.extend(mark for mark in gone if mark.id in others)
    return found


def still(ids: Sequence[str], steps: Sequence[Step], get: Get) -> list[str]:
    """Of these ids, and of the notes that go with steps, which are there now, when all others have been read."""
    asked = [*ids, *(step.mark for step in steps if step.mark)]
    return [id for id, stored in zip(asked, get(asked), strict=True) if stored is not None]


def ended_by_others(gone: Iterable[str], steps: Sequence[Step], there: Iterable[str]) -> list[str]:
    """Of ids that are gone: those that none of these steps can have ended. `there`: what was there after that."""
    known = set(there)
    done = [set(step.ids) for step in steps if step.mark not in known and known.isdisjoint(step.ids)]
    return [id for id in gone if not any(id in step for step in done)]

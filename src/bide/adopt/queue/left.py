"""What a run that was killed has left on its way, and who has ended what is no longer there: that run, or somebody else.

As long as the note of a batch is there, only a step that was noted can have ended a message of it. An engine does a step as a
whole or not at all: if its mark is there, or a message of it as it was, it was not done, and somebody else has ended what is
gone.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from bide.adopt.queue.moved_message import brought_back, is_away
from bide.adopt.queue.notes import Batch, Mark, Step, mark_of
from bide.engines.base import Stored

Get: TypeAlias = Callable[[Sequence[str]], Sequence[Stored | None]]


class Left(NamedTuple):
    held: list[tuple[Mark, Stored]]
    changed: list[Mark]  # or ended, by others: their copies are to be taken back
    known: list[Mark]  # the same, as an earlier run has found


class Last(NamedTuple):
    """Of each id, the name of the last batch that has it, and of the last one that has a step for it.

    Before a second kill a message may have been taken again; or have been noted again by a run that did not move it then. Of
    two runs the one that began later is the last one, also if the other one was slow to note something.
    """

    has: Mapping[str, str]
    ends: Mapping[str, str]

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> "Last":
        ordered = sorted(batches, key=lambda each: (each.began, each.since))
        has = {id: each.name for each in ordered for id in each.ids}
        return cls(has, {id: each.name for each in ordered for step in each.steps for id in step.ids})


def left_of(batch: Batch, get: Get, last: Last) -> Left:
    found, gone = Left([], [], []), list[Mark]()
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


def still(batch: Batch, get: Get) -> Sequence[str]:
    """Of all that earlier runs may have ended in steps, what is as it was, when all others have been read. What somebody has
    changed tells nothing: a dead letter that gets a new life just before such a step is not ended with the others."""
    named = {mark.id: mark for mark in batch.marks}
    ids = list(dict.fromkeys(id for step in batch.steps if not step.mark for id in step.ids))
    return [id for id, stored in zip(ids, get(ids), strict=True) if stored is not None and named[id] == mark_of(stored)]


def ended_by_others(gone: Iterable[str], steps: Iterable[Step], there: Collection[str]) -> list[str]:
    """Of ids that are gone: those that none of these steps can have ended. `there`: what was there after that."""
    known = set(there)
    done = {id for step in steps if not (step.mark or known.intersection(step.ids)) for id in step.ids}
    return [id for id in gone if id not in done]

"""Notes the messages of a queue that are on their way to another one. Two moves from a queue meet there.

Who takes over writes its name first, then reads the notes, and gives each another time. Who moves writes a note first and then
reads the name, before it acts; and what it does names the note, with its time. So what a run does has been noted before another
takes over, or is not done; and what it still does afterwards has no effect.
"""

from collections.abc import Sequence
from random import randrange
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from bide.adopt.queue.notes import (
    BATCH,
    CHANGED,
    ENDS,
    FOR_GOOD,
    OWNER,
    STEP,
    Batch,
    Note,
    Step,
    age_of,
    batches_of,
    notes_of,
)
from bide.engines.base import MAX_BATCH, Condition, Move, NewMessage, Ref, Seen
from bide.errors import BideError
from bide.queue.schedules.records import MOVING
from bide.types import CancelResult, RescheduleResult, Sent

if TYPE_CHECKING:
    from bide.engines.sync import Engine

TAKEN_OVER = "Another run of this command has taken over. It goes on with what this one had; leave it alone."
ENDED = (
    "Another run has taken over what this one had, and has ended: it has moved it, or given it back. If it was given back, the "
    "other queue may have copies."
)
_APART = 2**30  # ms: two runs that begin at once name themselves in notes that are due at other times


class OtherMove(BideError):
    """Another move from this queue is under way, or was stopped on its way."""


class Log:
    """The notes in one queue."""

    def __init__(self, engine: "Engine", destination: str | None) -> None:
        """`destination`: a name of the other queue, the same in each run. None: any, as its messages are to be given back."""
        self._engine = engine
        self._destination = destination
        self._run = uuid4().hex
        self._owned: Sent  # the note that names it
        self._began = 0  # by the clock of the queue, when it took over
        self._strays: list[str] = []  # notes that a run which was slow has left
        self.now: int = 0  # of the queue, when something was last written
        self.taken_over: bool = False  # by another run, as far as is known

    def read(self) -> list[Batch]:
        """What an earlier run has begun to move and perhaps not finished. Raises OtherMove if it went to another place."""
        batches, self._strays = batches_of(self._engine)
        for each in batches if self._destination is not None else ():
            if each.destination != self._destination:
                raise OtherMove(
                    f"A move to {each.destination} was stopped on its way, or goes on. First let it end: run the same command "
                    "again, with the same URL. If that queue is gone, add --doubtful give-back: its messages are left here."
                )
        if self._destination is not None and any(each.unread for each in batches):
            raise OtherMove(
                "A move that was stopped on its way was begun by another release of bide, which notes differently what it has "
                "ended. First let it end: run the same command with that release."
            )
        return batches

    def age(self, batches: Sequence[Batch]) -> float:
        """Seconds since the first of them was begun, by the clock of the queue."""
        return age_of(self._engine, batches)

    def begin(self) -> list[Batch]:
        """Take over what an earlier run to the same place has left. Raises OtherMove for one to another place, and if another
        run has taken over since this one began."""
        if self.now and (owner := self._owner(self._engine)) is not None:
            self._check(owner)
        self.read()
        [self._owned] = self._put((OWNER, self._run.encode()), delay=FOR_GOOD - randrange(_APART))
        self._began = self.now
        while not self._fence(batches := self.read()):  # one has ended meanwhile, or another run does the same
            self.check()
        return batches

    def _fence(self, batches: Sequence[Batch]) -> bool:
        """Give other times to what is noted about them: then what earlier runs are still doing has no effect any more. Where an
        engine can see to it, a run that was taken over meanwhile does nothing."""
        together = self._engine.capabilities.together
        condition, most = (Condition(self._owned.id, self._owned.due), together) if together > 1 else (None, MAX_BATCH)
        noted = [(each.own, each.noted) for each in batches]
        noted += [(step.mark, step.noted) for each in batches for step in each.steps if step.mark]
        moved: dict[str, int] = {}
        for first in range(0, len(noted), most):
            some = noted[first : first + most]
            moves = [Move(Ref(id=id), at=due - 1, seen=due) for id, due in some]
            ends = self._engine.reschedule(moves, condition=condition)
            moved |= {id: due - 1 for (id, due), end in zip(some, ends, strict=True) if end is RescheduleResult.MOVED}
        for each in batches:
            each.noted = moved.get(each.own, 0)
        return len(moved) == len(noted)

    def add(self, batches: Sequence[Batch]) -> None:
        """Note batches before they are moved away. Raises OtherMove if another run has taken over."""
        whole = self._engine.capabilities.together > 1
        notes = [Note(self._destination or "", each.marks, self._began, whole) for each in batches]
        named = [f"{BATCH}/{each.name}" for each in batches]
        sent = self._put(*zip(named, map(msgspec.json.encode, notes), strict=True))
        for batch, note in zip(batches, sent, strict=True):
            batch.own, batch.noted, batch.notes, batch.whole = note.id, note.due, [note.id], whole
        owner = self._owner(self._engine)
        if owner != self._run:  # the other run may not know of these
            self.take_off(batches)
        self._check(owner)

    def note_step(self, batch: Batch, number: int, ids: Sequence[str], *, marked: bool = True) -> Step:
        """Note what this run is going to end of a batch, before it does. `marked`: with a note that is to end with them."""
        about = f"{batch.name}/{self._run}/{number}"
        mark = self._about(batch, f"{STEP}/{about}", ()) if marked else None
        self._about(batch, f"{ENDS}/{about}", ids)
        return Step(ids) if mark is None else Step(ids, mark.id, mark.due)

    def add_changed(self, batch: Batch, ids: Sequence[str]) -> None:
        """Note what somebody has changed or ended: the copies are to be taken back, and their names are used up."""
        if not batch.changed.issuperset(ids):
            batch.changed.update(ids)
            self._about(batch, f"{CHANGED}/{batch.name}/{self._run}", sorted(batch.changed))

    def _about(self, batch: Batch, key: str, ids: Sequence[str]) -> Sent:
        [note] = self._put((key, msgspec.json.encode(ids)))
        batch.notes.append(note.id)
        return note

    def is_ours(self) -> bool:
        """Whether no other run has taken over."""
        return self.is_in(self._engine)

    def check(self) -> None:
        self._check(self._owner(self._engine))

    def _check(self, owner: str | None) -> None:
        if owner != self._run:
            self.taken_over = True
            raise OtherMove(ENDED if owner is None else TAKEN_OVER)

    def is_in(self, engine: "Engine") -> bool:
        """Whether that engine has this run's notes, too: then it is the same queue."""
        return self._owner(engine) == self._run

    def _owner(self, engine: "Engine") -> str | None:
        [owner] = engine.get([Ref(topic=MOVING, key=OWNER)])
        return None if owner is None else owner.body.decode()

    def take_off(self, batches: Sequence[Batch]) -> None:
        """Remove the notes of batches that have been moved. Raises OtherMove if another run has taken over: it needs them."""
        noted = [each for each in batches if each.own in each.notes]
        for first in range(0, len(noted), most := self._engine.capabilities.together):
            some = noted[first : first + most]
            ends = self._engine.cancel([Ref(id=each.own) for each in some], seen=[Seen(each.noted) for each in some])
            if any(end is not CancelResult.CANCELLED for end in ends):
                self.check()
        self._cancel([ref for each in batches for ref in notes_of(each)])

    def _cancel(self, refs: Sequence[Ref]) -> None:
        for first in range(0, len(refs), MAX_BATCH):
            self._engine.cancel(refs[first : first + MAX_BATCH])

    def end(self) -> None:
        """Nothing is on its way."""
        [owner] = self._engine.get([Ref(topic=MOVING, key=OWNER)])
        if owner is not None and owner.body.decode() == self._run:
            self._cancel([Ref(id=id) for id in self._strays])
            self._engine.cancel([Ref(id=owner.id)], seen=[Seen(owner.due, owner.body)])

    def _put(self, *notes: tuple[str, bytes], delay: int = FOR_GOOD) -> list[Sent]:
        """By their keys."""
        new = [NewMessage(MOVING, body, delay=delay, key=key, if_exists="replace") for key, body in notes]
        sent = self._engine.put(new)
        self.now = sent[0].due - delay
        return sent

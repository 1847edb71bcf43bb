"""Notes the messages of a queue that are on their way to another one. Two moves from a queue meet there.

Who takes over writes its name first and then reads the notes. Who moves writes a note first and then reads the name, before it
acts. So what a run does has been noted before another takes over, or is not done.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from bide.adopt.queue.notes import (
    BATCH,
    CHANGED,
    ENDING,
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
from bide.engines.base import MAX_BATCH, NewMessage, Ref
from bide.errors import BideError
from bide.queue.schedules.records import MOVING

if TYPE_CHECKING:
    from bide.engines.sync import Engine

TAKEN_OVER = "Another run of this command has taken over. It goes on with what this one had; leave it alone."


class OtherMove(BideError):
    """Another move from this queue is under way, or was stopped on its way."""


class Log:
    """The notes in one queue."""

    def __init__(self, engine: "Engine", destination: str | None) -> None:
        """`destination`: a name of the other queue, the same in each run. None: any, as its messages are to be given back."""
        self._engine = engine
        self._destination = destination
        self._run = uuid4().hex
        self._strays: list[str] = []  # notes that a run which was slow has left
        self.now: int = 0  # of the queue, when something was last written

    def read(self) -> list[Batch]:
        """What an earlier run has begun to move and perhaps not finished. Raises OtherMove if it went to another place."""
        batches, self._strays = batches_of(self._engine)
        for each in batches if self._destination is not None else ():
            if each.destination != self._destination:
                raise OtherMove(
                    f"A move to {each.destination} was stopped on its way, or goes on. First let it end: run the same command "
                    "again, with the same URL. If that queue is gone, add --doubtful give-back: its messages are left here."
                )
        return batches

    def age(self, batches: Sequence[Batch]) -> float:
        """Seconds since the first of them was begun, by the clock of the queue."""
        return age_of(self._engine, batches)

    def begin(self) -> list[Batch]:
        """Take over what an earlier run to the same place has left. Raises OtherMove for one to another place."""
        self.read()
        self._put((OWNER, self._run.encode()))
        return self.read()

    def add(self, batch: Batch) -> None:
        """Note a batch before it is moved away. Raises OtherMove if another run has taken over."""
        note = Note(self._destination or "", batch.marks)
        batch.notes = self._put((f"{BATCH}/{batch.name}", msgspec.json.encode(note)))
        owner = self._owner(self._engine)
        if owner is None:  # the other run has ended, and does not know of this one
            self.take_off([batch])
        if owner != self._run:
            raise OtherMove(TAKEN_OVER)

    def note_steps(self, batch: Batch, done: Sequence[Step], steps: Sequence[Sequence[str]]) -> list[Step]:
        """Note what this run is going to cancel, step by step, behind what it has done of this batch."""
        place = {id: number for number, id in enumerate(batch.ids)}
        numbers = [[place[id] for id in ids] for ids in (*(each.ids for each in done), *steps)]
        about = f"{batch.name}/{self._run}"
        pending = [at for at in range(len(done), len(numbers)) if not batch.marks[numbers[at][0]].dead]
        note, *marks = self._put(
            (f"{ENDING}/{about}", msgspec.json.encode(numbers)), *((f"{STEP}/{about}/{at}", b"") for at in pending)
        )
        batch.notes += [note, *marks]
        mark_at = dict(zip(pending, marks, strict=True))
        return [Step(ids, mark_at.get(at, "")) for at, ids in enumerate(steps, len(done))]

    def add_changed(self, batch: Batch, ids: Sequence[str]) -> None:
        """Note what somebody has changed or ended: the copies are to be taken back, and their names are used up."""
        if not batch.changed.issuperset(ids):
            batch.changed.update(ids)
            batch.notes += self._put((f"{CHANGED}/{batch.name}/{self._run}", msgspec.json.encode(sorted(batch.changed))))

    def is_ours(self) -> bool:
        """Whether no other run has taken over."""
        return self.is_in(self._engine)

    def check(self) -> None:
        if not self.is_ours():
            raise OtherMove(TAKEN_OVER)

    def is_in(self, engine: "Engine") -> bool:
        """Whether that engine has this run's notes, too: then it is the same queue."""
        return self._owner(engine) == self._run

    def _owner(self, engine: "Engine") -> str | None:
        [owner] = engine.get([Ref(topic=MOVING, key=OWNER)])
        return None if owner is None else owner.body.decode()

    def has(self, batch: Batch) -> bool:
        """Whether a batch is noted still: then whoever has taken over knows of it."""
        return any(each is not None for each in self._engine.get([Ref(id=id) for id in batch.notes]))

    def take_off(self, batches: Sequence[Batch]) -> None:
        """Remove the notes of batches that have been moved."""
        self._cancel([ref for each in batches for ref in notes_of(each)])

    def _cancel(self, refs: Sequence[Ref]) -> None:
        for first in range(0, len(refs), MAX_BATCH):
            self._engine.cancel(refs[first : first + MAX_BATCH])

    def end(self) -> None:
        """Nothing is on its way."""
        if self.is_ours():
            self._cancel([Ref(id=id) for id in self._strays])
            self._engine.cancel([Ref(topic=MOVING, key=OWNER)])

    def _put(self, *notes: tuple[str, bytes]) -> list[str]:
        """By their keys; gives the ids."""
        new = [NewMessage(MOVING, body, delay=FOR_GOOD, key=key, if_exists="replace") for key, body in notes]
        sent = self._engine.put(new)
        self.now = sent[0].due - FOR_GOOD
        return [each.id for each in sent]

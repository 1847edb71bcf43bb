"""Which messages of a queue are on their way to another one: notes in the queue, which the next run finds after a kill.

They are messages of a topic of its own: one for each batch that is on its way, one more that says in which steps it is
cancelled, one for each step, which is cancelled with it, one that says which of the batch somebody has changed, and one that
names the run which moves them. Who takes over writes its name first and then reads the notes. Who moves writes a note first and
then reads the name, before it acts. So what a run does has been noted before another takes over, or is not done.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import msgspec

from bide.adopt.queue.moved_message import fingerprint
from bide.core.amounts import plural, span
from bide.core.when import MAX_DELAY_MS
from bide.engines.base import MAX_BATCH, Finding, NewMessage, Ref, Stored
from bide.errors import BideError
from bide.queue.schedules.records import MOVING

if TYPE_CHECKING:
    from bide.engines.sync import Engine

_FOR_GOOD = MAX_DELAY_MS
_OWNER, _BATCH, _ENDING, _STEP, _CHANGED = "owner", "batch", "ending", "step", "changed"  # keys, or what they begin with
TAKEN_OVER = "Another run of this command has taken over. It goes on with what this one had; leave it alone."
ADVICE = (
    "If no `bide move` is running, one was stopped on its way, and no worker gets these messages. Run the same command again: "
    "it goes on with them."
)


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that is on its way, as it was listed."""

    id: str
    print: str
    topic: str
    key: str | None
    dead: bool


def mark_of(message: Stored) -> Mark:
    return Mark(message.id, fingerprint(message), message.topic, message.key, message.state == "dead")


class Note(msgspec.Struct, frozen=True):
    """Of a batch, as it is stored."""

    destination: str
    marks: Sequence[Mark]


class Step(NamedTuple):
    """Messages that the other queue has, and that are cancelled together, or dead letters that are purged together."""

    ids: Sequence[str]
    mark: str = ""  # the id of the note that is cancelled with them; empty if there is none


class Batch(msgspec.Struct):
    """Messages that are moved together."""

    name: str  # of this batch alone
    marks: Sequence[Mark]
    destination: str = ""
    since: int = 0  # by the clock of the queue, in ms
    steps: Sequence[Step] = ()  # that earlier runs have done, or were going to do
    changed: set[str] = msgspec.field(default_factory=set)  # ids of those that somebody has changed or ended
    notes: list[str] = msgspec.field(default_factory=list)  # the ids of what is noted about it

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.marks]

    def named(self, mark: Mark) -> str:
        """The name of a message in this batch: what is sent again after a kill is told by it."""
        return f"{self.name}/{mark.id}/{mark.print}"


class OtherMove(BideError):
    """Another move from this queue is under way, or was stopped on its way."""


class Log:
    """The notes in one queue. Two moves from a queue meet there."""

    def __init__(self, engine: "Engine", destination: str | None) -> None:
        """`destination`: a name of the other queue, the same in each run. None: any, as its messages are to be given back."""
        self._engine = engine
        self._destination = destination
        self._run = uuid4().hex
        self._strays: list[str] = []  # notes that a run which was slow has left
        self.now: int = 0  # of the queue, when something was last written

    def read(self) -> list[Batch]:
        """What an earlier run has begun to move and perhaps not finished. Raises OtherMove if it went to another place."""
        batches, self._strays = _batches(self._engine)
        for each in batches if self._destination is not None else ():
            if each.destination != self._destination:
                raise OtherMove(
                    f"A move to {each.destination} was stopped on its way, or goes on. First let it end: run the same command "
                    "again, with the same URL. If that queue is gone, add --doubtful give-back: its messages are left here."
                )
        return batches

    def age(self, batches: Sequence[Batch]) -> float:
        """Seconds since the first of them was begun, by the clock of the queue."""
        return _age(self._engine, batches)

    def begin(self) -> list[Batch]:
        """Take over what an earlier run to the same place has left. Raises OtherMove for one to another place."""
        self.read()
        self._put((_OWNER, self._run.encode()))
        return self.read()

    def add(self, batch: Batch) -> None:
        """Note a batch before it is moved away. Raises OtherMove if another run has taken over."""
        note = Note(self._destination or "", batch.marks)
        batch.notes = self._put((f"{_BATCH}/{batch.name}", msgspec.json.encode(note)))
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
            (f"{_ENDING}/{about}", msgspec.json.encode(numbers)), *((f"{_STEP}/{about}/{at}", b"") for at in pending)
        )
        batch.notes += [note, *marks]
        mark_at = dict(zip(pending, marks, strict=True))
        return [Step(ids, mark_at.get(at, "")) for at, ids in enumerate(steps, len(done))]

    def add_changed(self, batch: Batch, ids: Sequence[str]) -> None:
        """Note what somebody has changed or ended: the copies are to be taken back, and their names are used up."""
        if not batch.changed.issuperset(ids):
            batch.changed.update(ids)
            batch.notes += self._put((f"{_CHANGED}/{batch.name}/{self._run}", msgspec.json.encode(sorted(batch.changed))))

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
        [owner] = engine.get([Ref(topic=MOVING, key=_OWNER)])
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
            self._engine.cancel([Ref(topic=MOVING, key=_OWNER)])

    def _put(self, *notes: tuple[str, bytes]) -> list[str]:
        """By their keys; gives the ids."""
        new = [NewMessage(MOVING, body, delay=_FOR_GOOD, key=key, if_exists="replace") for key, body in notes]
        sent = self._engine.put(new)
        self.now = sent[0].due - _FOR_GOOD
        return [each.id for each in sent]


def notes_of(batch: Batch) -> list[Ref]:
    return [Ref(id=id) for id in dict.fromkeys(batch.notes)]


def destinations(engine: "Engine") -> set[str]:
    """Where moves from this queue go, or went when they were stopped."""
    batches, _ = _batches(engine)
    return {each.destination for each in batches}


def stopped_moves(engine: "Engine") -> list[Finding]:
    """What an operator should know of messages that are on their way, perhaps since a run that was killed."""
    batches, _ = _batches(engine)
    if not batches:
        return []
    count = sum(len(each.marks) for each in batches)
    where = ", ".join(sorted({each.destination for each in batches}))
    value = f"up to {plural(count, 'message')} since {span(_age(engine, batches)) or '0s'}, to {where}"
    return [Finding("moving", value, "warn", ADVICE)]


def _batches(engine: "Engine") -> tuple[list[Batch], list[str]]:
    """And the ids of notes about batches that are no longer there."""
    stored = {each.key or "": each for each in _notes(engine)}
    found = {each.name: each for each in map(_batch, stored.values()) if each is not None}
    strays: list[str] = []
    for key, each in stored.items():
        kind, _, about = key.partition("/")
        batch = found.get(about.partition("/")[0])
        if kind in (_OWNER, _BATCH):
            continue
        if batch is None:
            strays.append(each.id)
            continue
        batch.notes.append(each.id)
        if kind == _CHANGED:
            batch.changed |= msgspec.json.decode(each.body, type=set[str])
        elif kind == _ENDING:
            batch.steps = [*batch.steps, *_steps(batch, about, each.body, stored)]
    return list(found.values()), strays


def _steps(batch: Batch, about: str, body: bytes, stored: Mapping[str, Stored]) -> Iterator[Step]:
    for number, step in enumerate(msgspec.json.decode(body, type=list[list[int]])):
        mark = stored.get(f"{_STEP}/{about}/{number}")
        yield Step([batch.marks[place].id for place in step], "" if mark is None else mark.id)


def _notes(engine: "Engine") -> Iterator[Stored]:
    after: str | None = None
    while True:
        page = engine.scan(MOVING, "scheduled", MAX_BATCH, after)
        yield from page.messages
        if (after := page.after) is None:
            return


def _batch(stored: Stored) -> Batch | None:
    kind, _, name = (stored.key or "").partition("/")
    if kind != _BATCH:
        return None
    note = msgspec.json.decode(stored.body, type=Note)
    return Batch(name, note.marks, note.destination, stored.due - _FOR_GOOD, notes=[stored.id])


def _age(engine: "Engine", batches: Sequence[Batch]) -> float:
    if not batches:
        return 0.0
    return max(0, engine.claim([], 1, 1_000).now - min(each.since for each in batches)) / 1000

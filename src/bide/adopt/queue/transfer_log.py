"""Notes in the old queue of the messages that are on their way to another one, and how they are read after a kill.

Who takes over writes its name first, then reads the notes, and gives each another time. Who moves writes a note first and then
reads the name, before it acts; and what it does names the note, with its time. So what a run does has been noted before another
takes over, or is not done; and what it still does afterwards has no effect.

A note is a message of a topic of its own: one for each batch that is on its way, which ends with it; one for each step in which
a part of a batch is ended, and one more that ends with these; one that says what of a batch somebody has changed; and one that
names the run which moves them.
"""

from collections.abc import Iterator, Sequence
from random import randrange
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import msgspec

from bide.adopt.queue.messages import fingerprint
from bide.core.formats import plural, span
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import MAX_BATCH, Condition, Finding, Move, NewMessage, Ref, Seen, Stored
from bide.errors import BideError
from bide.queue.bulk import complete
from bide.queue.schedules.records import MOVING
from bide.types import CancelResult, RescheduleResult, Sent

if TYPE_CHECKING:
    from bide.engines.sync import Engine


FOR_GOOD = MAX_DELAY_MS
OWNER, BATCH, ENDS, STEP, CHANGED = "owner", "batch", "ends", "step", "changed"  # keys, or what they begin with
ADVICE = (
    "If no `bide move` is running, one was stopped on its way, and no worker gets these messages. Run the same command again: "
    "it goes on with them, or asks what to do if the kill was more than nine minutes ago."
)
TAKEN_OVER = "Another run of this command has taken over. It goes on with what this one had; leave it alone."
_APART = 2**30  # ms: two runs that begin at once name themselves in notes that are due at other times


class ListedMark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that is on its way, as it was listed."""

    id: str
    print: str
    topic: str
    key: str | None
    dead: bool
    due: int
    attempt: int


def mark_of(message: Stored) -> ListedMark:
    dead = message.state == "dead"
    return ListedMark(message.id, fingerprint(message), message.topic, message.key, dead, message.due, message.attempt)


class Note(msgspec.Struct, frozen=True):
    """Of a batch, as it is stored."""

    destination: str
    marks: Sequence[ListedMark]
    began: int = 0  # by the clock of the queue, when the run that noted it took over
    whole: bool = False  # what it ends of it, it ends as a whole


class BatchStep(NamedTuple):
    """Messages of a batch that end together, but not with all of it."""

    ids: Sequence[str]
    mark: str = ""  # the id of the note that ends with them; empty if there is none
    noted: int = 0  # when that is due


class TransferBatch(msgspec.Struct):
    """Messages that are moved together."""

    name: str  # of this batch alone
    marks: Sequence[ListedMark]
    destination: str = ""
    began: int = 0  # when the run that noted it took over
    whole: bool = False  # its steps were done as a whole or not at all
    noted: int = 0  # when its own note is due
    steps: list[BatchStep] = msgspec.field(default_factory=list)  # that earlier runs have done, or were going to do
    changed: set[str] = msgspec.field(default_factory=set)  # ids of those that somebody has changed or ended
    unread: bool = False  # another release has noted something about it
    own: str = ""  # the id of its own note
    notes: list[str] = msgspec.field(default_factory=list)  # and of all that is noted about it

    @property
    def condition(self) -> Condition:
        """That nobody has taken it over."""
        return Condition(self.own, self.noted)

    @property
    def since(self) -> int:
        """When it was begun, by the clock of the queue, in ms."""
        return self.noted - FOR_GOOD

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.marks]

    def named(self, mark: ListedMark) -> str:
        """The name of a message in this batch: what is sent again after a kill is told by it."""
        return f"{self.name}/{mark.id}/{mark.print}"


def notes_of(batch: TransferBatch) -> list[Ref]:
    return [Ref(id=id) for id in dict.fromkeys(batch.notes)]


def destinations(engine: "Engine") -> set[str]:
    """Where moves from this queue go, or went when they were stopped."""
    batches, _ = batches_of(engine)
    return {each.destination for each in batches}


def stopped_moves(engine: "Engine") -> list[Finding]:
    """What an operator should know of messages that are on their way, perhaps since a run that was killed."""
    batches, _ = batches_of(engine)
    if not batches:
        return []
    count = sum(len(each.marks) for each in batches)
    where = ", ".join(sorted({each.destination for each in batches}))
    value = f"up to {plural(count, 'message')} since {span(age_of(engine, batches)) or '0s'}, to {where}"
    return [Finding("moving", value, "warn", ADVICE)]


def batches_of(engine: "Engine") -> tuple[list[TransferBatch], list[str]]:
    """And the ids of notes about batches that are no longer there."""
    stored = list(_notes(engine))
    found = {each.name: each for each in map(_batch, stored) if each is not None}
    marks = {(each.key or "").removeprefix(f"{STEP}/"): (each.id, each.due) for each in stored}
    strays: list[str] = []
    for each in stored:
        kind, _, about = (each.key or "").partition("/")
        batch = found.get(about.partition("/")[0])
        if kind in (OWNER, BATCH):
            continue
        if batch is None:
            strays.append(each.id)
            continue
        batch.notes.append(each.id)
        if kind == CHANGED:
            batch.changed |= msgspec.json.decode(each.body, type=set[str])
        elif kind == ENDS:
            batch.steps.append(BatchStep(msgspec.json.decode(each.body, type=list[str]), *marks.get(about, ("", 0))))
        elif kind != STEP:
            batch.unread = True
    return list(found.values()), strays


def _notes(engine: "Engine") -> Iterator[Stored]:
    after: str | None = None
    while True:
        page = complete(engine.scan(MOVING, "scheduled", MAX_BATCH, after))
        yield from page.messages
        if (after := page.after) is None:
            return


def _batch(stored: Stored) -> TransferBatch | None:
    kind, _, name = (stored.key or "").partition("/")
    if kind != BATCH:
        return None
    note = msgspec.json.decode(stored.body, type=Note)
    known = (note.destination, note.began, note.whole, stored.due)
    return TransferBatch(name, note.marks, *known, own=stored.id, notes=[stored.id])


def age_of(engine: "Engine", batches: Sequence[TransferBatch]) -> float:
    """Seconds since the first of them was begun."""
    return _since(engine, min((each.since for each in batches), default=None))


def idle(engine: "Engine", batches: Sequence[TransferBatch]) -> float:
    """Seconds since the last one was begun."""
    return _since(engine, max((each.since for each in batches), default=None))


def _since(engine: "Engine", began: int | None) -> float:
    return 0.0 if began is None else max(0, engine.claim([], 1, 1_000).now - began) / 1000


ENDED = (
    "Another run has taken over what this one had, and has ended: it has moved it, or given it back. If it was given back, the "
    "other queue may have copies."
)


class OtherMove(BideError):
    """Another move from this queue is under way, or was stopped on its way."""


class TransferLog:
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

    def read(self) -> list[TransferBatch]:
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

    def age(self, batches: Sequence[TransferBatch]) -> float:
        """Seconds since the first of them was begun, by the clock of the queue."""
        return age_of(self._engine, batches)

    def begin(self) -> list[TransferBatch]:
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

    def _fence(self, batches: Sequence[TransferBatch]) -> bool:
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

    def add(self, batches: Sequence[TransferBatch]) -> None:
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

    def note_step(self, batch: TransferBatch, number: int, ids: Sequence[str], *, marked: bool = True) -> BatchStep:
        """Note what this run is going to end of a batch, before it does. `marked`: with a note that is to end with them."""
        about = f"{batch.name}/{self._run}/{number}"
        mark = self._about(batch, f"{STEP}/{about}", ()) if marked else None
        self._about(batch, f"{ENDS}/{about}", ids)
        return BatchStep(ids) if mark is None else BatchStep(ids, mark.id, mark.due)

    def add_changed(self, batch: TransferBatch, ids: Sequence[str]) -> None:
        """Note what somebody has changed or ended: the copies are to be taken back, and their names are used up."""
        if not batch.changed.issuperset(ids):
            batch.changed.update(ids)
            self._about(batch, f"{CHANGED}/{batch.name}/{self._run}", sorted(batch.changed))

    def _about(self, batch: TransferBatch, key: str, ids: Sequence[str]) -> Sent:
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

    def take_off(self, batches: Sequence[TransferBatch]) -> None:
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

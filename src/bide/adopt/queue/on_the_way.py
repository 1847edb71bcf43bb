"""Which messages of a queue are on their way to another one: notes in the queue, which the next run finds after a kill.

They are messages of a topic of its own: one for each batch that is on its way, one more once the batch is being cancelled, one
more that says which of it somebody has changed, and one that names the run which moves them. Who takes over writes its name
first and then reads the notes. Who moves writes a note first and then reads the name, before it acts. So what a run does has
been noted before another takes over, or is not done.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import msgspec

from bide.adopt.queue.moved_message import fingerprint
from bide.core.amounts import plural, span
from bide.core.when import MAX_DELAY_MS
from bide.engines.base import Finding, NewMessage, Ref, Stored
from bide.errors import BideError
from bide.queue.schedules.records import MOVING

if TYPE_CHECKING:
    from bide.engines.sync import Engine

_FOR_GOOD = MAX_DELAY_MS
_MOST = 100  # notes that are read; there are ten after a kill
_OWNER, _BATCH, _ENDING, _CHANGED = "owner", "batch/", "ending/", "changed/"  # keys, or what they begin with
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


class Batch(NamedTuple):
    """Messages that are moved together."""

    name: str  # of this batch alone
    marks: Sequence[Mark]
    destination: str = ""
    since: int = 0  # by the clock of the queue, in ms
    ending: bool = False  # the other queue has all of them, and they are being cancelled here
    changed: Collection[str] = ()  # ids of those that somebody had changed or ended by then
    notes: Sequence[str] = ()  # the ids of what is noted about it

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

    def __init__(self, engine: "Engine", destination: str) -> None:
        self._engine = engine
        self._destination = destination
        self._run = uuid4().hex
        self._notes: dict[str, list[str]] = {}  # by batch, the ids of its notes
        self.now: int = 0  # of the queue, when something was last written

    def read(self) -> list[Batch]:
        """What an earlier run has begun to move and perhaps not finished. Raises OtherMove if it went to another place."""
        batches = _batches(self._engine)
        self._notes |= {each.name: list(each.notes) for each in batches}
        for each in batches:
            if each.destination != self._destination:
                raise OtherMove(
                    f"A move to {each.destination} was stopped on its way, or goes on. First let it end: run the same command "
                    "again, with the same URL."
                )
        return batches

    def age(self, batches: Sequence[Batch]) -> float:
        """Seconds since the first of them was begun, by the clock of the queue."""
        return _age(self._engine, batches)

    def begin(self) -> list[Batch]:
        """Take over what an earlier run to the same place has left. Raises OtherMove for one to another place."""
        self.read()
        self._put(_OWNER, self._run.encode())
        return self.read()

    def add(self, batch: Batch) -> None:
        """Note a batch before it is moved away. Raises OtherMove if another run has taken over."""
        self._notes[batch.name] = [self._put(_BATCH + batch.name, msgspec.json.encode(Note(self._destination, batch.marks)))]
        if not self.is_ours():
            self._engine.cancel(self.taken_off([batch.name]))
            raise OtherMove(TAKEN_OVER)

    def add_ending(self, names: Sequence[str]) -> None:
        """Note that the other queue has these batches. Raises OtherMove if another run has taken over."""
        for each in names:
            self._notes[each].append(self._put(_ENDING + each, b""))
        if not self.is_ours():
            raise OtherMove(TAKEN_OVER)

    def add_changed(self, ids: Mapping[str, Sequence[str]]) -> None:
        """Note, by batch, what somebody has changed or ended: the copies are to be taken back."""
        for name, some in ids.items():
            self._notes[name].append(self._put(_CHANGED + name, msgspec.json.encode(some)))

    def is_ours(self) -> bool:
        """Whether no other run has taken over."""
        return self.is_in(self._engine)

    def is_in(self, engine: "Engine") -> bool:
        """Whether that engine has this run's notes, too: then it is the same queue."""
        [owner] = engine.get([Ref(topic=MOVING, key=_OWNER)])
        return owner is not None and owner.body == self._run.encode()

    def taken_off(self, names: Sequence[str]) -> list[Ref]:
        """The notes of batches that have been moved, for the caller to cancel."""
        return [Ref(id=id) for each in names for id in dict.fromkeys(self._notes.pop(each))]

    def end(self, names: Sequence[str]) -> None:
        """Nothing is on its way. `names`: of batches whose notes are still there."""
        if self.is_ours():
            self._engine.cancel([*self.taken_off(names), Ref(topic=MOVING, key=_OWNER)])

    def _put(self, key: str, body: bytes) -> str:
        [sent] = self._engine.put([NewMessage(MOVING, body, delay=_FOR_GOOD, key=key, if_exists="replace")])
        self.now = sent.due - _FOR_GOOD
        return sent.id


def stopped_moves(engine: "Engine") -> list[Finding]:
    """What an operator should know of messages that are on their way, perhaps since a run that was killed."""
    batches = _batches(engine)
    if not batches:
        return []
    count = sum(len(each.marks) for each in batches)
    where = ", ".join(sorted({each.destination for each in batches}))
    value = f"up to {plural(count, 'message')} since {span(_age(engine, batches)) or '0s'}, to {where}"
    return [Finding("moving", value, "warn", ADVICE)]


def _batches(engine: "Engine") -> list[Batch]:
    stored = {each.key or "": each for each in engine.scan(MOVING, "scheduled", _MOST).messages}
    return [_batch(key.removeprefix(_BATCH), stored) for key in stored if key.startswith(_BATCH)]


def _batch(name: str, stored: Mapping[str, Stored]) -> Batch:
    it, ending, changed = (stored.get(begin + name) for begin in (_BATCH, _ENDING, _CHANGED))
    assert it is not None
    note = msgspec.json.decode(it.body, type=Note)
    others = frozenset() if changed is None else msgspec.json.decode(changed.body, type=frozenset[str])
    ids = [each.id for each in (it, ending, changed) if each is not None]
    return Batch(name, note.marks, note.destination, it.due - _FOR_GOOD, ending is not None, others, ids)


def _age(engine: "Engine", batches: Sequence[Batch]) -> float:
    if not batches:
        return 0.0
    return max(0, engine.claim([], 1, 1_000).now - min(each.since for each in batches)) / 1000

"""Which messages of a queue are on their way to another one: a record in the queue, which the next run finds after a kill.

It is in a topic of its own. Each version of it is a message, written before the one before it is cancelled. As a message is
cancelled once, two runs never both go on from one version, and whoever finds its own gone has been taken over from.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from bide.adopt.queue.moved_message import fingerprint
from bide.core.amounts import plural, span
from bide.core.when import MAX_DELAY_MS
from bide.engines.base import Finding, NewMessage, Ref, Stored
from bide.errors import BideError
from bide.queue.schedules.records import MOVING
from bide.types import CancelResult

if TYPE_CHECKING:
    from bide.engines.sync import Engine

_FOR_GOOD = MAX_DELAY_MS
_MOST = 100  # versions that are read; there are two after a kill, and one more for each run that begins at that moment
_TRIES = 10
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


class Batch(msgspec.Struct, frozen=True):
    """Messages that are moved together."""

    name: str  # of this batch alone
    marks: Sequence[Mark]
    since: int  # by the clock of the queue, in ms: it began no sooner
    ending: bool = False  # the other queue has all of them, and they are being cancelled here

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.marks]

    def named(self, mark: Mark) -> str:
        """The name of a message in this batch: what is sent again after a kill is told by it."""
        return f"{self.name}/{mark.id}/{mark.print}"


class Record(msgspec.Struct, frozen=True):
    """What is on its way, and who moves it."""

    run: str  # a name of the run that wrote it
    destination: str
    batches: Sequence[Batch] = ()


class OnTheWay(NamedTuple):
    """What an earlier run has begun to move and perhaps not finished."""

    batches: Sequence[Batch] = ()
    age: float = 0.0  # seconds since the first of them began, by the clock of the queue


class OtherMove(BideError):
    """Another move from this queue is under way, or was stopped on its way."""


class Log:
    """The record in one queue. There is one, so that two moves from a queue meet there."""

    def __init__(self, engine: "Engine", destination: str) -> None:
        self._engine = engine
        self._destination = destination
        self._run = uuid4().hex
        self._version = ""  # the id of the message that this run has written last
        self.now: int = 0  # of the queue, when it was last written

    def read(self) -> OnTheWay:
        """What an earlier run has left. Nothing is changed. Raises OtherMove if it went to another place."""
        return self._way(_records(self._engine).values())

    def _way(self, records: Collection[Record]) -> OnTheWay:
        for each in records:
            if each.batches and each.destination != self._destination:
                raise OtherMove(
                    f"A move to {each.destination} was stopped on its way, or goes on. First let it end: run the same command "
                    "again, with the same URL."
                )
        batches = _united(records)
        return OnTheWay(batches, _age(self._engine, batches))

    def begin(self) -> OnTheWay:
        """Take over what an earlier run to the same place has left. Raises OtherMove for one to another place."""
        for _ in range(_TRIES):
            found = _records(self._engine)
            way = self._way(found.values())
            if self._version and list(found) == [self._version]:
                return way
            before, self._version = self._version, self._put(way.batches)
            ours = self._cancelled(found)
            if len(ours) < len(found):  # another run has written meanwhile, so what it had is not ours
                wrong, self._version = self._version, self._put(_united([found[id] for id in ours]))
                self._cancelled([wrong])
            if before and before not in ours:
                break
        raise OtherMove("Another run of this command begins at the same moment. Run one of them.")

    def write(self, batches: Sequence[Batch]) -> None:
        """Note all that is on its way. Raises OtherMove if another run has taken over."""
        before, self._version = self._version, self._put(batches)
        if not self._cancelled([before]):
            self._cancelled([self._version])
            raise OtherMove(TAKEN_OVER)

    def is_ours(self) -> bool:
        """Whether no other run has taken over."""
        return self._engine.get([Ref(id=self._version)]) != [None]

    def is_in(self, engine: "Engine") -> bool:
        """Whether that engine has this run's record, too: then it is the same queue."""
        return any(each.run == self._run for each in _records(engine).values())

    def end(self) -> None:
        """Nothing is on its way."""
        self._cancelled([self._version])

    def _put(self, batches: Sequence[Batch]) -> str:
        body = msgspec.json.encode(Record(self._run, self._destination, batches))
        [sent] = self._engine.put([NewMessage(MOVING, body, delay=_FOR_GOOD)])
        self.now = sent.due - _FOR_GOOD
        return sent.id

    def _cancelled(self, ids: Iterable[str]) -> list[str]:
        """Those that were there until now."""
        asked = list(filter(None, ids))
        ended = self._engine.cancel([Ref(id=id) for id in asked]) if asked else []
        return [id for id, end in zip(asked, ended, strict=True) if end is CancelResult.CANCELLED]


def stopped_moves(engine: "Engine") -> list[Finding]:
    """What an operator should know of messages that are on their way, perhaps since a run that was killed."""
    records = _records(engine)
    batches = _united(records.values())
    if not batches:
        return []
    count = sum(len(each.marks) for each in batches)
    where = ", ".join(sorted({each.destination for each in records.values() if each.batches}))
    value = f"up to {plural(count, 'message')} since {span(_age(engine, batches)) or '0s'}, to {where}"
    return [Finding("moving", value, "warn", ADVICE)]


def _records(engine: "Engine") -> dict[str, Record]:
    found = engine.scan(MOVING, "scheduled", _MOST).messages
    return {each.id: msgspec.json.decode(each.body, type=Record) for each in found}


def _united(records: Collection[Record]) -> list[Batch]:
    """All batches, each once. One that is ending in one version had ended at least as far as that."""
    batches: dict[str, Batch] = {}
    for each in (batch for record in records for batch in record.batches):
        known = batches.get(each.name, each)
        batches[each.name] = replace(each, ending=each.ending or known.ending)
    return list(batches.values())


def _age(engine: "Engine", batches: Sequence[Batch]) -> float:
    if not batches:
        return 0.0
    return max(0, engine.claim([], 1, 1_000).now - min(each.since for each in batches)) / 1000

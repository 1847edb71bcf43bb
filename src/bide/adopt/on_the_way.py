"""Which messages of a queue are on their way to another one: a record in the queue, which the next run finds after a kill.

It is a message of a topic of its own, which names the run and where the messages go. It is written before anything is changed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import msgspec

from bide.core.amounts import plural, span
from bide.core.when import MAX_DELAY_MS
from bide.engines.base import Finding, NewMessage, Ref
from bide.errors import BideError
from bide.queue.schedules.records import MOVING

if TYPE_CHECKING:
    from bide.engines.sync import Engine

_FOR_GOOD = MAX_DELAY_MS
_REF = Ref(topic=MOVING, key="move")
ADVICE = (
    "If no `bide move` is running, one was stopped on its way, and no worker gets these messages. Run the same command again: "
    "it goes on with them."
)


class Batch(msgspec.Struct, frozen=True):
    """Messages that are moved together."""

    name: str  # of this batch alone: what is sent again after a kill is told by it
    ids: Sequence[str]
    since: int  # by the clock of the queue, in ms: it began no sooner


class Record(msgspec.Struct, frozen=True):
    """What is on its way, and who moves it."""

    run: str  # a name of the run that wrote it last
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
        self.now: int = 0  # of the queue, when it was last written

    def read(self) -> OnTheWay:
        """What an earlier run has left. Nothing is changed. Raises OtherMove if it went to another place."""
        record = _record(self._engine)
        if record is None or not record.batches:
            return OnTheWay()
        if record.destination != self._destination:
            raise OtherMove(
                f"A move to {record.destination} was stopped on its way, or goes on. First let it end: run the same command "
                "again, with the same URL."
            )
        return OnTheWay(record.batches, _age(self._engine, record))

    def begin(self) -> None:
        """Take over what an earlier run to the same place has left. Raises OtherMove for one to another place."""
        self._put(self.read().batches)

    def write(self, batches: Sequence[Batch]) -> None:
        """Note all that is on its way. Raises OtherMove if another run has taken over."""
        if not self.is_ours():
            raise OtherMove("Another run of this command has taken over. It goes on with what this one had; leave it alone.")
        self._put(batches)

    def is_ours(self) -> bool:
        """Whether no other run has taken over."""
        record = _record(self._engine)
        return record is not None and record.run == self._run

    def is_in(self, engine: "Engine") -> bool:
        """Whether that engine has this record, too: then it is the same queue."""
        record = _record(engine)
        return record is not None and record.run == self._run

    def end(self) -> None:
        """Nothing is on its way."""
        if self.is_ours():
            self._engine.cancel([_REF])

    def _put(self, batches: Sequence[Batch]) -> None:
        body = msgspec.json.encode(Record(self._run, self._destination, batches))
        new = NewMessage(MOVING, body, delay=_FOR_GOOD, key=_REF.key, if_exists="replace")
        [sent] = self._engine.put([new])
        self.now = sent.due - _FOR_GOOD


def stopped_moves(engine: "Engine") -> list[Finding]:
    """What an operator should know of messages that are on their way, perhaps since a run that was killed."""
    record = _record(engine)
    if record is None or not record.batches:
        return []
    count = sum(len(each.ids) for each in record.batches)
    value = f"up to {plural(count, 'message')} since {span(_age(engine, record)) or '0s'}, to {record.destination}"
    return [Finding("moving", value, "warn", ADVICE)]


def _record(engine: "Engine") -> Record | None:
    [stored] = engine.get([_REF])
    return None if stored is None else msgspec.json.decode(stored.body, type=Record)


def _age(engine: "Engine", record: Record) -> float:
    return max(0, engine.claim([], 1, 1_000).now - min(each.since for each in record.batches)) / 1000

"""Which messages of a queue are on their way to another one: a record in the queue, which the next run finds after a kill.

It is a message of a topic of its own, under a key that names where they go. It is written before anything is changed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bide.core.amounts import span
from bide.core.when import MAX_DELAY_MS
from bide.engines.base import Finding, NewMessage, Ref
from bide.queue.schedules.records import MOVING

if TYPE_CHECKING:
    from bide.engines.sync import Engine

_FOR_GOOD = MAX_DELAY_MS
_LONGEST_KEY = 200
ADVICE = (
    "If no `bide move` is running, one was stopped on its way, and no worker gets these messages. Run the same command again: "
    "it goes on with them."
)


class Batch(msgspec.Struct, frozen=True):
    """Messages that are moved together."""

    name: str  # of this batch alone: what is sent again after a kill is told by it
    ids: Sequence[str]


class OnTheWay(NamedTuple):
    """What an earlier run has begun to move and perhaps not finished."""

    batches: Sequence[Batch] = ()
    age: float = 0.0  # seconds since the last of them began, by the clock of the queue


class Log:
    """The record in one queue, of one destination."""

    def __init__(self, engine: "Engine", destination: str) -> None:
        self._engine = engine
        self._ref = Ref(topic=MOVING, key=destination[-_LONGEST_KEY:])

    def write(self, batches: Sequence[Batch]) -> None:
        """Note all that is on its way."""
        body = msgspec.json.encode(batches)
        self._engine.put([NewMessage(MOVING, body, delay=_FOR_GOOD, key=self._ref.key, if_exists="replace")])

    def read(self) -> OnTheWay:
        [stored] = self._engine.get([self._ref])
        if stored is None:
            return OnTheWay()
        batches = msgspec.json.decode(stored.body, type=list[Batch])
        now = self._engine.claim([], 1, 1_000).now
        return OnTheWay(batches, max(0, now - (stored.due - _FOR_GOOD)) / 1000)

    def end(self) -> None:
        """Nothing is on its way."""
        self._engine.cancel([self._ref])


def stopped_moves(engine: "Engine") -> list[Finding]:
    """What an operator should know of messages that are on their way, perhaps since a run that was killed."""
    found = []
    for stored in engine.scan(MOVING, None, 100).messages:
        count = sum(len(each.ids) for each in msgspec.json.decode(stored.body, type=list[Batch]))
        seconds = max(0, engine.claim([], 1, 1_000).now - (stored.due - _FOR_GOOD)) / 1000
        value = f"up to {count:,} messages since {span(seconds) or '0s'}, to {stored.key}"
        found.append(Finding("moving", value, "warn", ADVICE))
    return found

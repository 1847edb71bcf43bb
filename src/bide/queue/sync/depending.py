# Generated from ../aio/depending.py by tools/unasync.py; change that file instead.
"""Messages that wait for others: they are due at their deadline, and called sooner when the last of the others is done."""

from collections.abc import Sequence

from bide.engines.base import MAX_BATCH, Move, Ref
from bide.engines.results import Arrival, Dependent, Follow
from bide.engines.sync import Engine
from bide.queue.depending import check_known
from bide.types import Sent


class Dependents:
    """Each step may be repeated. If whoever calls dies in between, the message is delivered at its deadline."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def check(self, on: Sequence[str]) -> None:
        """Refuse to wait for what nobody would tell of."""
        check_known(on, self._engine.results.read(on))

    def wait(self, sent: Sent, on: Sequence[str]) -> None:
        """Have a message called that was sent. What was done meanwhile is told by `follow`, and the rest by who does it."""
        results = self._engine.results
        results.depend([Dependent(sent.id, tuple(on), sent.due)])
        told = results.follow([Follow(sent.id, each, sent.due) for each in on])
        self.arrive([Arrival(sent.id, each) for each, done in zip(on, told, strict=True) if done])

    def left(self, on: Sequence[str], connection: object) -> list[str]:
        """Of these, those that are not done before the caller's transaction has ended."""
        told = self._engine.results.follow([Follow("", each, 0) for each in on], connection=connection)
        check_known(on, told)
        return [each for each, done in zip(on, told, strict=True) if not done]

    def join(self, sent: Sent, left: Sequence[str], connection: object) -> None:
        """Have a message called that was sent in the caller's transaction."""
        self._engine.results.depend([Dependent(sent.id, tuple(left), sent.due)], connection=connection)

    def arrive(self, arrivals: Sequence[Arrival]) -> None:
        """Call those that have nothing left to wait for. They are forgotten when they were called, and not before."""
        for first in range(0, len(arrivals), MAX_BATCH):
            some = arrivals[first : first + MAX_BATCH]
            told = self._engine.results.arrive(some)
            ready = list(dict.fromkeys(each.dependent for each, is_ready in zip(some, told, strict=True) if is_ready))
            if ready:
                self._engine.reschedule([Move(Ref(each)) for each in ready])
                self._engine.results.forget(ready)

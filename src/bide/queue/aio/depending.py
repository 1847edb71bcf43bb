# unasync: ../sync/depending.py
"""Messages that wait for others: they are due at their deadline, and called sooner when the last of the others is done."""

from collections.abc import Sequence

from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Move, Ref
from bide.engines.results import Arrival, Dependent, Follow
from bide.queue.depending import check_known
from bide.types import Sent


class AsyncDependents:
    """Each step may be repeated. If whoever calls dies in between, the message is delivered at its deadline."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def check(self, on: Sequence[str]) -> None:
        """Refuse to wait for what nobody would tell of."""
        check_known(on, await self._engine.results.read(on))

    async def wait(self, sent: Sent, on: Sequence[str]) -> None:
        """Have a message called that was sent. What was done meanwhile is told by `follow`, and the rest by who does it."""
        results = self._engine.results
        await results.depend([Dependent(sent.id, tuple(on), sent.due)])
        told = await results.follow([Follow(sent.id, each, sent.due) for each in on])
        await self.arrive([Arrival(sent.id, each) for each, done in zip(on, told, strict=True) if done])

    async def left(self, on: Sequence[str], connection: object) -> list[str]:
        """Of these, those that are not done before the caller's transaction has ended."""
        told = await self._engine.results.follow([Follow("", each, 0) for each in on], connection=connection)
        check_known(on, told)
        return [each for each, done in zip(on, told, strict=True) if not done]

    async def join(self, sent: Sent, left: Sequence[str], connection: object) -> None:
        """Have a message called that was sent in the caller's transaction."""
        await self._engine.results.depend([Dependent(sent.id, tuple(left), sent.due)], connection=connection)

    async def arrive(self, arrivals: Sequence[Arrival]) -> None:
        """Call those that have nothing left to wait for. They are forgotten when they were called, and not before."""
        for first in range(0, len(arrivals), MAX_BATCH):
            some = arrivals[first : first + MAX_BATCH]
            told = await self._engine.results.arrive(some)
            ready = list(dict.fromkeys(each.dependent for each, is_ready in zip(some, told, strict=True) if is_ready))
            if ready:
                await self._engine.reschedule([Move(Ref(each)) for each in ready])
                await self._engine.results.forget(ready)

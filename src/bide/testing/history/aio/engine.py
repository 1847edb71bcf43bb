# unasync: ../sync/engine.py
"""An engine that writes down the deliveries that it hands out, and what becomes of them."""

from collections.abc import Sequence

from bide.engines.aio import AsyncEngine
from bide.engines.base import Claim, End, Ended, Hold
from bide.engines.guard.aio import AsyncGuard
from bide.testing.history.writing import History


class AsyncRecordedEngine(AsyncGuard):
    def __init__(self, engine: AsyncEngine, history: History) -> None:
        super().__init__(engine, "")
        self._history = history

    async def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        if not topics:  # what a claim of that name holds already is asked for again
            claim = await super().claim(topics, limit, lease, request=request, now=now)
            self._history.claimed_again(claim)
            return claim
        with self._history.claiming(topics, limit=limit, lease=lease) as op:
            return op.ok(await super().claim(topics, limit, lease, request=request, now=now))

    async def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        with self._history.settling(ends) as op:
            return op.ok(await super().settle(ends, connection=connection, now=now))

    async def extend(self, holds: Sequence[Hold], lease: int, *, now: int | None = None) -> list[bool]:
        with self._history.extending_many(holds, lease=lease) as op:
            return op.ok(await super().extend(holds, lease, now=now))

"""A sync engine in async clothes, so that one suite tests both colours."""

import asyncio
from collections.abc import Sequence

from bide.engines.aio import AsyncEngine
from bide.engines.base import (
    Capabilities,
    Claim,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Ref,
    Scanned,
    Stored,
    Swept,
    Tended,
    Window,
)
from bide.engines.sync import Engine
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats


class Recoloured(AsyncEngine):
    """Every verb runs in a thread: verbs that are awaited together then meet each other as threads do."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.capabilities: Capabilities = engine.capabilities

    async def open(self) -> None:
        await asyncio.to_thread(self.engine.open)

    async def close(self) -> None:
        await asyncio.to_thread(self.engine.close)

    async def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, now: int | None = None
    ) -> list[Sent]:
        return await asyncio.to_thread(self.engine.put, messages, connection=connection, now=now)

    async def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        return await asyncio.to_thread(self.engine.claim, topics, limit, lease, request=request, now=now)

    async def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        return await asyncio.to_thread(self.engine.settle, ends, connection=connection, now=now)

    async def extend(self, holds: Sequence[Hold], lease: int, *, now: int | None = None) -> list[bool]:
        return await asyncio.to_thread(self.engine.extend, holds, lease, now=now)

    async def cancel(
        self, refs: Sequence[Ref], *, connection: object | None = None, now: int | None = None
    ) -> list[CancelResult]:
        return await asyncio.to_thread(self.engine.cancel, refs, connection=connection, now=now)

    async def reschedule(
        self, moves: Sequence[Move], *, connection: object | None = None, now: int | None = None
    ) -> list[RescheduleResult]:
        return await asyncio.to_thread(self.engine.reschedule, moves, connection=connection, now=now)

    async def tend(self, budget: int = 1_000, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        return await asyncio.to_thread(self.engine.tend, budget, ended_by=ended_by, now=now)

    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        await asyncio.to_thread(self.engine.wait, topics, timeout)

    async def get(self, refs: Sequence[Ref], *, now: int | None = None) -> list[Stored | None]:
        return await asyncio.to_thread(self.engine.get, refs, now=now)

    async def scan(
        self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None
    ) -> Scanned:
        return await asyncio.to_thread(self.engine.scan, topic, state, limit, after, now=now)

    async def stats(self, topic: str | None = None, *, window: Window | None = None, now: int | None = None) -> Stats:
        return await asyncio.to_thread(self.engine.stats, topic, window=window, now=now)

    async def requeue(
        self, topic: str, ids: Sequence[str] | None = None, *, delay: int = 0, limit: int = 1_000, now: int | None = None
    ) -> Swept:
        return await asyncio.to_thread(self.engine.requeue, topic, ids, delay=delay, limit=limit, now=now)

    async def purge(self, topic: str, state: State, *, limit: int = 1_000, now: int | None = None) -> Swept:
        return await asyncio.to_thread(self.engine.purge, topic, state, limit=limit, now=now)

    async def pause(self, topic: str, paused: bool) -> None:
        await asyncio.to_thread(self.engine.pause, topic, paused)

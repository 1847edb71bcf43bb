# unasync: sync.py
"""An engine whose calls are watched, verb by verb."""

from collections.abc import Sequence

from bide.engines.aio import AsyncEngine
from bide.engines.base import (
    MAX_BATCH,
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
from bide.queue.hooks import Listeners
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats


class AsyncObserved(AsyncEngine):
    def __init__(self, engine: AsyncEngine, watch: Listeners) -> None:
        self.capabilities: Capabilities = engine.capabilities
        self._engine = engine
        self._watch = watch

    async def open(self) -> None:
        with self._watch.call("open"):
            await self._engine.open()

    async def close(self) -> None:
        with self._watch.call("close"):
            await self._engine.close()

    def _abandon(self) -> None:
        self._engine._abandon()

    async def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, now: int | None = None
    ) -> list[Sent]:
        with self._watch.call("put", sorted({each.topic for each in messages}), messages) as call:
            call.answer = answer = await self._engine.put(messages, connection=connection, now=now)
        return answer

    async def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        with self._watch.call("claim", topics) as call:
            call.answer = answer = await self._engine.claim(topics, limit, lease, request=request, now=now)
        return answer

    async def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        with self._watch.call("settle", sorted({each.topic for each in ends}), ends) as call:
            call.answer = answer = await self._engine.settle(ends, connection=connection, now=now)
        return answer

    async def extend(self, holds: Sequence[Hold], lease: int, *, now: int | None = None) -> list[bool]:
        with self._watch.call("extend", sorted({each.topic for each in holds}), holds) as call:
            call.answer = answer = await self._engine.extend(holds, lease, now=now)
        return answer

    async def cancel(
        self, refs: Sequence[Ref], *, connection: object | None = None, now: int | None = None
    ) -> list[CancelResult]:
        with self._watch.call("cancel", (), refs) as call:
            call.answer = answer = await self._engine.cancel(refs, connection=connection, now=now)
        return answer

    async def reschedule(
        self, moves: Sequence[Move], *, connection: object | None = None, now: int | None = None
    ) -> list[RescheduleResult]:
        with self._watch.call("reschedule", (), moves) as call:
            call.answer = answer = await self._engine.reschedule(moves, connection=connection, now=now)
        return answer

    async def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        with self._watch.call("tend") as call:
            call.answer = answer = await self._engine.tend(budget, ended_by=ended_by, now=now)
        return answer

    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        with self._watch.call("wait", topics):
            await self._engine.wait(topics, timeout)

    async def get(self, refs: Sequence[Ref], *, now: int | None = None) -> list[Stored | None]:
        with self._watch.call("get", (), refs) as call:
            call.answer = answer = await self._engine.get(refs, now=now)
        return answer

    async def scan(
        self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None
    ) -> Scanned:
        with self._watch.call("scan", [topic]) as call:
            call.answer = answer = await self._engine.scan(topic, state, limit, after, now=now)
        return answer

    async def stats(self, topic: str | None = None, *, window: Window | None = None, now: int | None = None) -> Stats:
        with self._watch.call("stats", () if topic is None else [topic]) as call:
            call.answer = answer = await self._engine.stats(topic, window=window, now=now)
        return answer

    async def requeue(
        self, topic: str, ids: Sequence[str] | None = None, *, delay: int = 0, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        with self._watch.call("requeue", [topic]) as call:
            call.answer = answer = await self._engine.requeue(topic, ids, delay=delay, limit=limit, now=now)
        return answer

    async def purge(self, topic: str, state: State, *, limit: int = MAX_BATCH, now: int | None = None) -> Swept:
        with self._watch.call("purge", [topic]) as call:
            call.answer = answer = await self._engine.purge(topic, state, limit=limit, now=now)
        return answer

    async def pause(self, topic: str, paused: bool) -> None:
        with self._watch.call("pause", [topic]):
            await self._engine.pause(topic, paused)

# unasync: sync.py
"""The SQLite engine: each verb is a function that gets its turn in a transaction, or looks without one."""

from collections.abc import Callable, Sequence
from typing import TypeVar

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
from bide.engines.sleepers import Sleeper
from bide.engines.sqlite import change, deliver, look, put, tend
from bide.engines.sqlite.desk import AsyncDesk
from bide.engines.sqlite.turn import Space, Turn
from bide.errors import Unavailable
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats
from bide.wakeable import AsyncSignal

T = TypeVar("T")


class AsyncSqlite(AsyncEngine):
    def __init__(self, path: str, space: Space, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self._path = path
        self._space = space
        self._desk: AsyncDesk | None = None
        self._closed = False
        self._asleep: set[AsyncSignal] = set()

    async def open(self) -> None:
        if self._desk is None:
            self._desk = await AsyncDesk.enter(self._path)
            self._space.clock.on_jump(self._desk.place.wake_all)

    async def close(self) -> None:
        self._closed = True
        for signal in list(self._asleep):
            signal.set()
        desk, self._desk = self._desk, None
        if desk is not None:
            await desk.leave()

    def _abandon(self) -> None:
        self._closed = True
        desk, self._desk = self._desk, None
        if desk is not None:
            desk.abandon()

    async def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, now: int | None = None
    ) -> list[Sent]:
        return await self._write(lambda turn: put.put(turn, self._space, messages, now), connection=connection)

    async def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        return await self._write(
            lambda turn: deliver.claim(turn, self._space, topics, limit, lease, request, now), lasting=False
        )

    async def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        return await self._write(lambda turn: deliver.settle(turn, self._space, ends, now), connection=connection)

    async def extend(self, holds: Sequence[Hold], lease: int, *, now: int | None = None) -> list[bool]:
        return await self._write(lambda turn: deliver.extend(turn, self._space, holds, lease, now), lasting=False)

    async def cancel(
        self, refs: Sequence[Ref], *, connection: object | None = None, now: int | None = None
    ) -> list[CancelResult]:
        return await self._write(lambda turn: change.cancel(turn, self._space, refs, now), connection=connection)

    async def reschedule(
        self, moves: Sequence[Move], *, connection: object | None = None, now: int | None = None
    ) -> list[RescheduleResult]:
        return await self._write(lambda turn: change.reschedule(turn, self._space, moves, now), connection=connection)

    async def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        return await self._write(lambda turn: tend.tend(turn, self._space, budget, now, ended_by))

    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        signal = AsyncSignal()
        self._asleep.add(signal)  # before the look, or a close in between would not see it
        try:
            sleeper = None if self._closed else self._opened().place.sleep(signal, self._space, topics, timeout)
            if sleeper is not None:
                await self._sleep(sleeper, signal, timeout)
        finally:
            self._asleep.discard(signal)

    async def _sleep(self, sleeper: Sleeper[tuple[str, str]], signal: AsyncSignal, timeout: float) -> None:
        place = self._opened().place
        disturbed = True
        try:
            await signal.wait(timeout)
            disturbed = False
        finally:
            place.rise(sleeper, disturbed=disturbed)

    async def get(self, refs: Sequence[Ref], *, now: int | None = None) -> list[Stored | None]:
        return await self._opened().read(lambda turn: look.get(turn, self._space, refs, now))

    async def scan(
        self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None
    ) -> Scanned:
        return await self._opened().read(lambda turn: look.scan(turn, self._space, topic, state, limit, after, now))

    async def stats(self, topic: str | None = None, *, window: Window | None = None, now: int | None = None) -> Stats:
        return await self._opened().read(lambda turn: look.stats(turn, self._space, topic, window, now))

    async def requeue(
        self, topic: str, ids: Sequence[str] | None = None, *, delay: int = 0, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        return await self._write(lambda turn: change.requeue(turn, self._space, topic, ids, delay, limit, now))

    async def purge(self, topic: str, state: State, *, limit: int = MAX_BATCH, now: int | None = None) -> Swept:
        return await self._write(lambda turn: change.purge(turn, self._space, topic, state, limit, now))

    async def pause(self, topic: str, paused: bool) -> None:
        await self._write(lambda turn: change.pause(turn, self._space, topic, paused))

    async def _write(self, work: Callable[[Turn], T], *, lasting: bool = True, connection: object | None = None) -> T:
        desk = self._opened()
        if connection is not None:
            return await desk.join(connection, work)
        return await desk.write(work, lasting=lasting)

    def _opened(self) -> AsyncDesk:
        if self._desk is None:
            raise Unavailable("The SQLite engine is not open: open() it first.")
        return self._desk

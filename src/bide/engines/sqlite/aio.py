# unasync: sync/__init__.py
"""The SQLite engine: each verb is a function that is run in a transaction, by the writer or a reader."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from bide.core.times import Dues
from bide.engines.aio import AsyncEngine
from bide.engines.base import (
    MAX_BATCH,
    Capabilities,
    Claim,
    Condition,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Ref,
    Scanned,
    Seen,
    Stored,
    Swept,
    Tended,
    Window,
)
from bide.engines.callers import Sleeper
from bide.engines.gates import Entered, Entry, Held, Left, Spend, Spent
from bide.engines.gates.aio import AsyncGates
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result
from bide.engines.results.aio import AsyncResults
from bide.engines.sqlite import change, deliver, gates, look, results
from bide.engines.sqlite.executor import AsyncExecutor
from bide.engines.sqlite.transaction import FileNamespace, Transaction
from bide.errors import Unavailable
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats
from bide.wakeable import AsyncSignal

T = TypeVar("T")
REBOOT_MS = 30_000  # a machine that went down is not back sooner


class AsyncSqlite(AsyncEngine):
    def __init__(self, path: str, namespace: FileNamespace, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.gates: AsyncGates = AsyncSqliteGates(self, namespace)
        self.results: AsyncResults = AsyncSqliteResults(self, namespace)
        self._path = path
        self._namespace = namespace
        self._executor: AsyncExecutor | None = None
        self._ahead = 0
        self._closed = False
        self._asleep: set[AsyncSignal] = set()

    async def open(self) -> None:
        if self._executor is None:
            self._executor = await AsyncExecutor.opened(self._path)
            self._namespace.clock.on_jump(self._executor.database.wake_all)

    async def close(self) -> None:
        self._closed = True
        for signal in list(self._asleep):
            signal.set()
        executor, self._executor = self._executor, None
        if executor is not None:
            await executor.close()

    def abandon(self) -> None:
        self._closed = True
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.abandon()

    def ahead(self, ref: Ref) -> int:
        return self._ahead

    async def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        return await self._write(lambda tx: change.put(tx, self._namespace, messages, now), connection=connection)

    async def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        def claim(tx: Transaction) -> Claim:
            claimed = deliver.claim(tx, self._namespace, topics, limit, lease, request, now)
            self._ahead = max(0, claimed.now - tx.times.wall)
            return claimed

        return await self._write(claim, durable=False)

    async def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        return await self._write(lambda tx: deliver.settle(tx, self._namespace, ends, now), connection=connection)

    async def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        return await self._write(lambda tx: deliver.extend(tx, self._namespace, holds, lease, now), durable=False)

    async def cancel(
        self,
        refs: Sequence[Ref],
        *,
        seen: Sequence[Seen] | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[CancelResult]:
        def cancel(tx: Transaction) -> list[CancelResult]:
            if connection is not None:
                deliver.take_back(tx, self._namespace, refs, now)
            return change.cancel(tx, self._namespace, refs, seen, now)

        return await self._write(cancel, connection=connection)

    async def reschedule(
        self,
        moves: Sequence[Move],
        *,
        condition: Condition | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[RescheduleResult]:
        def reschedule(tx: Transaction) -> list[RescheduleResult]:
            if connection is not None:
                deliver.take_back(tx, self._namespace, [move.ref for move in moves], now)
            return change.reschedule(tx, self._namespace, moves, condition, now)

        return await self._write(reschedule, connection=connection)

    async def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        return await self._write(lambda tx: deliver.tend(tx, self._namespace, budget, now, ended_by))

    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        signal = AsyncSignal()
        self._asleep.add(signal)  # before the look, or a close in between would not see it
        try:
            sleeper = None if self._closed else self._opened().database.sleep(signal, self._namespace, topics, timeout)
            if sleeper is not None:
                await self._sleep(sleeper, signal, timeout)
        finally:
            self._asleep.discard(signal)

    async def _sleep(self, sleeper: Sleeper[tuple[str, str]], signal: AsyncSignal, timeout: float) -> None:
        database = self._opened().database
        cancelled = True
        try:
            await signal.wait(timeout)
            cancelled = False
        finally:
            database.stop_sleeping(sleeper, cancelled=cancelled)

    async def get(self, refs: Sequence[Ref], *, brief: bool = False, now: int | None = None) -> list[Stored | None]:
        return await self._opened().read(lambda tx: look.get(tx, self._namespace, refs, now))

    async def scan(
        self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None
    ) -> Scanned:
        return await self._opened().read(lambda tx: look.scan(tx, self._namespace, topic, state, limit, after, now))

    async def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        return await self._opened().read(lambda tx: look.stats(tx, self._namespace, topic, but, window, now))

    async def requeue(
        self,
        topic: str,
        ids: Sequence[str] | None = None,
        *,
        delay: int = 0,
        over: int = 0,
        limit: int = MAX_BATCH,
        now: int | None = None,
    ) -> Swept:
        dues = Dues(delay, over, limit)
        return await self._write(lambda tx: change.requeue(tx, self._namespace, topic, ids, dues, now))

    async def purge(
        self, topic: str, state: State, ids: Sequence[str] | None = None, *, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        return await self._write(lambda tx: change.purge(tx, self._namespace, topic, state, ids, limit, now))

    async def pause(self, topic: str, paused: bool) -> None:
        await self._write(lambda tx: change.pause(tx, self._namespace, topic, paused))

    async def _write(self, work: Callable[[Transaction], T], *, durable: bool = True, connection: object | None = None) -> T:
        executor = self._opened()
        if connection is not None:
            return await executor.join(connection, work)
        return await executor.write(work, durable=durable)

    def _opened(self) -> AsyncExecutor:
        if self._executor is None:
            raise Unavailable("The SQLite engine is not open: open() it first.")
        return self._executor


class AsyncSqliteGates(AsyncGates):
    """Commits need not wait for the disk: a machine that goes down takes all holders with it. Only a rate may count longer."""

    def __init__(self, engine: AsyncSqlite, namespace: FileNamespace) -> None:
        self._engine = engine
        self._namespace = namespace

    async def enter(self, entries: Sequence[Entry], *, now: int | None = None) -> list[Entered]:
        return await self._engine._write(lambda tx: gates.enter(tx, self._namespace, entries, now), durable=False)

    async def keep(self, held: Sequence[Held], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        return await self._engine._write(lambda tx: gates.keep(tx, self._namespace, held, lease, now), durable=False)

    async def leave(self, held: Sequence[Held], *, now: int | None = None) -> Left:
        return await self._engine._write(lambda tx: gates.leave(tx, self._namespace, held, now), durable=False)

    async def spend(self, spends: Sequence[Spend], *, now: int | None = None) -> list[Spent]:
        lasting = any(each.window > REBOOT_MS for each in spends)
        return await self._engine._write(lambda tx: gates.spend(tx, self._namespace, spends, now), durable=lasting)


class AsyncSqliteResults(AsyncResults):
    def __init__(self, engine: AsyncSqlite, namespace: FileNamespace) -> None:
        self._engine = engine
        self._namespace = namespace

    async def expect(
        self, expected: Sequence[Expected | Dependent], *, connection: object | None = None, now: int | None = None
    ) -> None:
        await self._engine._write(lambda tx: results.expect(tx, self._namespace, expected, now), connection=connection)

    async def fulfil(self, kept: Sequence[Kept], *, now: int | None = None) -> list[list[str]]:
        return await self._engine._write(lambda tx: results.fulfil(tx, self._namespace, kept, now))

    async def read(self, ids: Sequence[str], *, now: int | None = None) -> list[Result | None]:
        return await self._engine._opened().read(lambda tx: results.read(tx, self._namespace, ids, now))

    async def follow(
        self, follows: Sequence[Follow], *, connection: object | None = None, now: int | None = None
    ) -> list[bool | None]:
        return await self._engine._write(lambda tx: results.follow(tx, self._namespace, follows, now), connection=connection)

    async def arrive(self, arrivals: Sequence[Arrival], *, now: int | None = None) -> list[bool]:
        lasting = any(each.on is not None for each in arrivals)
        return await self._engine._write(lambda tx: results.arrive(tx, self._namespace, arrivals, now), durable=lasting)

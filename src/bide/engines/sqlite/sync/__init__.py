# Generated from ../aio.py by tools/unasync.py; change that file instead.
"""The SQLite engine: each verb is a function that is run in a transaction, by the writer or a reader."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from bide.core.times import Dues
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
from bide.engines.gates.sync import Gates
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result
from bide.engines.results.sync import Results
from bide.engines.sqlite import change, deliver, gates, look, results
from bide.engines.sqlite.executor import Executor
from bide.engines.sqlite.transaction import FileNamespace, Transaction
from bide.engines.sync import Engine
from bide.errors import Unavailable
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats
from bide.wakeable import Signal

T = TypeVar("T")
REBOOT_MS = 30_000  # a machine that went down is not back sooner


class Sqlite(Engine):
    def __init__(self, path: str, namespace: FileNamespace, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.gates: Gates = SqliteGates(self, namespace)
        self.results: Results = SqliteResults(self, namespace)
        self._path = path
        self._namespace = namespace
        self._executor: Executor | None = None
        self._ahead = 0
        self._closed = False
        self._asleep: set[Signal] = set()

    def open(self) -> None:
        if self._executor is None:
            self._executor = Executor.opened(self._path)
            self._namespace.clock.on_jump(self._executor.database.wake_all)

    def close(self) -> None:
        self._closed = True
        for signal in list(self._asleep):
            signal.set()
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.close()

    def abandon(self) -> None:
        self._closed = True
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.abandon()

    def ahead(self, ref: Ref) -> int:
        return self._ahead

    def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        return self._write(lambda tx: change.put(tx, self._namespace, messages, now), connection=connection)

    def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        def claim(tx: Transaction) -> Claim:
            claimed = deliver.claim(tx, self._namespace, topics, limit, lease, request, now)
            self._ahead = max(0, claimed.now - tx.times.wall)
            return claimed

        return self._write(claim, durable=False)

    def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        return self._write(lambda tx: deliver.settle(tx, self._namespace, ends, now), connection=connection)

    def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        return self._write(lambda tx: deliver.extend(tx, self._namespace, holds, lease, now), durable=False)

    def cancel(
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

        return self._write(cancel, connection=connection)

    def reschedule(
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

        return self._write(reschedule, connection=connection)

    def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        return self._write(lambda tx: deliver.tend(tx, self._namespace, budget, now, ended_by))

    def wait(self, topics: Sequence[str], timeout: float) -> None:
        signal = Signal()
        self._asleep.add(signal)  # before the look, or a close in between would not see it
        try:
            sleeper = None if self._closed else self._opened().database.sleep(signal, self._namespace, topics, timeout)
            if sleeper is not None:
                self._sleep(sleeper, signal, timeout)
        finally:
            self._asleep.discard(signal)

    def _sleep(self, sleeper: Sleeper[tuple[str, str]], signal: Signal, timeout: float) -> None:
        database = self._opened().database
        cancelled = True
        try:
            signal.wait(timeout)
            cancelled = False
        finally:
            database.stop_sleeping(sleeper, cancelled=cancelled)

    def get(self, refs: Sequence[Ref], *, brief: bool = False, now: int | None = None) -> list[Stored | None]:
        return self._opened().read(lambda tx: look.get(tx, self._namespace, refs, now))

    def scan(self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None) -> Scanned:
        return self._opened().read(lambda tx: look.scan(tx, self._namespace, topic, state, limit, after, now))

    def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        return self._opened().read(lambda tx: look.stats(tx, self._namespace, topic, but, window, now))

    def requeue(
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
        return self._write(lambda tx: change.requeue(tx, self._namespace, topic, ids, dues, now))

    def purge(
        self, topic: str, state: State, ids: Sequence[str] | None = None, *, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        return self._write(lambda tx: change.purge(tx, self._namespace, topic, state, ids, limit, now))

    def pause(self, topic: str, paused: bool) -> None:
        self._write(lambda tx: change.pause(tx, self._namespace, topic, paused))

    def _write(self, work: Callable[[Transaction], T], *, durable: bool = True, connection: object | None = None) -> T:
        executor = self._opened()
        if connection is not None:
            return executor.join(connection, work)
        return executor.write(work, durable=durable)

    def _opened(self) -> Executor:
        if self._executor is None:
            raise Unavailable("The SQLite engine is not open: open() it first.")
        return self._executor


class SqliteGates(Gates):
    """Commits need not wait for the disk: a machine that goes down takes all holders with it. Only a rate may count longer."""

    def __init__(self, engine: Sqlite, namespace: FileNamespace) -> None:
        self._engine = engine
        self._namespace = namespace

    def enter(self, entries: Sequence[Entry], *, now: int | None = None) -> list[Entered]:
        return self._engine._write(lambda tx: gates.enter(tx, self._namespace, entries, now), durable=False)

    def keep(self, held: Sequence[Held], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        return self._engine._write(lambda tx: gates.keep(tx, self._namespace, held, lease, now), durable=False)

    def leave(self, held: Sequence[Held], *, now: int | None = None) -> Left:
        return self._engine._write(lambda tx: gates.leave(tx, self._namespace, held, now), durable=False)

    def spend(self, spends: Sequence[Spend], *, now: int | None = None) -> list[Spent]:
        lasting = any(each.window > REBOOT_MS for each in spends)
        return self._engine._write(lambda tx: gates.spend(tx, self._namespace, spends, now), durable=lasting)


class SqliteResults(Results):
    def __init__(self, engine: Sqlite, namespace: FileNamespace) -> None:
        self._engine = engine
        self._namespace = namespace

    def expect(
        self, expected: Sequence[Expected | Dependent], *, connection: object | None = None, now: int | None = None
    ) -> None:
        self._engine._write(lambda tx: results.expect(tx, self._namespace, expected, now), connection=connection)

    def fulfil(self, kept: Sequence[Kept], *, now: int | None = None) -> list[list[str]]:
        return self._engine._write(lambda tx: results.fulfil(tx, self._namespace, kept, now))

    def read(self, ids: Sequence[str], *, now: int | None = None) -> list[Result | None]:
        return self._engine._opened().read(lambda tx: results.read(tx, self._namespace, ids, now))

    def follow(
        self, follows: Sequence[Follow], *, connection: object | None = None, now: int | None = None
    ) -> list[bool | None]:
        return self._engine._write(lambda tx: results.follow(tx, self._namespace, follows, now), connection=connection)

    def arrive(self, arrivals: Sequence[Arrival], *, now: int | None = None) -> list[bool]:
        lasting = any(each.on is not None for each in arrivals)
        return self._engine._write(lambda tx: results.arrive(tx, self._namespace, arrivals, now), durable=lasting)

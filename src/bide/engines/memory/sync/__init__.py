# Generated from ../aio.py by tools/unasync.py; change that file instead.
"""The memory engine: each verb is a function on the store, which sync and async engines share."""

from collections.abc import Collection, Sequence

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
from bide.engines.memory import change, deliver, gates, look, results
from bide.engines.memory.store import Store
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result
from bide.engines.results.sync import Results
from bide.engines.sync import Engine
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats
from bide.wakeable import Signal


class MemoryGates(Gates):
    def __init__(self, store: Store) -> None:
        self._store = store

    def enter(self, entries: Sequence[Entry], *, now: int | None = None) -> list[Entered]:
        return gates.enter(self._store, entries, now)

    def keep(self, held: Sequence[Held], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        return gates.keep(self._store, held, lease, now)

    def leave(self, held: Sequence[Held], *, now: int | None = None) -> Left:
        return gates.leave(self._store, held, now)

    def spend(self, spends: Sequence[Spend], *, now: int | None = None) -> list[Spent]:
        return gates.spend(self._store, spends, now)


class MemoryResults(Results):
    def __init__(self, store: Store) -> None:
        self._store = store

    def expect(
        self, expected: Sequence[Expected | Dependent], *, connection: object | None = None, now: int | None = None
    ) -> None:
        results.expect(self._store, expected, now)

    def fulfil(self, kept: Sequence[Kept], *, now: int | None = None) -> list[list[str]]:
        return results.fulfil(self._store, kept, now)

    def read(self, ids: Sequence[str], *, now: int | None = None) -> list[Result | None]:
        return results.read(self._store, ids, now)

    def follow(
        self, follows: Sequence[Follow], *, connection: object | None = None, now: int | None = None
    ) -> list[bool | None]:
        return results.follow(self._store, follows, now)

    def arrive(self, arrivals: Sequence[Arrival], *, now: int | None = None) -> list[bool]:
        return results.arrive(self._store, arrivals, now)


class Memory(Engine):
    def __init__(self, store: Store, capabilities: Capabilities) -> None:
        self.capabilities: Capabilities = capabilities
        self.gates: Gates = MemoryGates(store)
        self.results: Results = MemoryResults(store)
        self._store = store
        self._ahead = 0
        self._closed = False
        self._asleep: set[Signal] = set()

    def open(self) -> None:
        """Nothing is needed."""

    def close(self) -> None:
        self._closed = True
        for signal in list(self._asleep):
            signal.set()

    def ahead(self, ref: Ref) -> int:
        return self._ahead

    def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        return change.put(self._store, messages, now)

    def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        claim = deliver.claim(self._store, topics, limit, lease, request, now)
        self._ahead = max(0, claim.now - self._store.wall)  # less than it was, if another thread has read the clock since
        return claim

    def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        return deliver.settle(self._store, ends, now)

    def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        return deliver.extend(self._store, holds, lease, now)

    def cancel(
        self,
        refs: Sequence[Ref],
        *,
        seen: Sequence[Seen] | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[CancelResult]:
        return change.cancel(self._store, refs, seen, now)

    def reschedule(
        self,
        moves: Sequence[Move],
        *,
        condition: Condition | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[RescheduleResult]:
        return change.reschedule(self._store, moves, condition, now)

    def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        return deliver.tend(self._store, budget, ended_by, now)

    def wait(self, topics: Sequence[str], timeout: float) -> None:
        signal = Signal()
        self._asleep.add(signal)  # before the look, or a close in between would not see it
        try:
            sleeper = None if self._closed else self._store.sleep(signal, topics)
            if sleeper is not None:
                self._sleep(sleeper, signal, timeout)
        finally:
            self._asleep.discard(signal)

    def _sleep(self, sleeper: Sleeper[str], signal: Signal, timeout: float) -> None:
        cancelled = True
        try:
            signal.wait(timeout)
            cancelled = False
        finally:
            self._store.stop_sleeping(sleeper, cancelled=cancelled)

    def get(self, refs: Sequence[Ref], *, brief: bool = False, now: int | None = None) -> list[Stored | None]:
        return look.get(self._store, refs, now)

    def scan(self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None) -> Scanned:
        return look.scan(self._store, topic, state, limit, after, now)

    def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        return look.stats(self._store, topic, but, window, now)

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
        return change.requeue(self._store, topic, ids, Dues(delay, over, limit), now)

    def purge(
        self, topic: str, state: State, ids: Sequence[str] | None = None, *, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        return change.purge(self._store, topic, state, ids, limit, now)

    def pause(self, topic: str, paused: bool) -> None:
        change.pause(self._store, topic, paused)

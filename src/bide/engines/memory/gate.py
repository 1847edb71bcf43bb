"""Gates and their rates: who is in, who is called, who waits, and what has begun."""

import heapq
from typing import Literal, NamedTuple, TypeAlias

from bide.core.rate import Spending
from bide.engines.gates import AGAIN_MS, TURN_MS

NEVER = 2**62

Key: TypeAlias = tuple[Literal["gate", "rate"], str]


class GatePlace(NamedTuple):
    token: str
    until: int


class Turn(NamedTuple):
    """Of a waiter that was called."""

    since: int  # when it began to wait
    until: int
    again: int  # when it is to be named again


class MemoryGate:
    def __init__(self) -> None:
        self.holders: dict[str, GatePlace] = {}
        self.waiting: dict[str, int] = {}  # since when, in the order of the line
        self.called: dict[str, Turn] = {}
        self.asking: dict[str, int] = {}  # of those that wait and have to ask again, by when
        self.asks_by: int = NEVER  # none of them before
        self.places: int = 1  # as the last entry had it

    @property
    def empty(self) -> bool:
        return not (self.holders or self.waiting or self.called)

    def clear(self, now: int) -> None:
        """Take back what is over."""
        for holder in [each for each, place in self.holders.items() if place.until <= now]:
            del self.holders[holder]
        for waiter in [each for each, turn in self.called.items() if turn.until <= now]:
            del self.called[waiter]
        self.drop_silent(now)

    def drop_silent(self, now: int) -> None:
        """Those leave the line that had to ask again, and did not."""
        if self.asks_by <= now:
            for waiter in [each for each, asks_by in self.asking.items() if asks_by <= now]:
                self.stop_waiting(waiter)
            self.asks_by = min(self.asking.values(), default=NEVER)

    def wait(self, waiter: str, asks: int | None, now: int) -> int:
        """Since when it waits."""
        since = self.waiting.setdefault(waiter, now)
        if asks is not None and self.asking.get(waiter, 0) - now <= asks * 2 // 3:
            self.asking[waiter] = now + asks
            self.asks_by = min(self.asks_by, now + asks)
        return since

    def stop_waiting(self, waiter: str) -> int | None:
        """Since when it waited, if it did."""
        self.asking.pop(waiter, None)
        return self.waiting.pop(waiter, None)

    def admits(self, waiter: str | None) -> bool:
        """Whether somebody may enter whose turn was not called: there is room, and nobody before it."""
        return self.has_room() and (not self.waiting or waiter == next(iter(self.waiting)))

    def has_room(self) -> bool:
        return len(self.holders) + len(self.called) < self.places

    def free_in(self, now: int) -> int | None:
        """The ms until the first place is free, whether it is held or kept for a waiter; what is over was cleared."""
        ends = [place.until for place in self.holders.values()] + [turn.until for turn in self.called.values()]
        return min(ends) - now if ends else None

    def call(self, now: int, most: int) -> list[str]:
        """Those whose turn has come."""
        turns: list[str] = []
        while self.waiting and self.has_room() and len(turns) < most:
            waiter = next(iter(self.waiting))
            self.called[waiter] = Turn(self.waiting[waiter], now + TURN_MS, now + AGAIN_MS)
            self.stop_waiting(waiter)
            turns.append(waiter)
        return turns

    def next_at(self, now: int) -> int:
        """When there is something to do here. It is not empty."""
        if self.waiting and self.has_room():
            return now
        times = [place.until for place in self.holders.values()]
        times += [min(turn.again, turn.until) for turn in self.called.values()]
        return min(times)


class GateStore:
    """All gates of a store."""

    def __init__(self) -> None:
        self.gates: dict[str, MemoryGate] = {}
        self.rates: dict[str, Spending] = {}
        self.reserved: dict[str, dict[str, int]] = {}  # of a rate, the instants that are kept
        self.kept: dict[str, int] = {}  # of these, how many were left when those were dropped that nobody came for
        self.last_token: int = 0
        self._agenda: list[tuple[int, Key]] = []  # a heap
        self._times: dict[Key, int] = {}  # of its entries, those that count

    def token(self, now: int) -> str:
        self.last_token = max(self.last_token + 1, now)
        return f"{self.last_token:016d}"

    def changed(self, name: str, now: int) -> None:
        """Note when to look at a gate again, or forget it."""
        gate = self.gates[name]
        if gate.empty:
            del self.gates[name]
            self._times.pop(("gate", name), None)
        else:
            self.plan(("gate", name), gate.next_at(now))

    def plan(self, key: Key, at: int) -> None:
        if self._times.get(key) != at:
            self._times[key] = at
            heapq.heappush(self._agenda, (at, key))

    def keep_rate(self, name: str, spending: Spending) -> None:
        self.rates[name] = spending
        self.plan(("rate", name), spending.over())

    def forget_rate(self, name: str) -> None:
        del self.rates[name]
        self.reserved.pop(name, None)
        self.kept.pop(name, None)
        del self._times["rate", name]

    def first(self) -> tuple[int, Key] | None:
        """What is to be looked at first, and when."""
        while self._agenda:
            at, key = self._agenda[0]
            if self._times.get(key) == at:
                return at, key
            heapq.heappop(self._agenda)
        return None

"""Kept results in memory, and what dependent messages wait for."""

import heapq
from typing import Literal, NamedTuple, TypeAlias

from bide.engines.results import OPEN, Dependent, Kept, Result

Key: TypeAlias = tuple[Literal["result", "waiting"], str]
SPARE = 1_000  # times that count no more, before it is worth while to look for them


class KnownResult(NamedTuple):
    result: Result
    until: int
    token: str  # of the delivery that returned it


class WaitingFor(NamedTuple):
    on: tuple[str, ...]
    left: set[str]  # what has not arrived
    until: int


class ResultStore:
    """All results of a store."""

    def __init__(self) -> None:
        self._known: dict[str, KnownResult] = {}
        self._waiting: dict[str, WaitingFor] = {}
        self._followers: dict[str, dict[str, None]] = {}
        self._ends: list[tuple[int, Key]] = []  # a heap

    def expect(self, id: str, until: int, now: int) -> None:
        if self.find(id, now) is None:
            self.keep(id, OPEN, until)

    def fulfil(self, new: Kept, now: int) -> None:
        known = self._known.get(new.id)
        if known is None or known.until <= now or known.token <= new.token:
            self.keep(new.id, Result(done=True, value=new.value), now + new.lasts, new.token)

    def keep(self, id: str, result: Result, until: int, token: str = "") -> None:
        self._known[id] = KnownResult(result, until, token)
        self._ends_at(until, ("result", id))

    def find(self, id: str, now: int) -> Result | None:
        known = self._known.get(id)
        return None if known is None or known.until <= now else known.result

    def depend(self, new: Dependent) -> None:
        if new.id not in self._waiting:
            self._waiting[new.id] = WaitingFor(new.on, set(new.on), new.until)
            for each in new.on:
                self._followers.setdefault(each, {})[new.id] = None
            self._ends_at(new.until, ("waiting", new.id))

    def followers(self, id: str) -> list[str]:
        return list(self._followers.get(id, ()))

    def arrive(self, dependent: str, on: str | None, now: int) -> bool:
        if on is None:
            self.forget(dependent)
            return False
        waiting = self._waiting.get(dependent)
        if waiting is None or waiting.until <= now:
            return False
        waiting.left.discard(on)
        return not waiting.left

    def forget(self, dependent: str) -> None:
        waiting = self._waiting.pop(dependent, None)
        for on in waiting.on if waiting is not None else ():
            followers = self._followers[on]
            followers.pop(dependent, None)
            if not followers:
                del self._followers[on]

    def tidy(self, now: int, limit: int) -> bool:
        """Whether there is more."""
        for _ in range(limit):
            if not self._ends or self._ends[0][0] > now:
                return False
            _, (kind, id) = end = heapq.heappop(self._ends)
            if self._counts(*end):
                if kind == "result":
                    del self._known[id]
                else:
                    self.forget(id)
        return bool(self._ends) and self._ends[0][0] <= now

    def _counts(self, at: int, key: Key) -> bool:
        """Whether this is its end still."""
        kind, id = key
        found = self._known.get(id) if kind == "result" else self._waiting.get(id)
        return found is not None and found.until == at

    def _ends_at(self, until: int, key: Key) -> None:
        heapq.heappush(self._ends, (until, key))
        if len(self._ends) > 2 * (len(self._known) + len(self._waiting)) + SPARE:
            self._ends = [end for end in set(self._ends) if self._counts(*end)]
            heapq.heapify(self._ends)

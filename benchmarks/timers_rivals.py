"""What the timer wheel is measured against: each can `schedule`."""

import asyncio
import heapq
import itertools
import sched
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol


class Timers(Protocol):
    def schedule(self, delay: float, fn: Callable[..., object], *args: Any) -> Any: ...


class Heap:
    """The recipe in the documentation of heapq. Not thread-safe."""

    def __init__(self) -> None:
        self.entries: list[list[Any]] = []
        self._count = itertools.count()

    def schedule(self, delay: float, fn: Callable[..., object], *args: Any) -> list[Any]:
        entry = [time.monotonic() + delay, next(self._count), fn, args]
        heapq.heappush(self.entries, entry)
        return entry

    def cancel(self, entry: list[Any]) -> None:
        entry[2] = None
        entry[3] = ()

    def advance(self, now: float) -> None:
        while self.entries and self.entries[0][0] <= now:
            _, _, fn, args = heapq.heappop(self.entries)
            if fn is not None:
                fn(*args)

    def tidy(self) -> None:
        self.entries = [entry for entry in self.entries if entry[2] is not None]
        heapq.heapify(self.entries)


class LockedHeap(Heap):
    """The same, thread-safe as the wheel is."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def schedule(self, delay: float, fn: Callable[..., object], *args: Any) -> list[Any]:
        with self._lock:
            return super().schedule(delay, fn, *args)

    def cancel(self, entry: list[Any]) -> None:
        with self._lock:
            super().cancel(entry)


class TurnedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is turned by hand."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Loop:
    def __init__(self) -> None:
        self.schedule = asyncio.new_event_loop().call_later


class Sched:
    def __init__(self) -> None:
        self._scheduler = sched.scheduler()

    def schedule(self, delay: float, fn: Callable[..., object], *args: Any) -> Any:
        return self._scheduler.enter(delay, 0, fn, args)

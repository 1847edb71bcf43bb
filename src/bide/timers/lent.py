"""Hands due timers to an executor of the user's: not more at a time than it can be expected to hold."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from bide.logs import Log
from bide.timers.levels import Levels
from bide.timers.timer import Timer

_log = Log("bide.timers")
MOST = 1_000  # timers that are handed over and have not ended; the others can still be cancelled


class Lent:
    def __init__(self, executor: Executor, lock: threading.RLock, levels: Levels, room: Callable[[], None]) -> None:
        self._executor = executor
        self._lock = lock
        self._levels = levels
        self._tell_of_room = room
        self._room = threading.Condition(lock)
        self._held = 0

    def serve(self) -> float | None:
        """Hand over what is due, as far as there is room. The driver is told when there is room again."""
        while timer := self._next():
            self._submit(timer)
        return None

    def hand_over(self) -> int:
        """Hand over all that is due, and wait for room when there is none. How many they were."""
        count = 0
        while True:
            with self._lock:
                self._room.wait_for(lambda: self._held < MOST or not self._levels.due)
                timer = self._next()
            if timer is None:
                return count
            self._submit(timer)
            count += 1

    def close(self) -> None:
        """The executor is not ours to shut down."""

    def _next(self) -> Timer | None:
        with self._lock:
            timer = self._levels.due.take_first() if self._held < MOST else None
            self._held += timer is not None
            return timer

    def _submit(self, timer: Timer) -> None:
        fn, args = timer._freed()
        try:
            future = self._executor.submit(fn, *args)
        except Exception:
            _log.exception("The executor did not take a timer's callback, so it will not run: %r.", fn)
            self._ended()
        else:
            future.add_done_callback(lambda future: self._judge(future, fn))

    def _judge(self, future: "Future[Any]", fn: Callable[..., object]) -> None:
        self._ended()
        error = None if future.cancelled() else future.exception()
        if error is not None:
            _log.error("A timer's callback failed: %r.", fn, exc_info=error)

    def _ended(self) -> None:
        with self._lock:
            self._held -= 1
            self._room.notify()
            if self._held == MOST // 2 and self._levels.due:
                self._tell_of_room()

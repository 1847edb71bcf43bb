"""Runs the callbacks of due timers: in the wheel's own daemon threads, or in an executor of the user's."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

from bide.logs import Log
from bide.timers.levels import Levels
from bide.timers.timer import Timer

_log = Log("bide.timers")
FEW_THREADS = 2  # while callbacks end soon: more would only compete for the interpreter
MOST_THREADS = 256  # and so callbacks that may be stuck at the same time
LINGER = 10.0  # seconds that an idle thread stays
MOST_SUBMITTED = 1_000  # callbacks that the executor has and that have not ended; the others can still be cancelled


class CallbackThreads:
    """A few threads, and more while callbacks are stuck.

    Each takes the next due timer when it is free, so a timer that is not yet running can still be cancelled.
    """

    def __init__(self, lock: threading.RLock, levels: Levels, patience: float) -> None:
        self._lock = lock
        self._levels = levels
        self._patience = patience  # seconds that a due timer waits for a thread before there are more
        self._work = threading.Condition(lock)
        self._threads = 0
        self._idle = 0
        self._taken = 0  # timers, ever
        self._seen = (0.0, 0)  # when, and how many had been taken by then
        self._closed = False

    def serve(self) -> float | None:
        """Make sure that a thread runs what is due. Call again after so many seconds; None: no need."""
        with self._lock:
            if not self._levels.due or self._closed:
                return None
            more = self._missing()
            self._threads += more
        for started in range(more):
            try:
                threading.Thread(target=self._run, name="bide-timers-callback", daemon=True).start()
            except RuntimeError:  # the machine has no more threads: the others go on
                with self._lock:
                    self._threads -= more - started
                break
        return self._patience

    def close(self) -> None:
        """Begin nothing more. What is running goes on."""
        with self._lock:
            self._closed = True
            self._work.notify_all()

    def _missing(self) -> int:
        """How many more threads are needed now. They double while nothing moves."""
        if self._idle:
            self._work.notify()
            return 0
        if self._threads < FEW_THREADS:
            return 1
        now = time.monotonic()
        since, taken = self._seen
        if taken != self._taken:
            self._seen = (now, self._taken)
        elif now - since >= self._patience:
            self._seen = (now, self._taken)
            return min(self._threads, MOST_THREADS - self._threads)
        return 0

    def _run(self) -> None:
        try:
            while (timer := self._next()) is not None:
                with suppress(SystemExit):  # as in any thread: it ends the callback, not the program
                    timer._run()
        finally:
            with self._lock:
                self._threads -= 1

    def _next(self) -> Timer | None:
        with self._lock:
            while not self._closed:
                timer = self._levels.due.take_first()
                if timer is not None:
                    self._taken += 1
                    if self._idle and self._levels.due:
                        self._work.notify()
                    return timer
                self._idle += 1
                notified = self._work.wait(LINGER)
                self._idle -= 1
                if not notified and not self._levels.due:
                    break
        return None


class CallbackExecutor:
    """The user's executor, which is given a limited number of callbacks at a time."""

    def __init__(self, executor: Executor, lock: threading.RLock, levels: Levels, on_room: Callable[[], None]) -> None:
        self._executor = executor
        self._lock = lock
        self._levels = levels
        self._on_room = on_room
        self._room = threading.Condition(lock)
        self._submitted = 0

    def serve(self) -> float | None:
        """Submit what is due, as far as there is room. `on_room` is called when there is room again."""
        while timer := self._next():
            self._submit(timer)
        return None

    def submit_all(self) -> int:
        """Submit all that is due, and wait for room when there is none. How many they were."""
        count = 0
        while True:
            with self._lock:
                self._room.wait_for(lambda: self._submitted < MOST_SUBMITTED or not self._levels.due)
                timer = self._next()
            if timer is None:
                return count
            self._submit(timer)
            count += 1

    def close(self) -> None:
        """The executor belongs to the user, who shuts it down."""

    def _next(self) -> Timer | None:
        with self._lock:
            timer = self._levels.due.take_first() if self._submitted < MOST_SUBMITTED else None
            self._submitted += timer is not None
            return timer

    def _submit(self, timer: Timer) -> None:
        fn, args = timer._freed()
        try:
            future = self._executor.submit(fn, *args)
        except Exception:
            _log.exception("The executor did not take a timer's callback, so it will not run: %r.", fn)
            self._ended()
        else:
            future.add_done_callback(lambda future: self._done(future, fn))

    def _done(self, future: "Future[Any]", fn: Callable[..., object]) -> None:
        self._ended()
        error = None if future.cancelled() else future.exception()
        if error is not None:
            _log.error("A timer's callback failed: %r.", fn, exc_info=error)

    def _ended(self) -> None:
        with self._lock:
            self._submitted -= 1
            self._room.notify()
            if self._submitted == MOST_SUBMITTED // 2 and self._levels.due:
                self._on_room()

"""The wheel's own threads: few, but more while callbacks are stuck, and none that the interpreter waits for."""

import threading
import time
from contextlib import suppress

from bide.timers.levels import Levels
from bide.timers.timer import Timer

STEADY = 2  # threads, as long as callbacks end soon: more would only fight for the interpreter
MOST = 256  # threads, and so callbacks that may be stuck at the same time
LINGER = 10.0  # seconds that a thread stays with nothing to do


class Crew:
    """Each thread takes the next due timer when it is free, so what is not yet running can still be cancelled."""

    def __init__(self, lock: threading.RLock, levels: Levels, patience: float) -> None:
        self._lock = lock
        self._levels = levels
        self._patience = patience  # seconds that something due waits for a thread before there are more
        self._work = threading.Condition(lock)
        self._threads = 0
        self._idle = 0
        self._taken = 0  # timers, ever
        self._seen = (0.0, 0)  # when, and how many had been taken by then
        self._closed = False

    def serve(self) -> float | None:
        """See that somebody runs what is due. Call again after so many seconds; None: no need."""
        with self._lock:
            if not self._levels.due or self._closed:
                return None
            more = self._missing()
            self._threads += more
        for started in range(more):
            try:
                threading.Thread(target=self._run, name="bide-timers-callback", daemon=True).start()
            except RuntimeError:  # the machine has no more threads: those that are there go on
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
        """How many threads more are needed now. They double while nothing moves."""
        if self._idle:
            self._work.notify()
            return 0
        if self._threads < STEADY:
            return 1
        now = time.monotonic()
        since, taken = self._seen
        if taken != self._taken:
            self._seen = (now, self._taken)
        elif now - since >= self._patience:
            self._seen = (now, self._taken)
            return min(self._threads, MOST - self._threads)
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
                told = self._work.wait(LINGER)
                self._idle -= 1
                if not told and not self._levels.due:
                    break
        return None

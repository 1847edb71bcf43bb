"""Whether a handler took longer than its timeout: in real time, or by the clock that it moved itself."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from bide.clock import MS, Clock


class Overtime:
    """Around a handler. Real time is watched by a thread, since a test may have stopped the time that event loops see."""

    def __init__(self, timeout: float | None, clock: Clock, expire: Callable[[], object]) -> None:
        self._timeout = timeout
        self._clock = clock
        self._expire = expire
        self._began = clock.now_ns()
        self._rang = False
        self._over = False
        self._lock = threading.Lock()
        self._timer = None if timeout is None else threading.Timer(timeout, self._ring)

    def _ring(self) -> None:
        with self._lock:
            if not self._over:
                self._rang = True
                self._expire()

    def __enter__(self) -> Self:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def late(self) -> TimeoutError | None:
        """What the attempt failed with, when it took too long."""
        if self._timeout is None or not (self._rang or self._clock.now_ns() - self._began >= self._timeout * 1000 * MS):
            return None
        return TimeoutError(f"took longer than its timeout of {self._timeout:g} s")

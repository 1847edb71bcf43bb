"""Who watches that handlers do not take too long: the event loop of a worker, or the clock that time travel moves."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from bide.clock import MS, Clock
from bide.logs import Log
from bide.queue.run.message import Handling, about

_log = Log("bide.worker")
HEED = 5.0  # seconds that a handler has after its timeout to come to an end


class LoopWatch:
    """The event loop does. If that was blocked an alarm may not have rung: then the clock tells."""

    def __init__(self, unheeded: Callable[[Handling], None]) -> None:
        """`unheeded` is told of a handler that goes on although its timeout is long over."""
        self._loop = asyncio.get_running_loop()
        self._unheeded = unheeded

    def begin(self, handling: Handling, timeout: float) -> None:
        handling.begin_by(time.monotonic() + timeout)
        handling.alarm = self._loop.call_later(timeout, self._time_out, handling).cancel

    def is_over(self, handling: Handling) -> bool:
        return handling.deadline is not None and time.monotonic() >= handling.deadline and not self._left(handling)

    def leaves_thread(self, handling: Handling) -> None:
        """Middleware goes on after it with the time that was left in its thread, however late the loop heard of its end."""
        if left := self._left(handling):
            handling.over = None
            handling.silence()
            self.begin(handling, left)

    def _left(self, handling: Handling) -> float:
        """Seconds that were left when it ended in its thread, which a blocked loop hears of later. 0: it has not, or late."""
        over, deadline = handling.over, handling.deadline
        return 0.0 if over is None or deadline is None else max(0.0, deadline - over)

    def _time_out(self, handling: Handling) -> None:
        if self._left(handling):
            return
        if handling.why != "timeout":  # else its middleware has been told, and may be about to end it
            handling.stop("timeout")
        handling.alarm = self._loop.call_later(HEED, self._look_again, handling).cancel
        _log.warning(
            "%s has reached its timeout of %g s: its handler is told to stop",
            handling,
            handling.task.timeout,
            extra=about(handling.delivery),
        )

    def _look_again(self, handling: Handling) -> None:
        if handling.runner is not None and not handling.runner.done():
            handling.stick()
            self._unheeded(handling)


class MovedWatch:
    """Of one call. The moved clock counts; real time is watched by a thread, as a test may have stopped that of event loops."""

    def __init__(self, clock: Clock, tell: Callable[[Callable[[Handling], Any], Handling], Any]) -> None:
        """`tell` calls what stops a handler, where that runs."""
        self._clock = clock
        self._tell = tell
        self._until: int | None = None
        self._rang = False
        self._over = False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self.cancelled: bool = False  # its task, for the timeout

    def begin(self, handling: Handling, timeout: float) -> None:
        self._until = self._clock.now_ns() + round(timeout * 1000 * MS)
        self._timer = threading.Timer(timeout, self._ring, (handling,))
        self._timer.daemon = True
        self._timer.start()
        handling.alarm = self._cancel

    def is_over(self, handling: Handling) -> bool:
        return self._rang or (self._until is not None and self._clock.now_ns() >= self._until)

    def leaves_thread(self, handling: Handling) -> None:
        """It is watched on."""

    def _cancel(self) -> None:
        with self._lock:
            self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self, handling: Handling) -> None:
        with self._lock:
            if not self._over:
                self._rang = True
                self._tell(self._stop, handling)

    def _stop(self, handling: Handling) -> None:
        """As a worker does: an async handler is cancelled, a sync one can see it in current().expired."""
        if handling.why is None:
            self.cancelled = handling.task.is_async and handling.runner is not None
            handling.stop("timeout")

"""Time in a file: one engine time for all processes that use it, by the machine's own clock.

A process whose time is ahead, under freezegun or another library that sets it, would carry all other processes with it,
and engine time does not go back. So the time of a process counts only while it agrees with the time that the kernel puts
on files.
"""

import os
import threading
import time

from bide.clock import MS, Clock, Monotonic, SystemClock
from bide.logs import Log

_log = Log("bide.sqlite")
AGREED = 1_000 * MS  # how far the two may differ, as they are read one after the other
BELIEVED = 10_000 * MS  # how long the process's time is used after they agreed; a later time is compared first


class EngineTime:
    """One namespace's engine time, as the writer and the readers of this process share it, and the last token given."""

    def __init__(self) -> None:
        self._lock: threading.RLock = threading.RLock()  # a signal handler may read it in the middle of a reading
        self._monotonic = Monotonic()
        self.last_token: int = 0

    def read(self, clock: Clock, now: int | None) -> tuple[int, int]:
        """Engine time, and the clock as far as it agrees; both in nanoseconds."""
        with self._lock:
            wall = clock.now_ns() if now is None else now * MS
            at = self._monotonic.read(wall if now is None else max(wall, self._monotonic.mark))
            return at, min(wall, at)

    def meet(self, raw: int, mark: int, token: int) -> None:
        """Take over what the file says where another process is further on."""
        with self._lock:
            if mark > self._monotonic.mark:
                self._monotonic = Monotonic(raw, mark)
            self.last_token = max(self.last_token, token)

    def row(self) -> tuple[int, int, int]:
        with self._lock:
            return self._monotonic.raw, self._monotonic.mark, self.last_token


class MachineClock(SystemClock):
    """The machine's time, whatever a library has done to the time of this process."""

    def __init__(self) -> None:
        self._last = 0
        self._believed_until = 0
        self._told = False

    def now_ns(self) -> int:
        own = time.time_ns()
        if self._last <= own < self._believed_until:
            self._last = own
            return own
        return self._compared()

    def _compared(self) -> int:
        """The kernel's time when the two differ."""
        before, stamp, after = time.time_ns(), kernel_ns(), time.time_ns()
        if stamp is not None and not before - AGREED <= stamp <= after + AGREED:
            self._tell(after - stamp)
            return stamp
        self._last, self._believed_until = after, after + BELIEVED
        return after

    def _tell(self, ahead: int) -> None:
        if self._told:
            return
        self._told = True
        _log.warning(
            "The time of this process is %.0f s %s the machine's, and SQLite goes by the machine's: others share the file. "
            "For tests that move the time, use memory:// or Queue(…, clock=ManualClock()).",
            abs(ahead) / 1_000 / MS,
            "ahead of" if ahead > 0 else "behind",
        )


def kernel_ns() -> int | None:
    """The time that the kernel puts on a new pipe; None where it puts none."""
    try:
        ends = os.pipe()
    except OSError:
        return None
    try:
        return os.fstat(ends[0]).st_mtime_ns or None
    finally:
        for end in ends:
            os.close(end)

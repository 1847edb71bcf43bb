"""The machine's clock, whatever has been done to the time of this process.

Everybody who uses a file goes by one engine time. A process whose own time is ahead, under freezegun or another library
that sets it, would carry all others with it, and time does not go back: so a process is believed only as long as what it
reads agrees with what the kernel stamps on things.
"""

import os
import time

from bide.clock import MS, SystemClock
from bide.logs import Log

_log = Log("bide.sqlite")
AGREED = 1_000 * MS  # so far apart the two may be read, one after the other
BELIEVED = 10_000 * MS  # for so long after they agreed; a mark further on is confirmed first


class MachineClock(SystemClock):
    def __init__(self) -> None:
        self._last = 0
        self._believed_until = 0
        self._told = False

    def now_ns(self) -> int:
        own = time.time_ns()
        if self._last <= own < self._believed_until:
            self._last = own
            return own
        return self._confirmed()

    def _confirmed(self) -> int:
        """Compare, and go by the kernel when the two differ."""
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
    """The time that the kernel stamps on a pipe that is made now; None where it stamps none."""
    try:
        ends = os.pipe()
    except OSError:
        return None
    try:
        return os.fstat(ends[0]).st_mtime_ns or None
    finally:
        for end in ends:
            os.close(end)

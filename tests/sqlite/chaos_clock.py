"""A wall clock that all processes of a run go by, and that somebody sets while they work.

It is the wall clock alone that moves, with what the kernel stamps on files. What waits goes by the monotonic clock, and so
do the histories. A process whose own time is wrong goes by what the kernel stamps, which is some milliseconds behind.
A server's clock is its own, and `datetime.now()`, which is not Python, stays as it is.
"""

import contextlib
import mmap
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from bide.engines.sqlite import clock as sqlite_clock

_AHEAD = struct.Struct("<q")
_NAME = "clock"


class WallClock:
    """How far it is ahead of the machine's, in a file that all have in memory."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _AHEAD.size)

    @classmethod
    def new(cls, folder: Path) -> "WallClock":
        path = folder / _NAME
        path.write_bytes(_AHEAD.pack(0))
        return cls(path)

    def set(self, by: float) -> None:
        """Seconds, forward or back."""
        _AHEAD.pack_into(self._map, 0, self.ahead_ns() + round(by * 1e9))

    def ahead_ns(self) -> int:
        return int(_AHEAD.unpack_from(self._map)[0])

    def ahead(self) -> float:
        return self.ahead_ns() / 1e9


def is_set(folder: Path) -> bool:
    """Whether clocks are set in this run."""
    return (folder / _NAME).exists()


@contextlib.contextmanager
def followed(folder: Path) -> Iterator[None]:
    """While this lasts this process goes by the run's clock, if it has one."""
    with contextlib.ExitStack() as undo:
        if is_set(folder):
            clock, stamped = WallClock(folder / _NAME), sqlite_clock.kernel_ns
            undo.enter_context(own_time(clock.ahead_ns))

            def kernel_ns() -> int | None:
                stamp = stamped()
                return None if stamp is None else stamp + clock.ahead_ns()

            undo.enter_context(mock.patch.object(sqlite_clock, "kernel_ns", kernel_ns))
        yield


def follow(folder: Path) -> None:
    """For as long as the process lives."""
    followed(folder).__enter__()


@contextlib.contextmanager
def own_time(ahead_ns: Callable[[], int]) -> Iterator[None]:
    """What this process takes for the time, and nobody else: so far ahead of the machine's."""
    plain_ns, plain = time.time_ns, time.time

    def time_ns() -> int:
        return plain_ns() + ahead_ns()

    def seconds() -> float:
        return plain() + ahead_ns() / 1e9

    with mock.patch.object(time, "time_ns", time_ns), mock.patch.object(time, "time", seconds):
        yield

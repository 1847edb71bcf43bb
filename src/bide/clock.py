"""Clocks: what the in-process engines take for the time, the one that tests turn by hand, and time that never goes back."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

MS = 1_000_000  # nanoseconds in a millisecond


class Clock(Protocol):
    """A source of time, in nanoseconds since the epoch."""

    def now_ns(self) -> int: ...

    def on_jump(self, told: Callable[[], None]) -> None:
        """Call `told` when the clock jumps, other than by the passing of time."""


class SystemClock:
    """The machine's wall clock."""

    def now_ns(self) -> int:
        return time.time_ns()

    def on_jump(self, told: Callable[[], None]) -> None:
        """Nobody can tell when an administrator sets the clock; engines keep their own time steady."""


class ManualClock:
    """A clock for tests, which stands still until you move it. Thread-safe."""

    def __init__(self, start: datetime | None = None) -> None:
        begin = start or datetime(2026, 1, 1, tzinfo=UTC)
        if begin.tzinfo is None:
            raise ValueError("start is naive: give it a timezone, e.g. datetime(2026, 1, 1, tzinfo=timezone.utc)")
        self._ns = round(begin.timestamp() * 1000) * MS
        self._told: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def now_ns(self) -> int:
        return self._ns

    @property
    def now_ms(self) -> int:
        return self._ns // MS

    def now(self) -> datetime:
        return moment(self.now_ms)

    def on_jump(self, told: Callable[[], None]) -> None:
        with self._lock:
            self._told.append(told)

    def advance(self, by: float | timedelta) -> None:
        """Move the clock by so many seconds. A negative number sets it back."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        self.set_ms(self.now_ms + round(seconds * 1000))

    def set_ms(self, ms: int) -> None:
        """Set the clock to this time, in milliseconds since the epoch."""
        with self._lock:
            self._ns = ms * MS
            told = list(self._told)
        for each in told:
            each()


class Monotonic:
    """Engine time in any unit: it follows a wall clock, but never goes back and never stands still."""

    __slots__ = ("mark", "raw")

    def __init__(self, raw: int = 0, mark: int = 0) -> None:
        self.raw: int = raw  # the wall clock when last read
        self.mark: int = mark  # engine time then

    def read(self, raw: int) -> int:
        """Engine time now that the wall clock shows `raw`.

        If the wall clock is set back, engine time runs at half speed until the two agree: due messages come a little
        late, none early, and no lease stands still.
        """
        if raw >= self.mark:
            self.mark = raw
        else:
            self.mark += max(0, raw - self.raw) // 2
        self.raw = raw
        return self.mark


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def moment(ms: int) -> datetime:
    """An instant of an engine's clock as an aware datetime in UTC, exact to the millisecond."""
    return _EPOCH + timedelta(milliseconds=ms)


def epoch_ms(when: datetime) -> int:
    """An aware datetime in milliseconds since the epoch, rounded up: never early."""
    return -((_EPOCH - when) // _MILLISECOND)

"""The clock of the fixtures: it begins at the real now, and goes with a test that stops time by other means."""

import sys
import time
from datetime import datetime, timedelta
from typing import Any, Protocol

from bide.clock import MS, ManualClock, moment
from bide.errors import ConfigError

_EPOCH = datetime(1970, 1, 1)  # naive and in UTC, as freezegun counts
_MICROSECOND = timedelta(microseconds=1)


class Stopped(Protocol):
    """A time that freezegun or time-machine shows to the whole process."""

    def now_ns(self) -> int: ...
    def move(self, ns: int) -> None: ...


class Frozen:
    """freezegun's."""

    def __init__(self, factory: Any) -> None:
        self._factory = factory

    def now_ns(self) -> int:
        steps = hasattr(self._factory, "step_width")  # each look at such a time moves it
        now = self._factory.time_to_freeze if steps else self._factory()
        micros: int = (now - _EPOCH) // _MICROSECOND
        return micros * 1_000

    def move(self, ns: int) -> None:
        self._factory.move_to(moment(ns // MS))


class Travelled:
    """time-machine's."""

    def __init__(self, traveller: Any) -> None:
        self._traveller = traveller

    def now_ns(self) -> int:
        return int(self._traveller.time_ns())

    def move(self, ns: int) -> None:
        self._traveller.shift(timedelta(microseconds=(ns - self.now_ns()) // 1_000))


def stopped() -> Stopped | None:
    """The innermost one that is at work. Neither package is imported here: one that is at work has been."""
    frozen = getattr(sys.modules.get("freezegun.api"), "freeze_factories", None)
    if frozen:
        return Frozen(frozen[-1])
    machine = sys.modules.get("time_machine")
    travelled = getattr(machine, "traveller_stack", None) or getattr(machine, "coordinates_stack", None)  # the second in 2.x
    return Travelled(travelled[-1]) if travelled else None


class FollowingClock(ManualClock):
    """Shows the real now at the first look and stands still from then on. While time is stopped, it shows that time."""

    def __init__(self) -> None:
        super().__init__(moment(0))
        self._begun = False
        self._ahead_of: int | None = None  # a stopped time that would set this one back, in nanoseconds

    def now_ns(self) -> int:
        other = stopped()
        if other is not None:
            shown = _whole(other.now_ns())
            self._ahead_of = shown if self._begun and shown < self._ns else None
            self._ns = max(self._ns, shown)
        elif not self._begun:
            self._ns = _whole(time.time_ns())
        self._begun = True
        return self._ns

    @property
    def now_ms(self) -> int:
        return self.now_ns() // MS

    def set_ms(self, ms: int) -> None:
        """Move to this instant, and what has stopped the time moves too."""
        other = stopped()
        if other is not None:
            other.move(ms * MS)
        self._begun = True
        super().set_ms(ms)

    def check(self) -> None:
        """Raise ConfigError when the test has set the time back: a queue's time does not follow."""
        now = self.now()
        if self._ahead_of is not None:
            raise ConfigError(
                f"The test's time was set back to {moment(self._ahead_of // MS):%Y-%m-%d %H:%M:%S} UTC, but the queue has "
                f"seen {now:%Y-%m-%d %H:%M:%S}, and its time never goes back. Stop the time before the queue is first used."
            )


def _whole(ns: int) -> int:
    """The next whole millisecond, which is as exact as engines are: what the test asks for from now on is never later."""
    return -(-ns // MS) * MS

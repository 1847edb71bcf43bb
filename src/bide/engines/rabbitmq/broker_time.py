"""The broker's time, as far as it has told it: in the dead letters of AMQP, in whole seconds.

A message that was dead-lettered says in which second that was. It happened between its sending and its receipt, which bounds
how far the broker's clock is from this process's monotonic one. The wall clock of this machine is believed as long as it is
within the bounds, so machines with synchronized clocks agree to the millisecond, and a wrong one does not matter.
"""

import math
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

DRIFT = 2e-4  # seconds per second by which two clocks may move apart
CLOSE = 0.02  # seconds: bounds that are no further apart need no more tellings
STALE = 600.0  # seconds after which the bounds are asked for again


class BrokerTime:
    """Engine time: it never goes back. If the broker's clock was set back, it runs at half speed until the two agree.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guess = time.time() - time.monotonic()
        self._low, self._high = -math.inf, math.inf  # of the broker's clock minus the monotonic one
        self._at = time.monotonic()  # when the bounds were that narrow
        self._asked = -math.inf
        self._floor, self._floor_at = 0, time.monotonic()
        self._given = 0
        self._asking = False

    def now(self, given: int | None = None) -> int:
        """In milliseconds. A given time that is ahead of the engine's moves it there."""
        with self._lock:
            self._given = max(self._given, given or 0)
            real, at = self._real(), time.monotonic()
            now = max(real, self._floor + int((at - self._floor_at) * 1000) // 2)
            if self._low > -math.inf:  # before the broker has told its time, this machine's clock may be far ahead
                self._floor, self._floor_at = now, at
            return max(now, self._given)

    def hear(self, second: float, sent: float, heard: float) -> None:
        """The broker did something in this second by its clock: after `sent` and before `heard` by the monotonic one."""
        low, high = second - heard, second + 1 - sent
        with self._lock:
            slack = DRIFT * max(0.0, heard - self._at)
            self._low, self._high, self._at = self._low - slack, self._high + slack, max(self._at, heard)
            if sent == -math.inf and low > self._high:  # the broker's clock was set, or another broker's is told of: ask
                self._asked = -math.inf
            elif low > self._high or high < self._low:  # the broker's clock was set
                self._low, self._high = low, high
            else:
                self._low, self._high = max(self._low, low), min(self._high, high)

    def hear_of(self, headers: Mapping[str, Any], heard: float, sent: float = -math.inf) -> None:
        """The same of a message, by its headers: the last time that it was dead-lettered is told first."""
        deaths = headers.get("x-death")
        if isinstance(deaths, list) and deaths and isinstance(deaths[0], Mapping):
            last = deaths[0].get("time")
            if isinstance(last, datetime):
                self.hear(last.timestamp(), sent, heard)

    @property
    def bounds(self) -> tuple[float, float]:
        """Seconds by which the broker's clock is ahead of this machine's wall clock: at least, and at most."""
        with self._lock:
            return self._low - self._guess, self._high - self._guess

    @property
    def wanted(self) -> bool:
        """Whether it would be good to ask the broker again."""
        with self._lock:
            return self._high - self._low > CLOSE or time.monotonic() - self._asked > STALE

    def begin_asking(self) -> bool:
        """Whether to ask the broker: nobody does just now, and it is wanted. Then call end_asking."""
        if self._asking or not self.wanted:
            return False
        with self._lock:
            mine, self._asking = not self._asking, True
        return mine

    def end_asking(self) -> None:
        self._asking, self._asked = False, time.monotonic()

    def next_second(self, after: float) -> tuple[float, float]:
        """When a second of the broker begins next, by the monotonic clock: not before, and within how many seconds then."""
        with self._lock:
            low, high = (self._low, self._high) if self._high - self._low < 1 else (self._guess, self._guess + 1)
        earliest = time.monotonic() + after
        return math.ceil(earliest + high) - high, high - low

    def _real(self) -> int:
        return math.floor((time.monotonic() + min(max(self._guess, self._low), self._high)) * 1000)

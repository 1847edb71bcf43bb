"""Notices that a worker was away, as when its machine was suspended: others may have been away with it, and wake up later."""

import functools
import time

PULSE = 1.0  # seconds: how often it says that it is there
LATE = 0.5  # seconds: who is no later than this was not away
HOLD_OFF = 3.0  # seconds that others have to wake up in, and to renew what they hold

_KIND = getattr(time, "CLOCK_BOOTTIME", None)  # counts the seconds of a suspension too, where the system can
_now = time.monotonic if _KIND is None else functools.partial(time.clock_gettime, _KIND)


class Absence:
    """It compares the engine's time with that of this machine, and says which leases may be taken back.

    After an absence those that ended meanwhile are left alone for a while. Whoever holds them renews them on waking up.
    """

    def __init__(self) -> None:
        self._seen = 0  # the engine's time, when it was told last; 0 until it was told first
        self._at = 0.0  # when that was
        self._there = 0.0  # when there was a sign of life last
        self._left = 0  # by the engine's time: until when it was surely not away
        self._until = 0.0  # the end of the hold-off

    def pulse(self) -> None:
        """It is there; to be called at intervals, also while it rests."""
        now = _now()
        if self._seen and now > self._there + PULSE + LATE:
            self._left, self._until = self._known(), now + HOLD_OFF
        self._there = now

    def hear(self, engine_ms: int) -> None:
        """The engine has told its time."""
        self.pulse()
        if self._seen and engine_ms > (known := self._known()):
            self._left, self._until = known, self._there + HOLD_OFF
        self._seen, self._at = engine_ms, self._there

    def ended_by(self) -> int | None:
        """Leases that ended until then, by the engine's time, may be taken back; None: all that have ended."""
        if not self._seen:
            return None
        self.pulse()
        return self._left if self._there < self._until else self._known()

    def _known(self) -> int:
        """The engine's time can't be any further, unless there was an absence."""
        return self._seen + round((self._there - self._at + PULSE + LATE) * 1000)

"""Schedules: the instants that they plan, and what to do with one that is handled late."""

import zlib
from collections import deque
from collections.abc import Iterator
from datetime import tzinfo
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec

from bide.clock import epoch_ms, moment
from bide.core.cron import FIELDS, Cron
from bide.core.when import duration_ms
from bide.errors import BadOption, BadTime

Missed: TypeAlias = Literal["skip", "once", "all"]
"""What to do with planned instants that are handled late.

skip: leave them out. once: call the handler once for all of them. all: call it for each of them, for the latest 1,000.
"""

LATE = 60_000  # ms: an instant that is handled later than this is late, also if the next one has not passed
MOST = 1_000  # instants that are made up for
SHORTEST = 100  # ms between two instants
_SHORTEST_OF_CRON = 60_000


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a schedule plans, as a release or an operator says it. Times are milliseconds."""

    schedule: str
    timezone: str = "UTC"
    start: int | None = None
    end: int | None = None
    jitter: int = 0
    missed: Missed = "once"


class Called(NamedTuple):
    """Instants for which the handler was called, without a gap between the first and the last."""

    first: int
    last: int


class Step(NamedTuple):
    """What becomes of one planned instant."""

    call: bool  # whether the handler is called
    next: int | None  # what is planned next
    dropped: bool = False  # too many have passed to make up for all


class Schedule:
    """The instants of a timing. Intervals are aligned to `start`, or else to 1970, so that all workers agree."""

    def __init__(self, name: str, timing: Timing, zone: tzinfo) -> None:
        self.name: str = name
        self.timing: Timing = timing
        self._zone = zone
        self._interval = interval(timing.schedule)
        self._cron = None if self._interval is not None else Cron(timing.schedule)
        if timing.missed not in get_args(Missed):
            raise BadOption(f"missed is {timing.missed!r}. Give one of: {', '.join(get_args(Missed))}.")
        if timing.start is not None and timing.end is not None and timing.end < timing.start:
            raise BadTime("end is before start: nothing would ever be planned.")
        if self._cron is not None and self._cron.after(moment(timing.start or 0), zone) is None:
            raise BadOption(f"schedule is {timing.schedule!a}, and there is no such day in 50 years.")

    def after(self, instant: int) -> int | None:
        """The first planned instant later than this one; None if there is none."""
        timing = self.timing
        if timing.start is not None:
            instant = max(instant, timing.start - 1)
        if self._interval is not None:
            origin = timing.start or 0
            found: int | None = origin + ((instant - origin) // self._interval + 1) * self._interval
        else:
            assert self._cron is not None
            when = self._cron.after(moment(instant), self._zone)
            found = None if when is None else epoch_ms(when)
        return None if found is None or (timing.end is not None and found > timing.end) else found

    def next(self, clock: int, called: Called | None) -> int | None:
        """The first instant after what the clock shows, which may have been set back. Those that were called are left out."""
        found = self.after(clock)
        if found is None or called is None or not called.first <= found <= called.last:
            return found
        return self.after(called.last)

    def with_call(self, called: Called | None, planned: int) -> Called:
        """What was called, with one more."""
        return Called(planned if called is None or self.after(called.last) != planned else called.first, planned)

    def due(self, planned: int) -> int:
        """When the message of an instant is due: jitter moves it, by the same time whoever asks.

        Never as far as to the next instant, which is planned from this one.
        """
        jitter = self.timing.jitter
        if not jitter:
            return planned
        following = self.after(planned)
        most = jitter if following is None else min(jitter, following - planned - 1)
        return planned + zlib.crc32(f"{self.name} {planned}".encode()) % (most + 1)

    def step(self, planned: int, now: int, called: Called | None = None) -> Step:
        """What to do with an instant whose message is handled now, for the first time."""
        if planned > now:  # the clock was set back meanwhile
            return Step(True, self.next(now, self.with_call(called, planned)))
        following = self.after(planned)
        passed = following is not None and self.due(following) <= now
        if not passed and now - self.due(planned) <= LATE:
            return Step(True, following)
        if self.timing.missed == "all":
            return self._all(planned, now) if passed else Step(True, following)
        return Step(self.timing.missed == "once", self.after(max(planned, now)))

    def _all(self, planned: int, now: int) -> Step:
        """This one, unless more than the latest instants have passed since."""
        span = (self._interval or _SHORTEST_OF_CRON) * MOST
        begin = now - span
        while begin >= planned:
            latest = deque(self._between(begin, now), MOST)
            if len(latest) == MOST:
                return Step(False, latest[0], dropped=True)
            span *= 2
            begin = max(planned, now - span) if begin > planned else planned - 1
        return Step(True, self.after(planned))

    def _between(self, begin: int, end: int) -> Iterator[int]:
        found = self.after(begin)
        while found is not None and found <= end:
            yield found
            found = self.after(found)


def interval(text: str) -> int | None:
    """The milliseconds of "5m"; None for what has to be a cron expression."""
    if len(text.split()) == FIELDS:
        return None
    try:
        ms = duration_ms(text, "schedule")
    except BadTime:
        return None
    if ms < SHORTEST:
        raise BadTime(f"schedule is {text!a}: the shortest interval is 100ms.")
    return ms

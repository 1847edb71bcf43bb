"""When a schedule is due: lines of cron, intervals, and what becomes of an instant that is handled late."""

import calendar
import re
import zlib
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec

from bide.clock import epoch_ms, moment
from bide.core.times import duration_ms
from bide.errors import BadOption, BadTime

_RANGES = {"minute": (0, 59), "hour": (0, 23), "day of month": (1, 31), "month": (1, 12), "day of week": (0, 7)}
FIELDS = len(_RANGES)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMES = {
    "month": {name: number for number, name in enumerate(_MONTHS, 1)},
    "day of week": {name: number for number, name in enumerate(_DAYS)},
}
_PART = re.compile(r"(?:(\*)|([0-9]{1,4}|[a-z]{3})(?:-([0-9]{1,4}|[a-z]{3}))?)(?:/([0-9]{1,4}))?", re.ASCII)
_MINUTE = timedelta(minutes=1)
_YEARS = 50  # without an instant, and there is none: of leap years that begin with a given day, there is one in 40
LATE = 60_000  # ms: an instant that is handled later than this is late, also if the next one has not passed
MOST = 1_000  # instants that are made up for
SHORTEST = 100  # ms between two instants
_SHORTEST_OF_CRON = 60_000


class Cron:
    """ "minute hour day-of-month month day-of-week". If both days are restricted, either of them is enough, as in cron.

    Where clocks change, it is as in Debian's cron:

    - An expression whose minute and hour don't begin with * names wall times. Each happens once a day: at the first instant
      after the gap if the clock skips it, and the first time if the clock repeats it.
    - Any other expression follows real time: what the clock skips does not happen, and what it repeats happens twice.
    """

    def __init__(self, text: str) -> None:
        fields = text.lower().split()
        if len(fields) != FIELDS:
            raise BadOption(
                f"schedule is {text[:100]!a}. Give an interval such as '5m', or the five fields of cron: '0 9 * * mon-fri' "
                "is minute, hour, day of month, month, day of week."
            )
        minutes, hours, days, months, weekdays = (
            _numbers(field, name, text) for field, name in zip(fields, _RANGES, strict=True)
        )
        self._minutes, self._hours, self._days, self._months = minutes, hours, days, months
        self._weekdays = {each % 7 for each in weekdays}
        self._both_days = fields[2].startswith("*") or fields[4].startswith("*")
        self._wall = not fields[0].startswith("*") and not fields[1].startswith("*")

    def after(self, when: datetime, zone: tzinfo) -> datetime | None:
        """The first instant later than `when`, which is in UTC; None if there is none in the next 50 years."""
        if not self._wall:
            return self._first(when.replace(second=0, microsecond=0) + _MINUTE, zone)
        # What clocks skip is moved to the end of the gap, so the search begins before any gap: the longest was a day.
        wall = self._first(when.astimezone(zone).replace(tzinfo=UTC, second=0, microsecond=0) - timedelta(days=1), UTC)
        while wall is not None:
            instant = _instant(wall.replace(tzinfo=zone, fold=0))
            if instant > when:
                return instant
            wall = self._first(wall + _MINUTE, UTC)
        return None

    def _first(self, at: datetime, zone: tzinfo) -> datetime | None:
        """The first minute from `at` on, in UTC, at which the clock of the zone shows what the fields say."""
        last = at.year + _YEARS
        while at.year <= last:
            wall = at if zone is UTC else at.astimezone(zone)
            midnight = -timedelta(hours=wall.hour, minutes=wall.minute)
            if wall.month not in self._months:
                days = calendar.monthrange(wall.year, wall.month)[1]
                step = midnight + timedelta(days=days + 1 - wall.day)
            elif not self._has_day(wall):
                step = midnight + timedelta(days=1)
            elif wall.hour not in self._hours:
                step = timedelta(minutes=60 - wall.minute)
            elif wall.minute not in self._minutes:
                later = [each for each in self._minutes if each > wall.minute]
                step = timedelta(minutes=min(later, default=60) - wall.minute)
            else:
                return at
            at += step if zone is UTC else _steady(at, step, wall.utcoffset(), zone)
        return None

    def _has_day(self, wall: datetime) -> bool:
        of_month, of_week = wall.day in self._days, wall.isoweekday() % 7 in self._weekdays
        return (of_month and of_week) if self._both_days else (of_month or of_week)


def _steady(at: datetime, step: timedelta, offset: timedelta | None, zone: tzinfo) -> timedelta:
    """A step, or a smaller one where the clock is changed on the way."""
    for most in (step, timedelta(days=1), timedelta(hours=1)):
        step = min(step, most)
        if (at + step).astimezone(zone).utcoffset() == offset:
            return step
    return _MINUTE


def _instant(wall: datetime) -> datetime:
    """When a clock shows this the first time, or the end of the gap if it never does."""
    instant = wall.astimezone(UTC)
    if instant.astimezone(wall.tzinfo).replace(tzinfo=None) == wall.replace(tzinfo=None):
        return instant
    # Read with the offset from before the gap the instant is past its end, and with the one from after it before its begin.
    begin, end = wall.replace(fold=1).astimezone(UTC), instant
    after = end.astimezone(wall.tzinfo).utcoffset()
    while end - begin > _MINUTE:
        middle = begin + (end - begin) // _MINUTE // 2 * _MINUTE
        if middle.astimezone(wall.tzinfo).utcoffset() == after:
            end = middle
        else:
            begin = middle
    return end


def _numbers(field: str, name: str, text: str) -> set[int]:
    low, high = _RANGES[name]
    found: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise _bad(part, name, text)
        star, first, last, step = match.groups()
        begin = low if star else _number(first, name, text)
        end = high if star or (last is None and step is not None) else begin
        if last is not None:
            end = _number(last, name, text) or (7 if name == "day of week" else 0)  # sat-sun
        every = 1 if step is None else int(step)
        if end < begin or not every:
            raise _bad(part, name, text)
        found.update(range(begin, end + 1, every))
    return found


def _number(word: str, name: str, text: str) -> int:
    low, high = _RANGES[name]
    number = _NAMES.get(name, {}).get(word, -1) if word.isalpha() else int(word)
    if not low <= number <= high:
        raise _bad(word, name, text)
    return number


def _bad(part: str, name: str, text: str) -> BadOption:
    low, high = _RANGES[name]
    names = f", or {', '.join(_NAMES[name])}" if name in _NAMES else ""
    return BadOption(
        f"schedule is {text[:100]!a}, and its {name} has {part[:20]!a}. Give numbers from {low} to {high}{names}: "
        "alone, as a range (1-5), a list (1,15) or steps (*/10)."
    )


Missed: TypeAlias = Literal["skip", "once", "all"]
"""What to do with planned instants that are handled late.

skip: leave them out. once: call the handler once for all of them. all: call it for each of them, for the latest 1,000.
"""


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


class CronStep(NamedTuple):
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

    def step(self, planned: int, now: int, called: Called | None = None) -> CronStep:
        """What to do with an instant whose message is handled now, for the first time."""
        if planned > now:  # the clock was set back meanwhile
            return CronStep(True, self.next(now, self.with_call(called, planned)))
        following = self.after(planned)
        passed = following is not None and self.due(following) <= now
        if not passed and now - self.due(planned) <= LATE:
            return CronStep(True, following)
        if self.timing.missed == "all":
            return self._all(planned, now) if passed else CronStep(True, following)
        return CronStep(self.timing.missed == "once", self.after(max(planned, now)))

    def _all(self, planned: int, now: int) -> CronStep:
        """This one, unless more than the latest instants have passed since."""
        span = (self._interval or _SHORTEST_OF_CRON) * MOST
        begin = now - span
        while begin >= planned:
            latest = deque(self._between(begin, now), MOST)
            if len(latest) == MOST:
                return CronStep(False, latest[0], dropped=True)
            span *= 2
            begin = max(planned, now - span) if begin > planned else planned - 1
        return CronStep(True, self.after(planned))

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

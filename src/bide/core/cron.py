"""Cron expressions: their five fields, and the instants that they name in a timezone."""

import calendar
import re
from datetime import UTC, datetime, timedelta, tzinfo

from bide.errors import BadOption

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

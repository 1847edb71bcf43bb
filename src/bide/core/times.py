"""Times and durations that users give: what they mean, which are refused, and how JSON keeps their offset."""

import functools
import math
import re
from collections.abc import Mapping
from datetime import datetime, time, timedelta, timezone, tzinfo
from decimal import ROUND_UP, Decimal
from typing import Any, NamedTuple

from bide.clock import epoch_ms
from bide.errors import BadTime
from bide.types import Duration

MAX_DELAY_MS = 36_525 * 86_400_000  # a hundred years

# Seconds since 1970 in the years 2017 to 2049: as a delay it is a slip, for who means 47 to 79 years writes days.
_EPOCH_FROM, _EPOCH_TO = 1_500_000_000, 2_500_000_000

_CLOSE = 0.001  # ms: the product of a float and 1,000 is off by less than half as much, up to a hundred years
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(ms|s|m|h|d|w)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_FORMS = 'Give seconds (90), a timedelta, or text such as "1h30m" (units: ms s m h d w).'


def duration_ms(value: Duration, name: str = "delay") -> int:
    """A duration in milliseconds, from 0 to a hundred years."""
    if type(value) is float and 0 <= value < _EPOCH_FROM:
        return _seconds_ms(value)
    if type(value) is int and 0 <= value < _EPOCH_FROM:
        return value * 1000
    if isinstance(value, str):
        ms = _text_ms(value, name)
    elif isinstance(value, timedelta):
        whole, rest = divmod(value, timedelta(milliseconds=1))
        ms = whole + bool(rest) if whole >= 0 else whole
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise BadTime(f"{name} is a {type(value).__name__}. {_FORMS}")
    elif name == "delay" and _EPOCH_FROM <= value < _EPOCH_TO:
        raise BadTime(
            f"{name} is {value:.0f} seconds, {value / 31_557_600:.0f} years: it looks like a time, in seconds since 1970. "
            "Give how long from now, or a time: at= takes an aware datetime."
        )
    elif isinstance(value, int):
        ms = value * 1000
    elif math.isfinite(value):
        ms = _exact_ms(value)
    else:
        raise BadTime(f"{name} is {value}. {_FORMS}")
    if ms < 0:
        raise BadTime(f"{name} is negative. Give 0 or more.")
    if ms > MAX_DELAY_MS:
        raise BadTime(f"{name} is over a hundred years. The longest is 36525 days.")
    return ms


def lease_ms(value: Duration, name: str = "lease") -> int:
    """A lease in milliseconds: from 1 to a day."""
    ms = duration_ms(value, name)
    if not 1 <= ms <= _UNIT_MS["d"]:
        raise BadTime(f'{name} is {ms} ms. Give from "1ms" to "1d": a lease is renewed while work goes on, so short is right.')
    return ms


def instant_ms(when: datetime, name: str = "at") -> int:
    """An aware datetime in milliseconds since the epoch. An instant before 1970 counts as 1970: both are past."""
    if not isinstance(when, datetime):
        raise BadTime(f"{name} is a {type(when).__name__}. Give an aware datetime, or use delay= for a duration.")
    if when.utcoffset() is None:
        raise BadTime(
            f"{name} is {when.isoformat(' ')}, without a timezone, and could mean any of 38 instants. Say which: "
            f'{name}=when.replace(tzinfo=ZoneInfo("Europe/Berlin")), or datetime.now(timezone.utc) + timedelta(…).'
        )
    return max(0, epoch_ms(when))


def bounded_instant_ms(when: datetime, now_ms: int, name: str = "at") -> int:
    """An instant no further away than a hundred years; `now_ms` need not be exact."""
    ms = instant_ms(when, name)
    if ms - now_ms > MAX_DELAY_MS:
        raise BadTime(f"{name} is {when.isoformat(' ')}, more than a hundred years away.")
    return ms


def check_delay(delay: int, at: int | None, now: int) -> None:
    """Refuse what would be due more than a hundred years after the engine's now."""
    if delay > MAX_DELAY_MS or (at is not None and at - now > MAX_DELAY_MS):
        raise BadTime("A message can't be due more than a hundred years from now.")


def check_longest(delay: int, longest: int) -> None:
    """Refuse a delay that is too long for an engine."""
    if delay > longest:
        raise BadTime(
            f"The delay is longer than this queue's engine can keep a message: at most {longest // 86_400_000:,} days."
        )


def due_time(delay: int, at: int | None, floor: int, ceiling: int) -> int:
    """When a message is due, from the engine's now rounded down and up: never early, and what is for now is for now."""
    if at is not None:
        return max(at, floor)
    return ceiling + delay if delay else floor


class Planned(NamedTuple):
    """When a message is due.

    An instant is by the wall clock, and a delay ends by engine time, which is ahead while the clock has been set back.
    """

    due: int
    since: int  # when engine time will have come to it
    instant: bool

    def ready(self, now: int, wall: int) -> bool:
        return self.due <= (wall if self.instant else now)


def planned(delay: int, at: int | None, floor: int, ceiling: int, wall: int) -> Planned:
    """As due_time, when the wall clock shows `wall`, or engine time if that is less. What is for the past is for now."""
    if at is not None and at > wall:
        return planned_at(at, floor, wall)
    due = due_time(delay, None, floor, ceiling) if at is None else floor
    return Planned(due, due, False)


def planned_at(at: int, now: int, wall: int) -> Planned:
    """An instant that the wall clock has not reached. While it is behind, engine time goes on at half its speed."""
    return Planned(at, max(at, reached_at(at, now, wall)), True)


def reached_at(at: int, now: int, wall: int) -> int:
    """What engine time is when a wall clock that is behind reaches an instant: rounded up, so never too early."""
    return now + (at - wall + 1) // 2


class Dues(NamedTuple):
    """When several messages are due: after a delay, evenly spread over so many milliseconds."""

    delay: int
    over: int
    places: int

    def check(self) -> None:
        check_delay(self.delay + self.over, None, 0)

    def at(self, place: int, floor: int, ceiling: int) -> int:
        return due_time(self.delay + place * self.over // self.places, None, floor, ceiling)


@functools.lru_cache(maxsize=256)  # a program names the same few again and again
def _text_ms(text: str, name: str) -> int:
    squeezed = text.replace(" ", "") if len(text) <= 100 else ""
    if not _WHOLE.fullmatch(squeezed):
        raise BadTime(f"{name} is {text[:100]!a}. {_FORMS}")
    return _away_from_zero(sum((Decimal(number) * _UNIT_MS[unit] for number, unit in _PART.findall(squeezed)), Decimal(0)))


def _seconds_ms(value: float) -> int:
    """As `_exact_ms`, for 0 to a hundred years, and faster."""
    about = value * 1000
    nearest = round(about)
    if nearest / 1000 == value:
        return nearest
    return math.ceil(about) if abs(about - nearest) > _CLOSE else _exact_ms(value)


def _exact_ms(value: float) -> int:
    """As the digits say that people see: 1.1 is 1100 ms, though 1.1 * 1000 is a little more, and would be rounded up."""
    return _away_from_zero(Decimal(repr(float(value))) * 1000)


def _away_from_zero(ms: Decimal) -> int:
    return int(ms.to_integral_value(ROUND_UP))


def life_ms(value: Duration) -> int:
    """How long a message lives after it fell due."""
    life = duration_ms(value, "expires_in")
    if not life:
        raise BadTime("expires_in is 0: the message would expire the moment it is due. Leave it out, or give it time.")
    return life


TIMES = (datetime, time)
_MINUTE = timedelta(minutes=1)
# From the first colon, which is searched for much faster than two digits are.
_find = re.compile(rb':\d\d:\d\d[.\d]*(?:Z|[+-]\d\d:\d\d)"').search


def told_in(raw: bytes) -> bool:
    """Whether JSON may tell an instant or a time with an offset."""
    return _find(raw) is not None


def exact(value: Any) -> Any:
    """What JSON's containers hold, with such a datetime at the next whole offset: the same instant on another clock.

    Raises ValueError for a time without a date, which is no instant.
    """
    if isinstance(value, datetime):
        rest = _rest(value)
        return value.astimezone(timezone((value.utcoffset() or rest) - rest)) if rest else value
    if isinstance(value, time):
        if _rest(value):
            raise ValueError(_refusal(value))
        return value
    if isinstance(value, dict):
        return {exact(key): exact(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [exact(each) for each in value]
    return value


def odd(value: Any) -> datetime | time | None:
    """One that has such an offset, of what containers hold."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, TIMES):
            if _rest(each):
                return each
        elif isinstance(each, Mapping):
            left += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            left += each
    return None


def check(value: Any) -> None:
    """Raise ValueError if something has such an offset: what somebody else writes can't be told another way."""
    if (found := odd(value)) is not None:
        raise ValueError(_refusal(found))


def _rest(value: datetime | time) -> timedelta:
    """By how much its offset is more than whole minutes."""
    return (value.utcoffset() or timedelta(0)) % _MINUTE


def _refusal(value: datetime | time) -> str:
    zone: tzinfo | None = value.tzinfo
    how = "Give it in UTC: when.astimezone(UTC)" if isinstance(value, datetime) else "Give a datetime"
    return (
        f"it holds a {type(value).__name__} in {zone}, whose UTC offset is {value.utcoffset()} and not of whole minutes, "
        f"which JSON can't tell. {how}"
    )

"""Aware datetimes whose UTC offset is no whole minute: JSON would lose the rest of it, and tell another instant."""

import re
from collections.abc import Mapping
from datetime import datetime, time, timedelta, timezone, tzinfo
from typing import Any

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

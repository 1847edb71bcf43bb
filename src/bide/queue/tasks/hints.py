"""Which type hints make the same of JSON in one step as of what JSON holds: not Decimal, which would not be a float before."""

import datetime
import types
import typing
import uuid
from typing import Any

_ALONE = {
    Any, bool, bytes, datetime.date, datetime.datetime, datetime.time, datetime.timedelta, dict, float, frozenset, int, list,
    None, set, str, tuple, types.NoneType, uuid.UUID,
}  # fmt: skip
_AROUND = {dict, frozenset, list, set, tuple, types.UnionType, typing.Union}


def same_from_json(hint: Any) -> bool:
    """Of these, and of what holds nothing else, it is known. Of all others it is not."""
    if typing.get_origin(hint) in _AROUND:
        return all(each is ... or same_from_json(each) for each in typing.get_args(hint))
    try:
        return hint in _ALONE
    except TypeError:  # it has no hash
        return False

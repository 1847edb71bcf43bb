"""Type hints: which can't be sent at all, and which make the same of JSON in one step as of what JSON holds.

Not Decimal, which would not be a float before.
"""

import datetime
import types
import typing
import uuid
from collections.abc import Iterator
from typing import Any

from msgspec import inspect as shapes

from bide.core import models

_ALONE = {
    Any, bool, bytes, datetime.date, datetime.datetime, datetime.time, datetime.timedelta, dict, float, frozenset, int, list,
    None, set, str, tuple, types.NoneType, uuid.UUID,
}  # fmt: skip
_KEYS = (
    shapes.AnyType, shapes.StrType, shapes.IntType, shapes.FloatType, shapes.BytesType, shapes.DateTimeType, shapes.DateType,
    shapes.TimeType, shapes.TimeDeltaType, shapes.UUIDType, shapes.DecimalType, shapes.EnumType, shapes.LiteralType,
    shapes.UnionType, shapes.CustomType, shapes.Metadata,
)  # fmt: skip
_AROUND = {dict, frozenset, list, set, tuple, types.UnionType, typing.Union}


def same_from_json(hint: Any) -> bool:
    """Of these, and of what holds nothing else, it is known. Of all others it is not."""
    if typing.get_origin(hint) in _AROUND:
        return all(each is ... or same_from_json(each) for each in typing.get_args(hint))
    try:
        return hint in _ALONE
    except TypeError:  # it has no hash
        return False


def unsendable(hint: Any) -> str | None:
    """Why nothing that JSON holds could become what the hint asks for, in a sentence; None where it could, or may."""
    try:
        waiting = [shapes.type_info(hint)]
    except NotImplementedError:
        return None
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, shapes.CustomType) and not _makeable(each.cls):
            return f"bide does not know how to make a {each.cls.__name__}: take what JSON holds, a dataclass or a Struct"
        if isinstance(each, shapes.DictType) and not isinstance(each.key_type, _KEYS):
            return "the keys of a dict are text or numbers in JSON, and no other type of keys would arrive"
        waiting += _parts(each)
    return None


def _makeable(kind: Any) -> bool:
    if models.adapter_of(kind) is not None or hasattr(kind, "model_validate"):
        return True
    try:
        return any(issubclass(each, kind) for each in (dict, list, str, int, float, bool))
    except TypeError:  # a Protocol that isinstance refuses
        return False


def _parts(info: Any) -> Iterator[Any]:
    """What a type is made of."""
    for name in ("type", "types", "item_type", "item_types", "key_type", "value_type", "fields"):
        part = getattr(info, name, ())
        yield from part if isinstance(part, tuple) else (part,)

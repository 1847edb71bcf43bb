"""An argument with something of pydantic in its hint: made, checked and written by pydantic, as its own JSON."""

import functools
import sys
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from bide.core.models import of_pydantic


class Adapter(Protocol):
    """What pydantic.TypeAdapter has that is used here."""

    def validate_json(self, data: bytes) -> Any: ...
    def validate_python(self, value: Any) -> Any: ...
    def dump_python(self, value: Any, *, mode: str, by_alias: bool, round_trip: bool) -> Any: ...


def adapter(hint: Any) -> Adapter | None:
    """None when pydantic has no part in it, or can't make it."""
    if not of_pydantic(hint):
        return None
    pydantic = sys.modules["pydantic"]
    try:
        made: Adapter = pydantic.TypeAdapter(hint)
    except Exception:  # pydantic 1, and hints that mix it with what it does not know
        return None
    return made


@functools.lru_cache(maxsize=1_000)
def adapter_of(kind: type) -> Adapter | None:
    """The same for a type inside of something that pydantic has no part in, which is met again and again."""
    return adapter(kind)


def read(by: Adapter, value: Any) -> Any:
    """From what JSON has: in pydantic's JSON mode, where strict models take text for instants too."""
    return by.validate_json(msgspec.json.encode(value))


def written(by: Adapter, value: Any) -> Any:
    """What JSON has of a value, or of what such a value is made of."""
    try:
        made = by.validate_python(value)
    except ValueError:
        try:
            made = read(by, value)
        except TypeError:  # JSON has no form for it, so only the first reason counts
            made = None
        if made is None:
            raise
    return by.dump_python(made, mode="json", by_alias=True, round_trip=True)


def reason(error: Exception) -> str | None:
    """What pydantic has against a value, without the value itself; None for another error."""
    errors: Any = getattr(error, "errors", None)
    if not callable(errors) or type(error).__name__ != "ValidationError":
        return None
    found: list[Mapping[str, Any]] = errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{each['msg']} - at `{'.'.join(['$', *map(str, each['loc'])])}`" for each in found[:5])

"""What pydantic has to do with type hints: what they hold of it, and how it makes, checks and writes their values.

It is not imported here: a hint that has something of pydantic has loaded it.
"""

import functools
import inspect
import sys
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from bide.core.times import check, told_in

_HOMES = ("pydantic", "pydantic_core", "pydantic_extra_types", "annotated_types")


def of_pydantic(hint: Any) -> bool:
    """Whether pydantic is to make and to write what has this hint. Of a plain dataclass it makes single fields only."""
    return "pydantic" in sys.modules and any(_is_of_pydantic(each) for each in _within(hint, set(), named=False))


@functools.lru_cache(maxsize=1_000)
def loss_of(kind: type) -> str | None:
    """The same for a type that is asked for again and again."""
    return loss(kind)


def loss(hint: Any) -> str | None:
    """What pydantic would not write of something with this hint, in a sentence: a secret, or a field that it leaves out."""
    if "pydantic" not in sys.modules:
        return None
    for each in _within(hint, set()):
        if _is_secret(each):
            return (
                f"{each.__name__} is a secret, which pydantic writes as asterisks. Send an id to look the secret up by, or "
                "give the field a serializer"
            )
        for name, field in _fields(each).items():
            if getattr(field, "exclude", None) is True:
                return f"{each.__name__}.{name} has exclude=True, so it would arrive with its default. Send it, or leave it out"
            if getattr(field, "init", None) is False:
                return f"{each.__name__}.{name} has init=False, so it would arrive with its default. Let it be given"
            written = getattr(field, "serialization_alias", None) or name
            if not _maps_itself(each) and written not in _read_as(each, name, field):
                return (
                    f"{each.__name__}.{name} is written as {written}, and is not read by that name. Give it one alias for "
                    "both, or set validate_by_name"
                )
    return None


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
    told = by.dump_python(made, mode="json", by_alias=True, round_trip=True)
    if told_in(msgspec.json.encode(told)):
        check(by.dump_python(made, mode="python", by_alias=False, round_trip=True))
    return told


def reason(error: Exception) -> str | None:
    """What pydantic has against a value, without the value itself; None for another error."""
    errors: Any = getattr(error, "errors", None)
    if not callable(errors) or type(error).__name__ != "ValidationError":
        return None
    found: list[Mapping[str, Any]] = errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{each['msg']} - at `{'.'.join(['$', *map(str, each['loc'])])}`" for each in found[:5])


def _maps_itself(kind: type) -> bool:
    """Whether a model has code of its own for its JSON as a whole."""
    decorators = getattr(kind, "__pydantic_decorators__", None)
    before = getattr(decorators, "model_validators", {}).values()
    return bool(getattr(decorators, "model_serializers", {})) or any(each.info.mode != "after" for each in before)


def _read_as(kind: type, name: str, field: Any) -> set[str]:
    """The names that pydantic knows a field by in JSON."""
    config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
    alias = getattr(field, "validation_alias", None)
    if alias is None or config.get("validate_by_alias") is False:
        return {name}
    known = {name} if config.get("validate_by_name") or config.get("populate_by_name") else set()
    for choice in getattr(alias, "choices", [alias]):
        path = getattr(choice, "path", [choice])
        if len(path) == 1:
            known.add(path[0])
    return known


def _is_of_pydantic(thing: Any) -> bool:
    kind = thing if isinstance(thing, type) else type(thing)
    return kind.__module__.partition(".")[0] in _HOMES or hasattr(thing, "__pydantic_core_schema__")


def _is_secret(thing: Any) -> bool:
    pydantic = sys.modules["pydantic"]
    kinds = tuple(getattr(pydantic, name) for name in ("SecretStr", "SecretBytes", "Secret") if hasattr(pydantic, name))
    return isinstance(thing, type) and issubclass(thing, kinds)


def _fields(thing: Any) -> dict[str, Any]:
    """Of a model or a dataclass of pydantic."""
    if not isinstance(thing, type):
        return {}
    found = getattr(thing, "__pydantic_fields__", None)
    return found if isinstance(found, dict) else {}


def _within(hint: Any, seen: set[int], *, named: bool = True) -> Iterator[Any]:
    """The types and metadata that a hint is made of, but for what has a serializer of its own, whatever that does."""
    if id(hint) in seen:
        return
    seen.add(id(hint))
    if hasattr(hint, "__metadata__"):
        yield from hint.__metadata__
        if not any(_is_serializer(each) for each in hint.__metadata__):
            yield from _within(hint.__origin__, seen, named=named)
        return
    yield hint
    origin = typing.get_origin(hint)
    behind = [origin] if origin is not None else []
    for each in (*behind, *typing.get_args(hint), *_aliased(hint), *(_named(hint) if named else ()), *_in_fields(hint)):
        yield from _within(each, seen, named=named)


def _is_serializer(thing: Any) -> bool:
    return type(thing).__name__ in ("PlainSerializer", "WrapSerializer")


def _aliased(hint: Any) -> Iterator[Any]:
    """What a type alias or a NewType stands for."""
    for word in ("__value__", "__supertype__"):
        if (behind := getattr(hint, word, None)) is not None:
            yield behind


def _named(hint: Any) -> Iterator[Any]:
    """The fields of a dataclass, a Struct, a TypedDict or a NamedTuple."""
    if isinstance(hint, type) and hint.__module__ != "builtins" and not _fields(hint):
        try:
            if inspect.get_annotations(hint):
                yield from typing.get_type_hints(hint, include_extras=True).values()
        except Exception:  # a name that can't be looked up here
            return


def _in_fields(hint: Any) -> Iterator[Any]:
    written = getattr(getattr(hint, "__pydantic_decorators__", None), "field_serializers", {}).values()
    own = {name for each in written for name in each.info.fields}
    for name, field in _fields(hint).items():
        if not ({name, "*"} & own or any(_is_serializer(each) for each in field.metadata)):
            yield field.annotation

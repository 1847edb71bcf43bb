"""A function's arguments as a message's body: one object by name, checked against the signature on both ends.

Its type hints say what can't be sent at all, and what makes the same of JSON in one step as of what JSON holds. Not Decimal,
which would not be a float before.
"""

import datetime
import difflib
import functools
import inspect
import types
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from typing import Any

import msgspec
from msgspec import inspect as shapes

from bide.core import models
from bide.errors import BadBody, BadOption, ConfigError
from bide.types import SendOptions

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


_TIMES = {"delay": "after", "countdown": "after", "at": "at", "eta": "at"}  # also as Celery calls them
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Unfit(BadBody):
    """These are not the function's arguments."""


class Unread(BadBody):
    """A message that was sent already does not fit. `elsewhere`: another release of the function may know its arguments."""

    def __init__(self, text: str, *, elsewhere: bool) -> None:
        super().__init__(text)
        self.elsewhere: bool = elsewhere


class Arguments:
    """Of one function. Its type hints are looked up on first use, since they may name what is defined further down."""

    def __init__(self, function: Callable[..., Any], name: str, *, ignore_unknown: bool = False) -> None:
        self._function = function
        self._ignore_unknown = ignore_unknown
        self._name = name
        try:
            self._signature = inspect.signature(function)
        except ValueError as error:
            raise ConfigError(f"{name}() does not tell its parameters: put a def around it.") from error
        self.named: tuple[str, ...] = ()
        self._needed: set[str] = set()
        self._defaults = False
        self._shape: type[msgspec.Struct] | None = None
        self._rest: str | None = None
        self._more: Any = None
        self._decode: Callable[[bytes], msgspec.Struct] | None = None
        self._models: dict[str, models.Adapter] = {}  # by parameter
        for parameter in self._signature.parameters.values():
            if parameter.kind in _BY_NAME:
                self.named += (parameter.name,)
                if parameter.default is Parameter.empty:
                    self._needed.add(parameter.name)
                else:
                    self._defaults = True
            elif parameter.kind is Parameter.VAR_KEYWORD:
                self._rest = parameter.name
            else:
                kind = (
                    "*" + parameter.name
                    if parameter.kind is Parameter.VAR_POSITIONAL
                    else "the positional-only " + parameter.name
                )
                raise ConfigError(
                    f"{name}() takes {kind}, but a task's arguments travel by name. Give it parameters that can be named."
                )

        self._all = frozenset(self.named)
        parameters = self._signature.parameters
        self._default = {name: parameters[name].default for name in self.named if name not in self._needed}

    @property
    def known(self) -> frozenset[str] | None:
        """The names of all arguments; None when it takes any."""
        return self._all if self._rest is None else None

    @property
    def needed(self) -> frozenset[str]:
        """The names of the arguments that have no default."""
        return frozenset(self._needed)

    def with_defaults(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """As the function sees them."""
        return arguments if len(arguments) >= len(self.named) else {**self._default, **arguments}

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What is sent: the arguments by name, without the defaults."""
        if not args and self._rest is None and self._needed.issubset(kwargs) and self._all.issuperset(kwargs):
            bound = {name: kwargs[name] for name in self.named if name in kwargs}  # as bind does, in a tenth of the time
        else:
            try:
                bound = self._signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise Unfit(
                    f"{self._name}{self._signature} was sent other arguments than it takes: "
                    f"{self._mistyped(kwargs) or error}.{self._meant(kwargs)}"
                ) from None
        if self._shape is None:
            self.prepare()
        if self._models:
            for name in self._models.keys() & bound.keys():
                bound[name] = self._by_model(name, models.written, bound[name])
        if self._rest is not None:
            bound.update(bound.pop(self._rest, {}))
        return bound

    def _mistyped(self, kwargs: Mapping[str, Any]) -> str | None:
        """The first name that the function does not know, and one like it that it knows. None: there is no such pair."""
        for name in filter(str.isidentifier, map(str, kwargs)) if self._rest is None else ():
            if name not in self._all and (close := difflib.get_close_matches(name, self._all - kwargs.keys(), 1)):
                return f"it takes no {name!r}, but it does take {close[0]!r}"
        return None

    def _meant(self, kwargs: Mapping[str, Any]) -> str:
        """What to write instead, when options of a send are among the arguments."""
        options = SendOptions.__optional_keys__ | _TIMES.keys()
        own = [name for name in kwargs if name not in self.named and name in options]
        if not own:
            return ""
        first, value = own[0], repr(kwargs[own[0]])[:60]
        how = f"{_TIMES[first]}({value})" if first in _TIMES else f"options({first}=…)"
        return f" {first} is said before that: {self._name}.{how}.send(…)."

    def of_message(self, body: Any) -> dict[str, Any]:
        """What the function is called with for a message. Raises Unread."""
        try:
            return self.read(body)
        except Unfit as error:
            raise Unread(str(error), elsewhere=self._known_elsewhere(body, error)) from error

    def _known_elsewhere(self, body: Any, error: Unfit) -> bool:
        """Whether another release of the function may take what this one can't."""
        given = {} if body is None else body
        return isinstance(given, Mapping) and not (given.keys() >= self._needed and self._knows(given))

    def _knows(self, given: Mapping[str, Any]) -> bool:
        return self._rest is not None or self._all.issuperset(given)

    def of_json(self, raw: bytes) -> dict[str, Any] | None:
        """As of_message, of a body that is JSON still, in one step; None where of_message has to tell."""
        try:
            if self._shape is None:
                self.prepare()
            if self._decode is None:
                return None
            found = msgspec.structs.asdict(self._decode(raw))
        except Exception:
            return None
        return {name: value for name, value in found.items() if value is not msgspec.UNSET} if self._defaults else found

    def read(self, body: Any) -> dict[str, Any]:
        """What the function is called with: the body, converted by the type hints."""
        shape = self._shape or self.prepare()
        given: Any = {} if body is None else self._joined(body) if isinstance(body, list) else body
        if self._ignore_unknown and isinstance(given, Mapping) and not self._knows(given):
            given = {name: value for name, value in given.items() if name in self.named}
        try:
            known = msgspec.convert(given, shape, str_keys=True, dec_hook=_model)
            found = msgspec.structs.asdict(known)
            if self._defaults:
                found = {name: value for name, value in found.items() if value is not msgspec.UNSET}
            if self._models:
                for name in self._models.keys() & found.keys():
                    found[name] = self._by_model(name, models.read, found[name])
            if self._rest is not None:
                rest = {name: value for name, value in given.items() if name not in self.named}
                if self._rest in self._models:
                    found.update(self._by_model(self._rest, models.read, rest))
                else:
                    found.update(msgspec.convert(rest, self._more, str_keys=True, dec_hook=_model))
        except Unfit:
            raise
        except Exception as error:  # also what the user's own types raise while they are made
            raise Unfit(f"{self._name}{self._signature} can't take this message: {_reason(error)}.") from error
        return found

    def check_lists(self, body: Mapping[str, Any]) -> None:
        """Refuse what can't be merged with what others send."""
        for name, value in body.items():
            if not isinstance(value, list):
                raise BadOption(
                    f"if_exists='merge' gathers lists, and {name} of {self._name}() is none: give it one, {name}=[…]. "
                    "The handler then gets the items of all sends."
                )

    def _joined(self, bodies: list[Any]) -> Any:
        """The arguments of sends that were merged: of each argument the items of all, in the order of the sends."""
        found: dict[str, Any] = {}
        for body in bodies:
            if not isinstance(body, dict) or not all(isinstance(value, list) for value in body.values()):
                return bodies
            for name, items in body.items():
                found.setdefault(name, []).extend(items)
        return found

    def _by_model(self, name: str, do: Callable[[models.Adapter, Any], Any], value: Any) -> Any:
        try:
            return do(self._models[name], value)
        except Exception as error:
            raise Unfit(f"{self._name}{self._signature} can't take this message: its {name}: {_reason(error)}.") from error

    def check_early(self) -> None:
        """Refuse now what would not arrive, if the type hints can be looked up already."""
        try:
            self._prepare()
        except ConfigError:
            raise
        except Exception:  # on first use they can be, or that says why not
            return

    def prepare(self) -> type[msgspec.Struct]:
        """Look up the type hints. Raises ConfigError where they can't be looked up, or an argument would not arrive."""
        try:
            return self._prepare()
        except (NameError, TypeError, AttributeError, RuntimeError) as error:
            raise ConfigError(f"The type hints of {self._name}{self._signature} can't be used: {error}.") from error

    def _prepare(self) -> type[msgspec.Struct]:
        """Raises ConfigError where an argument would not arrive, and what Python raises where they can't be looked up."""
        hints = self._hints()
        if self._rest is not None:
            hints[self._rest] = _each(hints.get(self._rest, Any))
        taken = {name: hints.get(name, Any) for name in (*self.named, *([self._rest] if self._rest else []))}
        for name, hint in taken.items():
            if (lost := models.loss(hint)) is not None:
                raise ConfigError(f"{self._name}{self._signature} can't be sent its {name}: {lost}.")
        adapters = {name: by for name, hint in taken.items() if (by := models.adapter(hint)) is not None}
        taken |= dict.fromkeys(adapters, Any)
        fields = [self._field(self._signature.parameters[name], taken[name]) for name in self.named]
        shape = msgspec.defstruct(
            self._name, fields, kw_only=True, forbid_unknown_fields=self._rest is None, gc=False, frozen=True
        )
        more = taken[self._rest] if self._rest is not None else None
        try:
            for wanted in (shape, more):
                msgspec.json.Decoder(wanted, dec_hook=_model)  # says now what it can't do
        except TypeError as error:
            raise ConfigError(
                f"The type hints of {self._name}{self._signature} can't be used: {error}. JSON would not tell what it is: "
                "take one of these types, or Any."
            ) from error
        for name in self._needed:
            if (why := unsendable(taken[name])) is not None:
                raise ConfigError(f"{self._name}{self._signature} can't be sent its {name}: {why}.")
        self._shape, self._more, self._models = shape, more, adapters
        if self._rest is None and all(map(same_from_json, taken.values())):
            self._decode = msgspec.json.Decoder(shape).decode
        return shape

    def _hints(self) -> dict[str, Any]:
        return typing.get_type_hints(_Parameters(_annotated(self._function)), include_extras=True)

    @staticmethod
    def _field(parameter: Parameter, hint: Any) -> Any:
        if parameter.default is Parameter.empty:
            return parameter.name, hint
        return parameter.name, typing.Union[hint, msgspec.UnsetType], msgspec.UNSET  # noqa: UP007  (a hint may be text or Any)


class _Parameters:
    """The type hints of a function's parameters: what it returns is nobody's business, and may be named for checkers only."""

    def __init__(self, function: Any) -> None:
        hints = getattr(function, "__annotations__", {})
        self.__annotations__ = {name: hint for name, hint in hints.items() if name != "return"}
        self.__type_params__ = getattr(function, "__type_params__", ())
        self.__wrapped__ = function  # whose module the names are looked up in


def _annotated(function: Any) -> Any:
    """What has the type hints: the function itself, the one in a partial, or an object's `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) or hasattr(function, "__wrapped__") else type(function).__call__


def _each(hint: Any) -> Any:
    """What the further arguments are together: `**rest: int` is one for each, `**rest: Unpack[Shape]` is for all."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Unpack else dict[str, hint]


def _reason(error: Exception) -> str:
    if (said := models.reason(error)) is not None:
        return said
    known = isinstance(error, msgspec.ValidationError | ValueError | TypeError)
    return str(error) if known else f"{type(error).__name__}: {error}"


def _model(wanted: Any, value: Any) -> Any:
    """A pydantic model, or what says by itself how it is made."""
    by = models.adapter_of(wanted)
    if by is not None:
        return models.read(by, value)
    validate = getattr(wanted, "model_validate", None)
    if validate is None:
        if isinstance(value, wanted):
            return value
        raise TypeError(f"bide does not know how to make a {wanted.__name__}: take what JSON holds, a dataclass or a Struct")
    return validate(value)

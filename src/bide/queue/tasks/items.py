"""A function that is given many messages at once: how many, and what each message is of its list."""

import collections.abc
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from bide.core import options
from bide.core.times import duration_ms
from bide.errors import BadOption, ConfigError
from bide.queue.tasks.arguments import Arguments, Unfit
from bide.types import Duration

LARGEST = 10_000
_LISTS = (
    list,
    collections.abc.Collection,
    collections.abc.Iterable,
    collections.abc.MutableSequence,
    collections.abc.Sequence,
)  # what a list is, for a function that is given one
_OTHER_FIELDS = ("Object missing required field", "Object contains unknown field")
_OTHER_MODEL = ("missing", "extra_forbidden")


class Gather(NamedTuple):
    """How messages are gathered: up to `size`, for up to `linger` seconds from the first."""

    size: int
    linger: float


def read_batch(batch: int | None, linger: Duration, one_by_one: Mapping[str, Any]) -> Gather | None:
    """`one_by_one`: other options that were given, and are for messages that are handled one by one."""
    if batch is None:
        if linger:
            raise BadOption("linger= says how long a batch is gathered: give batch= too.")
        return None
    for name in one_by_one:
        if name == "unknown":
            raise BadOption("unknown= is for arguments, and an item of a batch has none: its own type says what it takes.")
        raise BadOption(
            f"{name}= holds back single messages, so a batch would never fill: leave it out, and take "
            "`queue.lock(…, wait=…)` in the function to have one batch at a time."
        )
    return Gather(options.count(batch, "batch", LARGEST), duration_ms(linger, "linger") / 1000)


def called_alone(attempt: int, max_attempts: int) -> bool:
    """Whether it is the last of several attempts: what fails with a batch must not take the others to the dead letters."""
    return attempt > 1 and attempt >= max_attempts


class Items(Arguments):
    """Of a function with one parameter, the list. A message's body is one item of it."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        super().__init__(function, name)
        needed = [each for each in self.named if each in self._needed]
        if len(needed) != 1 or self._rest is not None:
            raise ConfigError(
                f"{name}{self._signature} is to be given a batch: write it with one parameter, the list, as in "
                f"`def {name}(items: list[int])`. Further parameters need defaults."
            )
        self.parameter: str = needed[0]
        self.named: tuple[str, ...] = (self.parameter,)
        self._all, self._default, self._defaults = frozenset(needed), {}, False
        self._read_item: Callable[[bytes], Any] | None = None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The item as a body."""
        if len(args) != 1 or kwargs:
            raise Unfit(
                f"{self._name}.send(…) takes one item of the list that {self._name}{self._signature} is given, and nothing "
                f"else.{self._meant(kwargs)}"
            )
        return super().bind((), {self.parameter: args[0]})[self.parameter]

    def check_lists(self, body: Any) -> None:
        raise BadOption(
            f"{self._name}() is given batches, and a batch gathers what is sent by itself: leave if_exists='merge' out, and "
            "send each item under a key of its own, or none."
        )

    def of_json(self, raw: bytes) -> dict[str, Any] | None:
        try:
            if self._shape is None:
                self.prepare()
            return None if self._read_item is None else {self.parameter: self._read_item(raw)}
        except Exception:
            return None

    def read(self, body: Any) -> dict[str, Any]:
        try:
            return super().read({self.parameter: body})
        except Unfit as error:
            many = " Send one item; send_many takes a list of them." if isinstance(body, list) else ""
            raise Unfit(str(error).replace(f"`$.{self.parameter}", "`$") + many) from error.__cause__

    def _prepare(self) -> type[msgspec.Struct]:
        shape = super()._prepare()
        if self._decode is not None:
            self._read_item = msgspec.json.Decoder(self._hints()[self.parameter]).decode
        return shape

    def _hints(self) -> dict[str, Any]:
        hint = super()._hints().get(self.parameter, Any)
        return {self.parameter: self._item_of(hint)}

    def _item_of(self, hint: Any) -> Any:
        """What is in the list."""
        while hasattr(hint, "__metadata__") or hasattr(hint, "__value__"):  # Annotated, or a type alias
            hint = hint.__origin__ if hasattr(hint, "__metadata__") else hint.__value__
        if hint is Any or hint in _LISTS:
            return Any
        if typing.get_origin(hint) in _LISTS:
            return typing.get_args(hint)[0]
        shown = getattr(hint, "__name__", str(hint))
        raise ConfigError(
            f"{self._name}{self._signature} is given a batch, so its {self.parameter} is a list of items, and not of type "
            f"{shown}: write {self.parameter}: list[{shown}]."
        )

    def _known_elsewhere(self, body: Any, error: Unfit) -> bool:
        """Whether only the fields are others than the item has."""
        why = error.__cause__
        found: Any = getattr(why, "errors", None)
        if callable(found):
            return any(len(each["loc"]) == 1 and each["type"] in _OTHER_MODEL for each in found())
        return str(why).startswith(_OTHER_FIELDS) and str(why).endswith(f"`$.{self.parameter}`")

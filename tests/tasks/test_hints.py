"""What a task accepts as a type hint can be sent, and comes back equal; what could not is refused when the task is defined."""

import enum
import pathlib
from collections import deque
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Optional, TypedDict, Union, get_origin
from uuid import UUID

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from bide import BadBody, ConfigError, Queue
from bide.core.codec import JSON
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.items import Items


class Text(enum.Enum):
    A = "a"
    B = "b"


class Number(enum.IntEnum):
    ONE = 1


class Mixed(enum.Enum):
    TEXT = "r"
    NUMBER = 1


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Shape(TypedDict, total=False):
    when: datetime


@dataclass(frozen=True)
class Line:
    price: Decimal
    day: date | None = None


DICT: Any = dict  # for type checkers, what is in it need not be a type
SET: Any = set
UNION: Any = Union
zones: Any = st.none() | st.just(UTC) | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)
days = st.dates()
decimals = st.decimals(allow_nan=False, allow_infinity=False)
ints = st.integers(-(2**70), 2**70)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PLAIN: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, ints),
    (str, texts),
    (bool, st.booleans()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bytes, st.binary(max_size=4)),
    (None, st.none()),
    (datetime, moments),
    (date, days),
    (time, st.times()),
    (timedelta, st.timedeltas(timedelta(days=-999), timedelta(days=999))),
    (UUID, st.uuids()),
    (Decimal, decimals),
    (Text, st.sampled_from(Text)),
    (Number, st.just(Number.ONE)),
    (Mixed, st.sampled_from(Mixed)),
    (Literal["a", 1, None], st.sampled_from(["a", 1, None])),
    (Pair, st.builds(Pair, ints, texts)),
    (Shape, st.fixed_dictionaries({}, optional={"when": moments})),
    (Line, st.builds(Line, decimals, st.none() | days)),
    (pathlib.Path, st.just(pathlib.Path("/a"))),
    (complex, st.just(1j)),
    (deque[int], st.just(deque([1]))),
]


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def one(made: Any) -> st.SearchStrategy[Any]:
        hint: Any
        hint, value = made
        return st.sampled_from(
            [
                (list[hint], st.lists(value, max_size=2)),
                (dict[str, hint], st.dictionaries(texts, value, max_size=2)),
                (tuple[hint, int], st.tuples(value, ints)),
                (tuple[hint, ...], st.lists(value, max_size=2).map(tuple)),
                (Optional[hint], st.none() | value),  # noqa: UP045  (a hint may be no type)
            ]
        )

    def two(made: Any) -> st.SearchStrategy[Any]:
        (first, of_first), (second, of_second) = made
        keys = of_first.filter(_has_hash)
        several = (UNION[first, second], of_first | of_second)
        return st.sampled_from(
            [
                several,
                (DICT[first, second], st.dictionaries(keys, of_second, max_size=2)) if _one_type(first) else several,
                (SET[first], st.sets(keys, max_size=2)),
                (make_dataclass("Made", [("a", first), ("b", second)]), None),
            ]
        ).map(lambda each: each if each[1] is not None else (each[0], st.builds(each[0], of_first, of_second)))

    return inner.flatmap(one) | st.tuples(inner, inner).flatmap(two)


def _one_type(hint: Any) -> bool:
    """Keys are all text in JSON: of a union, an int and its text could not be told apart."""
    return get_origin(hint) not in (Union, Literal)


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


hints = st.recursive(st.sampled_from(PLAIN), _wider, max_leaves=4)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), has_default=st.booleans())
def test_what_is_accepted_can_be_sent_and_comes_back_equal(data: st.DataObject, has_default: bool) -> None:
    hint, values = data.draw(hints)

    def handle(value: Any) -> None: ...

    handle.__annotations__["value"] = hint
    try:
        task = Definition(handle, topic="t")
    except ConfigError:
        event("refused")
        return
    event("accepted")
    value = data.draw(values)
    raw = JSON.encode(task.arguments.bind((value,), {}))
    for found in (task.arguments.of_message(JSON.decode(raw)), task.arguments.of_json(raw)):
        if found is not None:
            assert found == {"value": value}
            assert type(found["value"]) is type(value) or isinstance(value, int | float)


@pytest.mark.parametrize(
    "hint",
    [
        Mixed, list[Mixed | None], dict[Mixed, int], datetime | str, Decimal | str, UUID | str, bytes | str, Text | str,
        date | datetime, list[int] | set[int], dict[bool, int], dict[tuple[int, int], str], pathlib.Path, complex, deque[int],
        list[pathlib.Path], dict[str, complex], make_dataclass("Made", [("path", pathlib.Path)]),
    ],
    ids=str,
)  # fmt: skip
def test_what_would_not_arrive_is_refused_when_the_task_is_defined(bide_queue: Queue, hint: Any) -> None:
    def handle(value: Any) -> None: ...

    def batch(values: list[Any]) -> None: ...

    handle.__annotations__["value"] = hint
    batch.__annotations__["values"] = list[hint]
    for function, options in ((handle, {}), (batch, {"batch": 10})):
        with pytest.raises(ConfigError, match=r"can't be used: .* take one of these types|can't be sent its value"):
            bide_queue.task("t", **options)(function)  # type: ignore[call-overload]


def test_what_can_be_looked_up_later_only_is_refused_at_the_first_send(bide_queue: Queue) -> None:
    def handle(value: "Later") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    task = bide_queue.task("t")(handle)
    with pytest.raises(ConfigError, match="name 'Later' is not defined"):
        task.send(1)


def test_a_parameter_with_a_default_need_not_be_sent(bide_queue: Queue) -> None:
    seen: list[Any] = []

    def handle(order: int, where: pathlib.Path = pathlib.Path("/tmp")) -> None:
        seen.append((order, where))

    task = bide_queue.task("t")(handle)
    task.send(1)
    bide_queue.testing.advance(0)
    assert seen == [(1, pathlib.Path("/tmp"))]
    with pytest.raises(BadBody):
        task.send(2, pathlib.Path("/a"))


def test_of_an_any_anything_is_accepted() -> None:
    assert Items(lambda items: None, "f").of_message(1) == {"items": 1}

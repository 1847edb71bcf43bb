"""Arguments travel as one JSON object and come out as annotated."""

import enum
import json
import pickle
import zlib
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict, Unpack
from uuid import UUID

import msgspec
import pytest

from bide import BadBody, BadMessage, BadOption, ConfigError, Queue, Snooze, steps
from bide.queue.tasks.arguments import Arguments
from bide.queue.tasks.definition import Definition
from tests.tasks import postponed

Do = Callable[[Any], Any]
OrderId = NewType("OrderId", int)


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


@dataclass
class Line:
    article: str
    amount: int = 1


@dataclass(frozen=True)
class Order:
    number: int
    lines: list[Line]
    placed: datetime


class Parcel(msgspec.Struct):
    weight: Decimal
    inside: "Parcel | None" = None


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: int


class Place(NamedTuple):
    shelf: int
    box: str


class Address(TypedDict):
    city: str


class Further(TypedDict, total=False):
    reason: str
    refund: Decimal


NOON = datetime(2030, 1, 15, 12, 30, 0, 123456, tzinfo=UTC)
NUMBER = UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 2**70),
        (float, 1.5),
        (bool, True),
        (str, "ä\u2028\U0001f600\0"),
        (bytes, b"\x00\xff"),
        (None, None),
        (datetime, NOON),
        (datetime, NOON.replace(tzinfo=None)),
        (date, date(2030, 1, 15)),
        (time, time(9, 30)),
        (timedelta, timedelta(days=1, microseconds=5)),
        (UUID, NUMBER),
        (Decimal, Decimal("19.90")),
        (Colour, Colour.RED),
        (Size, Size.LARGE),
        (Literal["high", "low"], "low"),
        (OrderId, OrderId(42)),
        (int | None, None),
        (int | None, 3),
        (str | int | list[int], [1]),
        (list[list[UUID]], [[NUMBER], []]),
        (dict[str, Decimal], {"a": Decimal(1)}),
        (dict[int, list[date]], {1: [date(2030, 1, 15)]}),
        (dict[UUID, int], {NUMBER: 1}),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2)),
        (set[int], {1, 2}),
        (frozenset[str], frozenset({"a"})),
        (Mapping[str, int], {"a": 1}),
        (Sequence[int], [1]),
        (Order, Order(42, [Line("tea"), Line("pot", 2)], NOON)),
        (list[Order] | None, [Order(42, [], NOON)]),
        (Parcel, Parcel(Decimal("1.50"), Parcel(Decimal(1)))),
        (Cat | Dog, Dog(3)),
        (Place, Place(3, "b")),
        (Address, {"city": "Ulm"}),
        (Any, {"a": [1, None]}),
        (object, {"a": [1, None]}),
        (Annotated[int, msgspec.Meta(gt=0)], 1),
    ],
    ids=lambda each: str(each)[:40],
)
@pytest.mark.parametrize("has_default", [False, True], ids=["required", "with a default"])
def test_what_is_sent_comes_out_as_annotated(bide_queue: Queue, hint: Any, value: Any, has_default: bool) -> None:
    got: list[Any] = []

    def handle(value: Any = "its default") -> None:
        got.append(value)

    def required(value: Any) -> None:
        got.append(value)

    handler = handle if has_default else required
    handler.__annotations__["value"] = hint
    bide_queue.task("t")(handler).send(value)
    [handled] = bide_queue.testing.advance(0)
    assert handled.error is None
    assert got == [value]
    assert type(got[0]) is type(value)


def test_without_hints_things_come_out_in_their_json_form(bide_queue: Queue) -> None:
    got: list[Any] = []
    bide_queue.task("t")(lambda when, raw: got.append((when, raw))).send(NOON, b"ab")
    bide_queue.testing.advance(0)
    assert got == [("2030-01-15T12:30:00.123456Z", "YWI=")]


def test_hints_may_be_text_and_name_what_is_defined_further_down(bide_queue: Queue) -> None:
    postponed.packed.clear()
    task = bide_queue.task("t")(postponed.pack)
    parcel = postponed.Parcel(1, postponed.Parcel(2))
    task.send(parcel, marks={1: "fragile"})
    task.send(parcel, NOON, [parcel], marks={})
    assert {each.outcome for each in bide_queue.testing.advance(0)} == {"done"}
    assert postponed.packed == [(parcel, None, (), {1: "fragile"}), (parcel, NOON, [parcel], {})]


@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (int, "42", "Expected `int`, got `str` - at `$.value`"),
        (int, 1.5, "Expected `int`, got `float`"),
        (int, True, "Expected `int`, got `bool`"),
        (int, None, "Expected `int`, got `null`"),
        (str, 42, "Expected `str`, got `int`"),
        (datetime, "tomorrow", "Invalid RFC3339"),
        (UUID, "nonsense", "Invalid UUID"),
        (Colour, "blue", "Invalid enum value 'blue'"),
        (Literal["a"], "b", "Invalid enum value 'b'"),
        (list[int], [1, "2"], r"at `$.value[1]`"),
        (Order, {"number": 1}, "missing required field `lines`"),
        (Annotated[int, msgspec.Meta(gt=0)], 0, "Expected `int` >= 1"),
    ],
    ids=str,
)
def test_what_is_wrongly_typed_is_refused_and_nothing_is_stored(queue: Any, do: Do, hint: Any, value: Any, text: str) -> None:
    def handle(value: Any) -> None: ...

    handle.__annotations__["value"] = hint
    task = queue.task("t")(handle)
    with pytest.raises(BadMessage, match=r"^handle\(value: .*\) -> None can't take this message: ") as refused:
        do(task.send(value))
    assert text in str(refused.value)
    assert do(queue.stats()).pending == 0


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "missing a required argument: 'order'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"order": 2}, "multiple values for argument 'order'"),
        ((), {"order": 1, "ordre": 2}, "unexpected keyword argument 'ordre'"),
    ],
)
def test_missing_and_unknown_arguments_are_refused_and_nothing_is_stored(
    queue: Any, do: Do, args: Any, kwargs: Any, text: str
) -> None:
    task = queue.task("t")(lambda order, note="": None)
    with pytest.raises(BadMessage, match="was sent other arguments than it takes") as refused:
        do(task.send(*args, **kwargs))
    assert text in str(refused.value)
    assert do(queue.stats()).pending == 0


@pytest.mark.parametrize("value", [{1, 2}.__iter__(), object(), float("nan"), {(1, 2): 3}, "\ud800"], ids=type)
def test_what_can_not_be_encoded_is_refused_and_nothing_is_stored(queue: Any, do: Do, value: Any) -> None:
    with pytest.raises(BadBody, match="can't be encoded"):
        do(queue.task("t")(lambda value: None).send(value))
    assert do(queue.stats()).pending == 0


@pytest.mark.parametrize("body", [[], "x", 1, {"order": "x"}], ids=str)
def test_a_message_with_other_arguments_is_dead_at_once_with_a_sentence(queue: Any, do: Do, body: Any) -> None:
    def cancel(order: int) -> None:
        raise AssertionError("was called")

    queue.task("t")(cancel)
    do(queue.send("t", body))
    [handled] = do(queue.testing.advance(0, raise_errors=False))
    assert (handled.outcome, type(handled.error).__mro__[1]) == ("dead", BadBody)
    [dead] = do(queue.messages("t", state="dead"))
    assert dead.last_error.startswith("cancel(order: int) -> None can't take this message: ")
    assert dead.attempt == 1


@pytest.mark.parametrize("body", [None, {}, {"order": 1, "ordre": 2}, {"ordre": 1}], ids=str)
@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_message_with_unknown_or_missing_arguments_waits_ten_minutes_for_another_release(
    queue: Any, do: Do, body: Any, max_attempts: int
) -> None:
    def cancel(order: int) -> None:
        raise AssertionError("was called")

    queue.task("t", max_attempts=max_attempts)(cancel)
    do(queue.send("t", body))
    began, tried = queue.session.setup.clock.now_ms, []
    for _ in range(700):
        handled = do(queue.testing.advance("1s", raise_errors=False))
        tried += [(each.outcome, (queue.session.setup.clock.now_ms - began) // 1000) for each in handled]
    waits = [("waits", at) for at in (1, 1, 2, 4, 8, 16, 32, 64, 124, 184, 244, 304, 364, 424, 484, 544)]
    assert tried == [*waits, ("dead", 600)]
    [dead] = do(queue.messages("t", state="dead"))
    assert dead.attempt == 1
    assert dead.last_error.startswith("cancel(order: int) -> None can't take this message: ")


def test_a_message_of_a_newer_release_waits_for_its_worker(queue: Any, do: Do) -> None:
    calls: list[Any] = []

    def old(order: int) -> None:
        raise AssertionError("was called")

    def new(order: int, *, reason: str) -> None:
        calls.append((order, reason))

    old.__qualname__ = new.__qualname__ = "cancel"
    queue.task("t")(old)
    do(queue.send("t", {"order": 1, "reason": "late"}))
    assert [each.outcome for each in do(queue.testing.advance(0, raise_errors=False))] == ["waits"]
    queue.session.setup.tasks._by_topic["t"] = Definition(
        new, topic="t", aliases=[], max_attempts=3, backoff=steps("1s"), timeout=None
    )  # as in another worker
    assert [each.outcome for each in do(queue.testing.advance("1m"))] == ["done"]
    assert calls == [(1, "late")]


def test_a_message_that_has_waited_for_something_else_waits_as_long_for_another_release(queue: Any, do: Do) -> None:
    def old(order: int, reason: str) -> None:
        raise Snooze("1h")

    def new(order: int) -> None: ...

    old.__qualname__ = new.__qualname__ = "cancel"
    queue.task("t")(old)
    do(queue.send("t", {"order": 1, "reason": "late"}))
    assert [each.outcome for each in do(queue.testing.advance("59m"))] == ["snoozed"]
    queue.session.setup.tasks._by_topic["t"] = Definition(new, topic="t")
    handled = do(queue.testing.advance("10m", raise_errors=False))
    assert {each.outcome for each in handled} == {"waits"}
    handled = do(queue.testing.advance("2m", raise_errors=False))
    assert [each.outcome for each in handled] == ["waits", "dead"]


def test_unknown_arguments_can_be_ignored_but_not_sent(queue: Any, do: Do) -> None:
    calls = []

    def cancel(order: int, reason: str = "late") -> None:
        calls.append((order, reason))

    task = queue.task("t", unknown="ignore", max_attempts=1)(cancel)
    do(queue.send("t", {"order": 1, "ordre": 2}))
    do(queue.testing.advance(0))
    assert calls == [(1, "late")]
    with pytest.raises(BadMessage, match="other arguments"):
        do(task.send(1, ordre=2))
    do(queue.send("t", {"ordre": 2}))  # one is missing still
    assert [each.outcome for each in do(queue.testing.advance(0, raise_errors=False))] == ["waits"]


def test_another_word_for_unknown_is_refused(queue: Any) -> None:
    with pytest.raises(BadOption, match=r"unknown is 'drop'\. Give 'retry', or 'ignore'"):
        queue.task("t", unknown="drop")(lambda: None)


def test_no_body_is_no_arguments(queue: Any, do: Do) -> None:
    called = []
    task = queue.task("t")(lambda note="none": called.append(note))
    do(queue.send("t"))
    do(queue.send("t", {}))
    do(task.send())
    do(queue.testing.advance(0))
    assert called == ["none"] * 3


def test_defaults_are_not_sent(queue: Any, do: Do) -> None:
    task = queue.task("t")(lambda order, note="", when=NOON: None)
    assert do(queue.get(do(task.send(42)))).body == {"order": 42}
    assert do(queue.get(do(task.send(42, "")))).body == {"order": 42, "note": ""}


def test_a_default_that_can_change_is_the_functions_own(bide_queue: Queue) -> None:
    def collect(order: int, seen: list[int] = []) -> list[int]:  # noqa: B006
        seen.append(order)
        return seen

    task = bide_queue.task("t")(collect)
    task.send(1)
    task.send(2, [])
    bide_queue.testing.advance(0)
    assert task(3) == [1, 3]


def test_a_default_need_not_be_what_can_travel(bide_queue: Queue) -> None:
    nothing = object()
    got = []

    def handle(order: int = nothing) -> None:  # type: ignore[assignment]
        got.append(order)

    bide_queue.task("t")(handle).send()
    bide_queue.testing.advance(0)
    assert got == [nothing]


def test_keyword_only_arguments_travel(bide_queue: Queue) -> None:
    got = []

    def handle(order: int, *, when: datetime, note: str = "none") -> None:
        got.append((order, when, note))

    bide_queue.task("t")(handle).send(1, when=NOON)
    bide_queue.testing.advance(0)
    assert got == [(1, NOON, "none")]


def test_further_arguments_by_name_travel_and_are_checked(bide_queue: Queue) -> None:
    got = []

    def handle(order: int, **amounts: Decimal) -> None:
        got.append((order, amounts))

    task = bide_queue.task("t")(handle)
    task.send(1, tea=Decimal("1.50"), amounts=Decimal(2))
    task.send(2)
    with pytest.raises(BadMessage, match="can't take this message"):
        task.send(3, tea="much")  # type: ignore[arg-type]
    bide_queue.testing.advance(0)
    assert got == [(1, {"tea": Decimal("1.50"), "amounts": Decimal(2)}), (2, {})]


def test_further_arguments_may_have_a_shape(bide_queue: Queue) -> None:
    got: list[Any] = []

    def handle(order: int, **further: Unpack[Further]) -> None:
        got.append(further)

    task = bide_queue.task("t")(handle)
    task.send(1, refund=Decimal("1.50"))
    with pytest.raises(BadMessage, match="can't take this message"):
        bide_queue.task("t")(handle).send(1, refund="all")  # type: ignore[arg-type]
    bide_queue.testing.advance(0)
    assert got == [{"refund": Decimal("1.50")}]


@pytest.mark.parametrize("name", ["name", "type", "id", "key", "delay", "topic", "args", "kwargs", "cls", "_x", "class_"])
def test_an_argument_may_have_any_name(bide_queue: Queue, name: str) -> None:
    got: list[Any] = []
    handle = eval(f"lambda {name}: got.append({name})", {"got": got})
    bide_queue.task("t")(handle).send(**{name: 1})
    bide_queue.send("t", {name: 2})
    bide_queue.testing.advance(0)
    assert got == [1, 2]


@pytest.mark.parametrize("error", [ValueError("too many"), RuntimeError("too many"), KeyError("too many")], ids=repr)
def test_what_a_type_raises_while_it_is_made_is_a_refusal(bide_queue: Queue, error: Exception) -> None:
    @dataclass
    class Lines:
        amount: int

        def __post_init__(self) -> None:
            if self.amount > 3:
                raise error

    def handle(lines: Any) -> None: ...

    handle.__annotations__["lines"] = Lines
    task = bide_queue.task("t")(handle)
    task.send({"amount": 3})
    with pytest.raises(BadMessage, match=r"can't take this message: .*too many"):
        task.send({"amount": 4})
    bide_queue.send("t", {"lines": {"amount": 4}})
    assert sorted(each.outcome for each in bide_queue.testing.advance(0, raise_errors=False)) == ["dead", "done"]


class Packed:
    """JSON, compressed."""

    def encode(self, body: Any) -> bytes:
        return zlib.compress(json.dumps(body, default=str).encode())

    def decode(self, raw: bytes) -> Any:
        return json.loads(zlib.decompress(raw))


class AsItIs:
    """For a test only: things come back as what they were."""

    def encode(self, body: Any) -> bytes:
        return pickle.dumps(body)

    def decode(self, raw: bytes) -> Any:
        return pickle.loads(raw)


@pytest.mark.parametrize("codec", [Packed(), AsItIs()], ids=lambda codec: type(codec).__name__)
def test_a_codec_of_the_queues_own_is_used(make_queue: Any, clock: Any, do: Do, codec: Any) -> None:
    queue = make_queue(clock=clock, codec=codec)
    got = []

    def handle(number: UUID, price: Decimal, day: date, counts: dict[int, int]) -> None:
        got.append((number, price, day, counts))

    sent = do(queue.task("t")(handle).send(NUMBER, Decimal("1.50"), date(2030, 1, 15), counts={1: 2}))
    [handled] = do(queue.testing.advance(0))
    assert (handled.id, handled.error) == (sent.id, None)
    assert got == [(NUMBER, Decimal("1.50"), date(2030, 1, 15), {1: 2})]


def test_too_much_is_refused_and_nothing_is_stored(make_queue: Any, clock: Any, do: Do) -> None:
    queue = make_queue(clock=clock, max_body=100)
    with pytest.raises(BadMessage, match="the limit is 100"):
        do(queue.task("t")(lambda note: None).send("x" * 100))
    assert do(queue.stats()).pending == 0


def test_a_type_that_nobody_knows_to_make_is_refused_with_a_sentence(bide_queue: Queue) -> None:
    class Own:
        pass

    def handle(own: Any) -> None: ...

    handle.__annotations__["own"] = Own
    with pytest.raises(ConfigError, match="does not know how to make a Own: take what JSON holds, a dataclass or a Struct"):
        bide_queue.task("t")(handle)


def test_types_that_can_not_be_told_apart_are_a_fault_of_the_task() -> None:
    def handle(pet: Any) -> None: ...

    handle.__annotations__["pet"] = Line | Order
    with pytest.raises(ConfigError, match=r"The type hints of handle.* can't be used"):
        Arguments(handle, "handle").prepare()


def test_a_named_tuple_without_types_travels(bide_queue: Queue) -> None:
    point = namedtuple("point", ["x", "y"])
    got: list[Any] = []

    def handle(at: Any) -> None:
        got.append(at)

    handle.__annotations__["at"] = point
    bide_queue.task("t")(handle).send(point(1, 2))
    bide_queue.testing.advance(0)
    assert got == [point(1, 2)]


def test_a_naive_datetime_arrives_naive_unless_the_hint_refuses_it() -> None:
    def remind(when: datetime) -> None: ...
    def strict(when: Annotated[datetime, msgspec.Meta(tz=True)]) -> None: ...

    naive, aware = datetime(2030, 1, 15, 9), datetime(2030, 1, 15, 9, tzinfo=UTC)
    with Queue("memory://") as queue:
        task, careful = queue.task("remind")(remind), queue.task("strict")(strict)
        for when in (naive, aware):
            task.send(when)
            [delivery] = queue.receive("remind")
            assert task.definition.arguments.of_message(delivery.body) == {"when": when}
        careful.send(aware)
        with pytest.raises(BadBody, match="timezone"):
            careful.send(naive)

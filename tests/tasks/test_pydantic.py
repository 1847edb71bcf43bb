"""Models of pydantic as arguments, where it is installed."""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, NewType

import pytest

from bide import BadMessage, ConfigError, Queue

pydantic = pytest.importorskip("pydantic")
alias_generators = pytest.importorskip("pydantic.alias_generators")
dataclasses = pytest.importorskip("pydantic.dataclasses")

PLACED = datetime(2030, 1, 15, 12, tzinfo=UTC)


@pytest.fixture
def model() -> Any:
    return pydantic.create_model("Order", number=(int, ...), placed=(datetime, PLACED), weight=(float, 1.0))


@pytest.fixture
def got() -> list[Any]:
    return []


def task_with(queue: Queue, hint: Any, got: list[Any]) -> Any:
    def handle(order: Any, more: Any = None) -> None:
        got.append(order)
        if more is not None:
            got.append(more)

    handle.__annotations__["order"] = hint
    handle.__annotations__["more"] = hint | None
    return queue.task("t")(handle)


def test_a_model_travels(bide_queue: Queue, model: Any, got: list[Any]) -> None:
    task_with(bide_queue, model, got).send(model(number=1), more=model(number=2))
    bide_queue.testing.advance(0)
    assert got == [model(number=1), model(number=2)]


def test_a_model_whose_instant_would_be_told_wrong_is_refused(bide_queue: Queue, model: Any, got: list[Any]) -> None:
    odd = PLACED.astimezone(timezone(timedelta(hours=1, seconds=1)))
    task = task_with(bide_queue, model, got)

    with pytest.raises(BadMessage, match=r"its order: it holds a datetime in UTC\+01:00:01, .* Give it in UTC"):
        task.send(model(number=1, placed=odd))


def test_a_model_travels_inside_of_other_things(bide_queue: Queue, model: Any, got: list[Any]) -> None:
    @dataclass
    class Parcel:
        orders: Any

    Parcel.__annotations__["orders"] = dict[str, list[model]]
    parcel = Parcel({"first": [model(number=1)]})
    task_with(bide_queue, Parcel, got).send(parcel)
    bide_queue.testing.advance(0)
    assert got == [parcel]


def test_a_model_is_made_of_what_came_as_json(bide_queue: Queue, model: Any, got: list[Any]) -> None:
    task_with(bide_queue, list[model], got)
    bide_queue.send("t", {"order": [{"number": 1, "placed": "2030-01-15T12:00:00Z"}, {"number": "2"}], "more": None})
    [handled] = bide_queue.testing.advance(0)
    assert handled.error is None
    assert got == [[model(number=1), model(number=2)]]


def test_what_is_no_such_model_is_refused_and_nothing_is_stored(bide_queue: Queue, model: Any) -> None:
    task = task_with(bide_queue, model, [])
    with pytest.raises(BadMessage, match=r"can't take this message: [\s\S]*valid integer"):
        task.send({"number": "many"})
    with pytest.raises(BadMessage, match="JSON has no word for"):
        task.send(model(number=1, weight=float("nan")))
    assert bide_queue.stats().pending == 0


def made(name: str, **fields: Any) -> Any:
    config = fields.pop("config", None)
    return pydantic.create_model(name, __config__=config, **fields)


def arrived(queue: Queue, hint: Any, value: Any) -> Any:
    got: list[Any] = []
    task_with(queue, hint, got).send(value)
    queue.testing.advance(0)
    return got[0]


def test_a_model_with_aliases_and_computed_fields_comes_back_as_it_was(bide_queue: Queue) -> None:
    class Base(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
        model_config = pydantic.ConfigDict(extra="forbid")

        @pydantic.computed_field  # type: ignore[prop-decorator,unused-ignore]
        @property
        def double(self) -> int:
            return 2

    user: Any = pydantic.create_model("User", __base__=Base, user_id=(int, pydantic.Field(alias="userId")))
    assert arrived(bide_queue, user, user(userId=7)) == user(userId=7)
    assert arrived(bide_queue, dict[str, user], {"x": user(userId=7)}) == {"x": user(userId=7)}


def test_a_strict_model_comes_back_as_it_was(bide_queue: Queue) -> None:
    strict = made("Strict", when=(datetime, ...), config=pydantic.ConfigDict(strict=True))
    assert arrived(bide_queue, strict, strict(when=PLACED)) == strict(when=PLACED)


def test_unions_of_models_are_told_apart(bide_queue: Queue, model: Any) -> None:
    other: Any = made("Other", user_id=(int, pydantic.Field(alias="userId")))
    for hint in (model | other, list[model | other | int]):
        for value in (model(number=1), other(userId=2)):
            given = [value, 3] if hint != model | other else value
            assert arrived(bide_queue, hint, given) == given


def test_types_of_pydantic_travel(bide_queue: Queue) -> None:
    url = pydantic.TypeAdapter(pydantic.HttpUrl).validate_python("http://a.example/")
    assert arrived(bide_queue, pydantic.HttpUrl, url) == url
    root = pydantic.RootModel[list[int]]
    assert arrived(bide_queue, root, root([1, 2])) == root([1, 2])


@pytest.mark.parametrize(
    "hint",
    [
        Annotated[int, pydantic.Field(gt=0)],
        list[Annotated[int, pydantic.Field(gt=0)]] | Annotated[int, pydantic.Field(gt=0)],
        NewType("Positive", pydantic.PositiveInt),
    ],
    ids=["plain", "in a union", "behind a name"],
)
def test_what_a_hint_says_to_pydantic_is_checked_on_both_ends(bide_queue: Queue, hint: Any) -> None:
    assert arrived(bide_queue, hint, 5) == 5
    with pytest.raises(BadMessage, match=r"its order: .*greater than 0"):
        task_with(bide_queue, hint, []).send(-5)
    bide_queue.send("t", {"order": -5})
    [handled] = bide_queue.testing.advance("1d", raise_errors=False)[-1:]
    assert handled.outcome == "dead"
    assert "greater than 0" in str(handled.error)


def test_a_dataclass_of_pydantic_is_checked(bide_queue: Queue) -> None:
    @dataclasses.dataclass
    class Parcel:
        weight: int = pydantic.Field(gt=0)

    parcel: Any = pydantic.TypeAdapter(Parcel).validate_python({"weight": 1})
    assert arrived(bide_queue, Parcel, parcel) == parcel
    with pytest.raises(BadMessage, match="greater than 0"):
        task_with(bide_queue, Parcel, []).send({"weight": -1})


def test_further_arguments_are_made_by_pydantic_too(bide_queue: Queue, model: Any) -> None:
    got: list[Any] = []

    def handle(**orders: Any) -> None:
        got.append(orders)

    handle.__annotations__["orders"] = model
    bide_queue.task("t")(handle).send(first=model(number=1))
    bide_queue.testing.advance(0)
    assert got == [{"first": model(number=1)}]


class Key(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    token: pydantic.SecretStr  # type: ignore[name-defined]


class Cache(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    order: int
    hidden: int = pydantic.Field(default=5, exclude=True)


class Renamed(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    order: int = pydantic.Field(default=5, serialization_alias="theOrder")


class ReadByPath(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    order: int = pydantic.Field(default=5, validation_alias=pydantic.AliasPath("orders", 0))


class ReadOtherwise(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    order: int = pydantic.Field(default=5, validation_alias=pydantic.AliasChoices("a", "b"))


class Camel(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    model_config = pydantic.ConfigDict(alias_generator=pydantic.AliasGenerator(serialization_alias=alias_generators.to_camel))
    the_order: int = 5


@pydantic.dataclasses.dataclass
class Made:
    made: int = pydantic.Field(default=5, init=False)


@dataclass
class Around:
    inner: list[Key]


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        (pydantic.SecretStr, "SecretStr is a secret"),
        (Key, "SecretStr is a secret"),
        (dict[str, Key] | None, "SecretStr is a secret"),
        (Around, "SecretStr is a secret"),
        (Cache, r"Cache\.hidden has exclude=True"),
        (Renamed, r"Renamed\.order is written as theOrder"),
        (list[ReadByPath], r"ReadByPath\.order is written as order"),
        (ReadOtherwise, r"ReadOtherwise\.order is written as order"),
        (Camel, r"Camel\.the_order is written as theOrder"),
        (Made, r"Made\.made has init=False"),
    ],
    ids=str,
)
def test_what_would_not_arrive_is_refused_when_the_task_is_defined(bide_queue: Queue, hint: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=f"can't be sent its order: {why}"):
        task_with(bide_queue, hint, [])


@pytest.mark.parametrize("body", [Key(token="x"), {"deep": [Cache(order=1)]}], ids=str)
def test_what_would_not_arrive_of_a_body_is_refused_when_it_is_sent(bide_queue: Queue, body: Any) -> None:
    with pytest.raises(BadMessage, match=r"is a secret|exclude=True"):
        bide_queue.send("t", body)
    assert bide_queue.stats().pending == 0


def test_a_secret_with_a_serializer_of_its_own_travels(bide_queue: Queue) -> None:
    class Told(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
        token: pydantic.SecretStr  # type: ignore[name-defined]

        @pydantic.field_serializer("token")  # type: ignore[untyped-decorator,unused-ignore]
        def tell(self, secret: Any) -> Any:
            return secret.get_secret_value()

    shown = Annotated[pydantic.SecretStr, pydantic.PlainSerializer(lambda secret: secret.get_secret_value())]  # type: ignore[name-defined]
    assert arrived(bide_queue, Told, Told(token="x")) == Told(token="x")
    assert arrived(bide_queue, shown, pydantic.SecretStr("x")) == pydantic.SecretStr("x")


def test_a_refusal_does_not_show_the_value(bide_queue: Queue, model: Any, caplog: pytest.LogCaptureFixture) -> None:
    task_with(bide_queue, model, [])
    bide_queue.send("t", {"order": {"number": "a private matter"}})
    with caplog.at_level(logging.DEBUG):
        bide_queue.testing.advance("1d", raise_errors=False)
    assert "valid integer" in caplog.text
    assert "a private matter" not in caplog.text


def test_names_that_are_read_as_they_are_written_travel(bide_queue: Queue) -> None:
    class Plain(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
        order: int = pydantic.Field(default=5, alias="theOrder")

    class ByName(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
        model_config = pydantic.ConfigDict(populate_by_name=True)
        order: int = pydantic.Field(default=5, validation_alias=pydantic.AliasChoices("a", "b"))

    class Chosen(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
        order: int = pydantic.Field(
            default=5, serialization_alias="b", validation_alias=pydantic.AliasChoices("a", pydantic.AliasPath("b"))
        )

    class Mapped(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
        order: int = pydantic.Field(default=5, serialization_alias="theOrder")

        @pydantic.model_validator(mode="before")
        @classmethod
        def _take_both(cls, data: Any) -> Any:
            return {"order": data["theOrder"]} if isinstance(data, dict) and "theOrder" in data else data

    for sent in (Plain(theOrder=1), ByName(order=1), Chosen(a=1), Mapped(order=1)):
        got: list[Any] = []
        task_with(bide_queue, type(sent), got).send(sent)
        bide_queue.testing.advance(0)
        assert got == [sent]

"""Models of pydantic as arguments, where it is installed."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from bide import BadMessage, Queue

pydantic = pytest.importorskip("pydantic")

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

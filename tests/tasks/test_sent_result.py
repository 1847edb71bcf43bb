"""sent.result(): what a send of a task with keep= returns can be asked for the result; it is a plain value all the same."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bide import AsyncKeepingTask, AsyncTaskSent, Exists, KeepingTask, ResultCancelled, ResultPending, Sent, TaskSent

Do = Callable[[Any], Any]


@pytest.fixture
def add(queue: Any) -> Any:
    @queue.task("add", keep="1h")
    async def add(a: int, b: int) -> int:
        return a + b

    return add


SENDS: dict[str, Callable[[Any, Any], Any]] = {
    "task.send": lambda queue, add: add.send(1, 2),
    "task.options.send": lambda queue, add: add.options(priority="high").send(1, 2),
    "task.after.send": lambda queue, add: add.after("1m").send(1, 2),
    "task.send_many": lambda queue, add: add.send_many([{"a": 1, "b": 2}]),
    "queue.send": lambda queue, add: queue.send("add", {"a": 1, "b": 2}),
    "queue.send_many": lambda queue, add: queue.send_many("add", [{"a": 1, "b": 2}]),
    "task.on.send": lambda queue, add: add.on(queue).send(1, 2),
}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS.keys())
def test_whatever_sent_it_a_message_is_asked_for_its_result(queue: Any, do: Do, add: Any, send: Any) -> None:
    told = do(send(queue, add))
    [sent] = told if isinstance(told, list) else [told]
    with pytest.raises(ResultPending):
        do(sent.result(timeout=0))
    do(queue.testing.advance("1m"))
    assert do(sent.result(timeout=0)) == do(sent.result()) == do(queue.result(sent)) == 3


def test_the_message_that_has_the_key_already_is_asked_for_its_result(queue: Any, do: Do, add: Any) -> None:
    first = do(add.options(key="k").send(1, 2))
    assert do(add.options(key="k").send(5, 5)).id == first.id
    with pytest.raises(Exists) as told:
        do(add.options(key="k", if_exists="error").send(5, 5))
    do(queue.testing.advance(0))
    assert do(told.value.sent.result(timeout=0)) == 3


def test_a_queue_that_a_task_was_lent_to_remembers_what_was_sent(make_queue: Any, do: Do, add: Any) -> None:
    other = make_queue()
    sent = do(add.on(other).after("1h").send(1, 2))
    assert do(other.cancel(sent))
    with pytest.raises(ResultCancelled):
        do(sent.result(timeout=0))


def test_it_is_a_plain_value(queue: Any, do: Do, add: Any) -> None:
    sent: Sent = do(add.after("1h").send(1, 2))
    plain = Sent(sent.id, sent.topic, sent.due, sent.outcome)
    assert isinstance(add, (AsyncKeepingTask, KeepingTask))
    assert type(sent) in (AsyncTaskSent, TaskSent)
    assert sent == plain
    assert plain == sent
    assert (sent != plain) is False
    assert sent != msgspec.structs.replace(plain, due=plain.due + 1)
    assert {plain: "found"}[sent] == {sent: "found"}[plain] == "found"
    assert bool(sent)
    assert str(sent) == sent.id
    assert copy.copy(sent) is sent
    for stored in (pickle.loads(pickle.dumps(sent)), copy.deepcopy(sent)):
        assert type(stored) is Sent
        assert stored == sent
    assert msgspec.json.encode(sent) == msgspec.json.encode(plain)


def test_without_keep_the_error_says_what_to_do(queue: Any, do: Do, add: Any) -> None:
    @queue.task("other")
    def other() -> None: ...

    sent = do(add.send(1, 2))
    for none in (do(other.send()), do(queue.send("unknown")), pickle.loads(pickle.dumps(sent))):
        assert type(none) is Sent
        with pytest.raises(TypeError, match=r"keep='1h'.*queue\.result\(sent\)"):
            none.result(timeout=0)
    with pytest.raises(TypeError, match=r"queue\.result\(sent\)"):
        do(msgspec.structs.replace(sent, due=0).result())
    do(queue.testing.advance(0))
    assert do(queue.result(pickle.loads(pickle.dumps(sent)))) == 3

"""Sends of a task that are gathered: the handler gets the items of all."""

from collections.abc import Callable
from typing import Any

import pytest

from bide import BadOption

Do = Callable[[Any], Any]
MERGE: dict[str, Any] = {"key": "k", "if_exists": "merge"}


@pytest.fixture
def called() -> list[Any]:
    return []


@pytest.fixture
def task(queue: Any, called: list[Any]) -> Any:
    def store(users: list[int], posts: list[str] = ()) -> None:  # type: ignore[assignment]
        called.append((users, posts))

    return queue.task("store")(store)


def test_the_handler_gets_the_items_of_all_sends(queue: Any, task: Any, do: Do, called: list[Any]) -> None:
    sent = [do(task.after("1m", **MERGE).send(users=[user], posts=[f"p{user}"])) for user in (7, 8)]
    sent.append(do(task.after("5m", **MERGE).send([9, 10])))
    assert [each.outcome for each in sent] == ["created", "merged", "merged"]
    do(queue.testing.advance("1m"))
    assert called == [([7, 8, 9, 10], ["p7", "p8"])]
    # One alone is the same
    do(task.after("1m", **MERGE).send(users=[1]))
    do(queue.testing.advance("1m"))
    assert called[1:] == [([1], ())]


def test_arguments_that_are_no_lists_are_refused(queue: Any, do: Do) -> None:
    def pack(order: int, items: list[str]) -> None: ...

    task = queue.task("pack")(pack)
    with pytest.raises(BadOption, match=r"order of .*pack\(\) is none: give it one, order=\[…\]"):
        do(task.after("1m", **MERGE).send(order=1, items=["a"]))
    assert do(queue.stats("pack")).pending == 0
    assert do(task.send(order=1, items=["a"])).created


def test_a_list_that_is_no_arguments_is_no_call(queue: Any, task: Any, do: Do, called: list[Any]) -> None:
    for body in ([1, 2], [{"users": 1}], [{"users": [1]}, {"nobody": [2]}], ["users"]):
        do(queue.send("store", body, max_attempts=1))
    do(queue.send("store", {"users": [3]}, **MERGE))  # without the task, the same message
    do(queue.testing.advance("1s", raise_errors=False))
    assert called == [([3], ())]
    dead = do(queue.messages("store", state="dead"))
    assert len(dead) == 4
    assert all("can't take this message" in each.last_error for each in dead)


def test_a_task_with_batches_refuses_merged_sends(queue: Any, do: Do) -> None:
    def count(users: list[Any]) -> None: ...

    task = queue.task("count", batch=10)(count)
    for item in (7, {"user": [7]}, [7]):
        with pytest.raises(BadOption, match=r"a batch gathers what is sent by itself: leave if_exists='merge' out"):
            do(task.options(**MERGE).send(item))
    assert do(queue.stats("count")).pending == 0

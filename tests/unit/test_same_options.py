"""Options that are written out in several places, for editors and type checkers, are the same in each."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from bide import AsyncQueue, Queue
from bide.queue.tasks.definition import Definition, TaskOptions
from bide.types import Outgoing, SendOptions

NOT_LATER = {"connection", "depends_on", "deadline"}
NOT_OF_MANY = NOT_LATER | {"operation"}  # one for all of a send_many, or for a send of its own
IN_OVERLOADS = {"topic", "keep", "batch", "linger"}  # what kind of task it is


def options(function: Callable[..., Any]) -> dict[str, Any]:
    found = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in found if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize("queue", [AsyncQueue, Queue])
def test_a_send_in_the_background_takes_the_options_of_a_send(queue: Any) -> None:
    assert options(queue.later) == {name: at for name, at in options(queue.send).items() if name not in NOT_LATER}
    assert options(queue.send).keys() == SendOptions.__optional_keys__


@pytest.mark.parametrize("queue", [AsyncQueue, Queue])
def test_a_task_is_defined_with_the_options_that_it_is_given(queue: Any) -> None:
    assert options(queue.task) | {"topic": None} == options(Definition.__init__)


def test_editors_are_told_all_options_of_a_task() -> None:
    assert TaskOptions.__optional_keys__ | IN_OVERLOADS == options(Definition.__init__).keys()


def test_each_of_many_messages_takes_the_options_of_a_send() -> None:
    assert set(Outgoing.__struct_fields__) - {"body"} == SendOptions.__optional_keys__ - NOT_OF_MANY

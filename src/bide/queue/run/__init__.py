"""The road of a message from its claim to its end. A worker takes many side by side, and time travel one after the other.

Here: which steps a message takes before its handler is called.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

from bide.engines.base import Claimed
from bide.queue.deliveries import PLANNED
from bide.queue.tasks.definition import Definition

StepName: TypeAlias = Literal["schedule", "overdue"]
"""A step that may leave a message out, or put it off; the limits of its task come after it."""


class Message(Protocol):
    """One that is under way."""

    @property
    def task(self) -> Definition: ...

    @property
    def delivery(self) -> Any:
        """Of either colour."""


def first_step(task: Definition, claimed: Claimed, now: int) -> StepName | None:
    """The step that a message takes first, if any but the limits of its task. `now`: the engine's time."""
    if PLANNED in claimed.headers:
        return "schedule"
    overdue = task.overdue
    return "overdue" if overdue is not None and overdue.takes(claimed, now) else None


def arguments_of(message: Message) -> Mapping[str, Any]:
    """Those of its handler, with their defaults. Raises Unread if they don't fit."""
    task, delivery = message.task, message.delivery
    given = delivery.arguments if delivery.arguments is not None else task.arguments.of_message(delivery.body)
    return task.arguments.with_defaults(given)

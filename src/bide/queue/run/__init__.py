"""The road of a message from its claim to its end. A worker takes many side by side, and time travel one after the other.

Here: which steps a message takes before its handler is called, and what they ask it.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

from bide.engines.base import Claimed
from bide.logs import Log
from bide.queue.deliveries import PLANNED
from bide.queue.run.passage import Passage
from bide.queue.tasks.definition import Definition

_log = Log("bide.tasks")

StepName: TypeAlias = Literal["schedule", "overdue"]
"""A step that may leave a message out, or put it off; the limits of its task come after it."""


class Message(Protocol):
    """One that is under way."""

    @property
    def task(self) -> Definition: ...

    @property
    def claimed(self) -> Claimed: ...

    @property
    def now(self) -> int:
        """The engine's time when it was handed out."""

    def arguments(self) -> Mapping[str, Any]:
        """What the handler is called with. Raises Unread."""


def first_step(task: Definition, claimed: Claimed, now: int) -> StepName | None:
    """The step that a message takes first, if any but the limits of its task. `now`: the engine's time."""
    if PLANNED in claimed.headers:
        return "schedule"
    overdue = task.overdue
    return "overdue" if overdue is not None and overdue.takes(claimed, now) else None


def arguments_of(message: Message) -> Mapping[str, Any]:
    """Those of its handler, with their defaults. Raises Unread if they don't fit."""
    return message.task.arguments.with_defaults(message.arguments())


def passage_of(message: Message) -> Passage | None:
    """Its way through the gates of its task; None also for one that does not fit: the call of its handler says so.

    Raises Unread if its arguments make no name of a gate.
    """
    limits, claimed = message.task.limits, message.claimed
    if limits is None:
        return None
    try:
        arguments = arguments_of(message)
    except Exception as error:
        _log.debug("Message %s of %s passes no limits: %s", claimed.id, claimed.topic, error)
        return None
    return Passage(limits, claimed, arguments)

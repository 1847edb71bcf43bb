"""The options of `bide adopt celery` and `bide adopt rq`: how tasks become messages."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from bide.cli.adopt.options import MESSAGES, MessageOptions
from bide.cli.exits import WrongUsage

if TYPE_CHECKING:
    from bide.adopt.shape import TaskShape

T = TypeVar("T")

UNKEYED = "the messages have the ids of the tasks as their keys. Name another queue."
"""What to say of a queue that has no keys."""


class TaskOptions(NamedTuple):
    """How tasks and their arguments become messages."""

    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="TASK=TOPIC",
            help="Topic of the messages of a task. May be repeated. Default: --topic, or the name of the task.",
            rich_help_panel=MESSAGES,
        ),
    ]
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--args",
            metavar="TASK=NAME,…",
            help="Names of a task's positional arguments, in their order. May be repeated.",
            rich_help_panel=MESSAGES,
        ),
    ]

    def tasks(self, messages: MessageOptions) -> "TaskShape":
        from bide.adopt.shape import TaskShape, read_maps, read_names

        if messages.topic_field is not None:
            raise WrongUsage("Tasks name their topic themselves: use --map TASK=TOPIC, or --topic, in place of --topic-field.")
        messages.check(topic=False, keyed=True)
        return TaskShape(
            topics=_read(read_maps, self.maps, "--map"),
            names=_read(read_names, self.names, "--args"),
        )


def _read(read: Callable[[list[str]], T], given: list[str] | None, option: str) -> T:
    try:
        return read(given or [])
    except ValueError as error:
        form = "TASK=TOPIC" if option == "--map" else "TASK=NAME,NAME with each name once"
        raise typer.BadParameter(f"{str(error)[:100]!a} is not {form}.", param_hint=option) from None

"""The options that several commands share, and the sections of the help."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import typer

from bide.cli.queues import QueueOptions, complete_topics

_QUEUE = "Queue"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="URL of the queue. Default: $BIDE_URL, or sqlite:///bide.db. Other users can see it in the process list.",
        rich_help_panel=_QUEUE,
    ),
]
UrlFile = Annotated[
    str | None,
    typer.Option(
        "--url-file",
        metavar="FILE",
        help="Read the URL from the first line of FILE. Use this for a URL with a password.",
        rich_help_panel=_QUEUE,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        help="Namespace of the queue. Default: the URL's namespace, or bide.",
        rich_help_panel=_QUEUE,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topics, show_default=False)
]
IdOrTopic = Annotated[
    str,
    typer.Argument(
        metavar="ID|TOPIC", help="Id of the message, or its topic together with --key.", autocompletion=complete_topics
    ),
]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Key of the message in TOPIC.")]
Delay = Annotated[str | None, typer.Option("--delay", metavar="TIME", help="How long to wait: 90, 15m, 1h30m (ms s m h d w).")]
At = Annotated[str | None, typer.Option("--at", metavar="TIMESTAMP", help="Exact time: 2030-01-15T09:00:00+01:00.")]

Command: TypeAlias = Callable[..., int]
"""A command's function. It returns the exit code."""


class Section:
    """Commands that stand together in the help."""

    def __init__(self, title: str) -> None:
        self.typer: typer.Typer = typer.Typer()
        self._title = title

    def command(self, name: str, *, help: str, examples: tuple[tuple[str, str], ...]) -> Callable[[Command], Command]:
        """Add a command. A first parameter of type QueueOptions gives it --url, --url-file and --namespace.

        `examples` are command lines with what each does. They are to be no wider than a terminal of 80 columns.
        """

        def add(function: Command) -> Command:
            declare = self.typer.command(name, help=help, epilog=_epilog(examples), rich_help_panel=self._title)
            declare(_with_queue_options(function))
            return function

        return add


def _with_queue_options(function: Command) -> Command:
    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    if first.annotation is not QueueOptions:
        return function

    def command(**given: Any) -> int:
        return function(QueueOptions(*(given.pop(name) for name in QueueOptions._fields)), **given)

    annotations = zip(QueueOptions._fields, (Url, UrlFile, Namespace), strict=True)
    added = [inspect.Parameter(name, first.KEYWORD_ONLY, default=None, annotation=each) for name, each in annotations]
    parameters = [*others, *added]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _epilog(examples: tuple[tuple[str, str], ...]) -> str:
    widest = max((len(command) for command, meaning in examples if meaning), default=0)
    lines = [f"  {command:<{widest}}   {meaning}".rstrip() for command, meaning in examples]
    return "\n\n".join(["Examples:", *lines]).replace("[", r"\[")  # paragraphs, or typer joins the lines

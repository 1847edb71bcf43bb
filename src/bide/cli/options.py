"""The options that several commands share, how they are read, and the sections of the help."""

import inspect
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from bide.cli.exits import WrongUsage
from bide.cli.queues import QueueOptions, complete_topics
from bide.core.times import duration_ms
from bide.engines.guard.able import ABLE
from bide.errors import BadTime

_QUEUE = "Queue"
_NAMES = {"sqlite": "SQLite", "redis": "Redis", "postgres": "PostgreSQL", "amqp": "RabbitMQ"}

ONLY_DEAD = "On RabbitMQ, name one topic: only its dead letters can be found."
"""In the help of commands that find messages."""

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="URL of the queue: sqlite:///, redis://, postgres://, amqp://. Default: $BIDE_URL, or sqlite:///bide.db. "
        "Other users can see it in the process list.",
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
TopicOrPattern = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="Name of the topic. With *, as in 'order.*', of all that match.",
        autocompletion=complete_topics,
        show_default=False,
    ),
]
Topics = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC",
        help="Name of the topic. With *, as in 'order.*', of all that match. Default: all topics.",
        autocompletion=complete_topics,
        show_default=False,
    ),
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


def lacking(capability: str) -> str:
    """A sentence of the help: on which engines there is no such thing. Empty if all have the capability."""
    names = [name for scheme, name in _NAMES.items() if scheme not in ABLE[capability]]
    return f"Not on {' and '.join(names)}." if names else ""


def parse_duration(text: str | None, option: str = "--delay") -> str | None:
    """A duration for the queue. A number alone is seconds."""
    if text is None:
        return None
    given = f"{text}s" if re.fullmatch(r"\d{1,15}(\.\d{1,9})?", text, re.ASCII) else text
    try:
        duration_ms(given)
    except BadTime as error:
        if "hundred years" in str(error):
            raise typer.BadParameter("The longest duration is a hundred years: 36525d.", param_hint=option) from None
        raise typer.BadParameter(
            f"{text[:100]!a} is not a duration. Give seconds (90) or text such as 1h30m (ms s m h d w).", param_hint=option
        ) from None
    return given


def parse_time(delay: str | None, at: str | None) -> tuple[str | None, datetime | None]:
    """What --delay and --at say together. At most one of them may be given."""
    if delay is not None and at is not None:
        raise WrongUsage("Give either --delay or --at, not both.")
    return parse_duration(delay), None if at is None else parse_instant(at)


def parse_instant(text: str, option: str = "--at") -> datetime:
    """A timestamp with its timezone."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text[:100]!a} is not a timestamp. Write it as 2030-01-15T09:00:00+01:00.", param_hint=option
        ) from None
    if when.utcoffset() is None:
        raise typer.BadParameter(
            f"{text[:100]!a} has no timezone. Add one: {when.isoformat()}+01:00, or {when.isoformat()}Z for UTC.",
            param_hint=option,
        )
    return when


Command: TypeAlias = Callable[..., int]
"""A command's function. It returns the exit code."""


class Section:
    """Commands that stand together in the help."""

    def __init__(self, title: str) -> None:
        self.typer: typer.Typer = typer.Typer()
        self._title = title

    def command(
        self, name: str, *, help: str, examples: tuple[tuple[str, str], ...], needs: str | None = None
    ) -> Callable[[Command], Command]:
        """Add a command. A first parameter of type QueueOptions gives it --url, --url-file and --namespace.

        A parameter whose type is another NamedTuple stands for its fields: each is an option. A parameter of the function that
        has the name of a field takes its place. The default of a field is that of the option, or None.

        `examples` are command lines with what each does. They are to be no wider than a terminal of 80 columns.
        `needs` is the capability without which an engine can't run the command: the help names those engines.
        """
        if needs is not None:
            help = f"{help}\n\n{lacking(needs)}".rstrip()

        def add(function: Command) -> Command:
            declare = self.typer.command(name, help=help, epilog=_epilog(examples), rich_help_panel=self._title)
            declare(_with_queue_options(_with_groups(function)))
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


def _with_groups(function: Command) -> Command:
    signature = inspect.signature(function)
    groups = {name: each.annotation for name, each in signature.parameters.items() if _is_group(each.annotation)}
    if not groups:
        return function

    def command(*options: Any, **given: Any) -> int:
        own = {name: given[name] for name in signature.parameters if name in given}
        made = {name: group(*(given[field] for field in group._fields)) for name, group in groups.items()}
        return function(*options, **own, **made)

    parameters: list[inspect.Parameter] = []
    for name, each in signature.parameters.items():
        fields = get_type_hints(groups[name], include_extras=True) if name in groups else {}
        parameters += [each] if not fields else []
        parameters += [
            inspect.Parameter(field, each.KEYWORD_ONLY, default=groups[name]._field_defaults.get(field), annotation=hint)
            for field, hint in fields.items()
            if field not in signature.parameters
        ]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _is_group(annotation: Any) -> bool:
    return inspect.isclass(annotation) and annotation is not QueueOptions and hasattr(annotation, "_fields")


def _epilog(examples: tuple[tuple[str, str], ...]) -> str:
    widest = max((len(command) for command, meaning in examples if meaning), default=0)
    lines = [f"  {command:<{widest}}   {meaning}".rstrip() for command, meaning in examples]
    return "\n\n".join(["Examples:", *lines]).replace("[", r"\[")  # paragraphs, or typer joins the lines

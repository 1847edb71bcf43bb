"""The options that several commands share, each written once, and how examples look."""

import enum
from typing import Annotated

import typer

from bide.cli.completion import topics

_WHERE = "Where messages live"


class State(enum.StrEnum):
    """As `bide.types.State`."""

    SCHEDULED = "scheduled"
    READY = "ready"
    LEASED = "leased"
    DEAD = "dead"


class Purgeable(enum.StrEnum):
    """Of these, what can be purged: what is leased ends with its lease."""

    SCHEDULED = "scheduled"
    READY = "ready"
    DEAD = "dead"


class Priority(enum.StrEnum):
    """As `bide.types.Priority`."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class IfExists(enum.StrEnum):
    """As `bide.types.IfExists`."""

    KEEP = "keep"
    REPLACE = "replace"
    LATER = "later"
    ERROR = "error"


Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The queue's URL. Default: $BIDE_URL, else sqlite:///bide.db. Others can read it in the list of processes.",
        rich_help_panel=_WHERE,
    ),
]
UrlFile = Annotated[
    str | None,
    typer.Option(
        "--url-file",
        metavar="FILE",
        help="A file whose first line is the URL: for one with a password.",
        rich_help_panel=_WHERE,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", metavar="NAME", help="The queue's namespace. Default: the URL's, else bide.", rich_help_panel=_WHERE
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for a program.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON, for a program: one object a line.")]

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=topics, show_default=False)]
Named = Annotated[
    str, typer.Argument(metavar="ID|TOPIC", help="The message's id; or its topic, with --key.", autocompletion=topics)
]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="The message's key in TOPIC.")]
Delay = Annotated[str | None, typer.Option("--delay", metavar="TIME", help="So long from now: 90, 15m, 1h30m (ms s m h d w).")]
At = Annotated[str | None, typer.Option("--at", metavar="INSTANT", help="At this instant: 2030-01-15T09:00:00+01:00.")]


def examples(*pairs: tuple[str, str]) -> str:
    """An epilog of commands and what each does; to be no wider than a terminal of 80 columns."""
    widest = max((len(command) for command, meaning in pairs if meaning), default=0)
    lines = [f"  {command:<{widest}}   {meaning}".rstrip() for command, meaning in pairs]
    return "\n\n".join(["Examples:", *lines]).replace("[", r"\[")  # paragraphs, as older releases of typer join lines

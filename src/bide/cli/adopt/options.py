"""The options of the commands of `bide adopt`: which source, how it is moved, and what its messages are."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeVar

import typer

from bide.cli.exits import WrongUsage
from bide.cli.queues import first_line

if TYPE_CHECKING:
    from bide.adopt.copies import Doubt
    from bide.adopt.shape import Shape, TaskShape


SOURCE, MESSAGES = "Source", "Messages"
REDIS = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
RABBITMQ = ("amqp", "amqps")
DATABASES = ("postgres", "postgresql", "sqlite")
"""How the URL of a source begins."""


class Run(NamedTuple):
    """What the command line says about a run."""

    url: str  # of the source; may hold a password, so it is never shown
    dry_run: bool = False
    follow: bool = False
    doubt: "Doubt" = "stop"
    as_json: bool = False


def _named(name: str | None) -> str | None:
    if name == "":
        raise WrongUsage("--body-as is empty: give the name of a task's parameter.")
    return name


BodyAs = Annotated[
    str | None,
    typer.Option(
        "--body-as",
        metavar="NAME",
        help="A body that is no object, such as 42, becomes {NAME: 42}: what a task with a parameter NAME takes.",
        callback=_named,
        rich_help_panel=MESSAGES,
    ),
]


ParseBody = Annotated[
    bool,
    typer.Option(
        "--parse-body",
        help='A body that is text with JSON in it, such as "{\\"order\\": 42}", becomes that JSON: here an object.',
        rich_help_panel=MESSAGES,
    ),
]


class RunOptions(NamedTuple):
    """What all sources have in common."""

    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="URL",
            help="URL of the server that has the waiting messages. Other users can see it in the process list.",
            rich_help_panel=SOURCE,
        ),
    ]
    source_file: Annotated[
        str | None,
        typer.Option(
            "--source-file",
            metavar="FILE",
            help="Read that URL from the first line of FILE. Use this for a URL with a password.",
            rich_help_panel=SOURCE,
        ),
    ]
    dry_run: Annotated[
        bool | None, typer.Option("--dry-run", help="Change nothing. Count, and show the first ten messages, with dates.")
    ]
    follow: Annotated[
        bool | None, typer.Option("--follow", help="Go on for what old producers still send, until Ctrl-C or SIGTERM.")
    ]
    doubtful: Annotated[
        Literal["send", "forget", "give-back"] | None,
        typer.Option(
            "--doubtful",
            help="For messages that a run was moving when it was killed, more than nine minutes ago: send them again, forget "
            "them, or give them back to the old system.",
        ),
    ]
    as_json: Annotated[bool | None, typer.Option("--json", help="Print JSON.")]

    def run(self, schemes: Sequence[str]) -> Run:
        """`schemes`: how the URL may begin."""
        if self.dry_run and self.follow:
            raise WrongUsage("Both --follow and --dry-run were given: leave one of them out.")
        if self.dry_run and self.doubtful:
            raise WrongUsage("Both --doubtful and --dry-run were given: leave one of them out.")
        return Run(
            _source_url(self.source, self.source_file, schemes),
            dry_run=bool(self.dry_run),
            follow=bool(self.follow),
            doubt=self.doubtful or "stop",
            as_json=bool(self.as_json),
        )


class MessageOptions(NamedTuple):
    """How entries become messages."""

    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Topic of all messages.", rich_help_panel=MESSAGES)
    ]
    topic_field: Annotated[
        str | None,
        typer.Option(
            "--topic-field", metavar="FIELD", help="Field of the entry that names the topic.", rich_help_panel=MESSAGES
        ),
    ]
    key_field: Annotated[
        str | None,
        typer.Option(
            "--key-field", metavar="FIELD", help="Field of the entry that is the message's key.", rich_help_panel=MESSAGES
        ),
    ]
    if_exists: Annotated[
        Literal["keep", "replace", "later"] | None,
        typer.Option(
            "--if-exists",
            help="If a message in the queue has the key. Default: keep, and the entry stays where it is.",
            rich_help_panel=MESSAGES,
        ),
    ]
    max_attempts: Annotated[
        int | None,
        typer.Option(
            "--max-attempts",
            metavar="N",
            min=1,
            help="Attempts of each message. Default: what the entry says, or 3.",
            rich_help_panel=MESSAGES,
        ),
    ]

    def check(self, *, topic: bool = True, keyed: bool = False) -> None:
        """`topic`: the options have to name it. `keyed`: the messages have a key without --key-field."""
        named = {"--topic": self.topic, "--topic-field": self.topic_field, "--key-field": self.key_field}
        for option, value in named.items():
            if value == "":
                raise WrongUsage(f"{option} is empty: give it a value, or leave it out.")
        if self.topic is not None and self.topic_field is not None:
            raise WrongUsage("Both --topic and --topic-field were given: leave one of them out.")
        if topic and self.topic is None and self.topic_field is None:
            raise WrongUsage("Say which topic the messages get: --topic TOPIC, or --topic-field FIELD if entries name it.")
        if self.if_exists is not None and self.key_field is None and not keyed:
            raise WrongUsage("--if-exists is about messages with a key, and these get none: add --key-field FIELD.")

    @property
    def unkeyed(self) -> str | None:
        """What to do if the queue has no keys. None: the messages get none."""
        return None if self.key_field is None else "leave out --key-field."

    def shape(
        self, body: str, longest: int, body_as: str | None = None, *, parse_body: bool = False, split: str | None = None
    ) -> "Shape":
        """For a queue that can keep a message for so many milliseconds at most."""
        from bide.adopt.shape import Shape

        if parse_body and body == "raw":
            raise WrongUsage("A raw body is not parsed: leave out --parse-body, or raw.")
        return Shape(
            topic=self.topic,
            topic_field=self.topic_field,
            key_field=self.key_field,
            split=split,
            body=body,
            body_as=body_as,
            parse_body=parse_body,
            if_exists=self.if_exists or "keep",
            max_attempts=self.max_attempts,
            longest=longest,
        )


def _source_url(url: str | None, file: str | None, schemes: Sequence[str]) -> str:
    """The URL of the source, from --source or --source-file."""
    if url is not None and file is not None:
        raise WrongUsage("Both --source and --source-file were given: leave one of them out.")
    if url is None and file is None:
        raise WrongUsage("Say which server has the waiting messages: --source URL, or --source-file FILE with the URL in it.")
    option = "--source" if file is None else "--source-file"
    found = url if url is not None else first_line(file or "", option)
    scheme, is_url, _ = found.partition("://")
    if is_url and scheme in schemes:
        return found
    given = f"{scheme}://" if is_url and re.fullmatch(r"[A-Za-z][A-Za-z+]{0,19}", scheme) else "something else"
    forms = [f"{each}://" for each in schemes]
    raise WrongUsage(f"The URL of {option} begins with {', '.join(forms[:-1])} or {forms[-1]} here; given was {given}.")


T = TypeVar("T")

UNKEYED = "the messages have the ids of the tasks as their keys. Name another queue."
"""What to say of a queue that has no keys."""


class AdoptTaskOptions(NamedTuple):
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

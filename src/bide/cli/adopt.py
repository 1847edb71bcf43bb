"""`bide adopt`: waiting messages of another system, moved into a queue. Here: the commands, one for each kind of source."""

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from bide.cli.adopting import Run, adopt, source_url
from bide.cli.exits import WrongUsage
from bide.cli.options import Section
from bide.cli.queues import QueueOptions
from bide.types import IfExists

if TYPE_CHECKING:
    from bide.adopt.shaping import Shape
    from bide.adopt.source import Source

section: Section = Section("Sources")

HELP = (
    "Move waiting messages of another system into a queue, while its producers and consumers go on.\n\n"
    "Each message is moved by one step that old consumers see as a whole: they get it, or bide does. A run that is stopped or "
    "killed is resumed by the same command. See docs/adopt.md for the order of steps."
)
EPILOG = (
    "Examples:\n\n"
    "  bide adopt redis-zset delayed --topic order.cancel --dry-run\n\n"
    "  bide adopt redis-zset delayed --topic order.cancel --source redis://old/0"
)

_SOURCE, _MESSAGES = "Source", "Messages"


class RunOptions(NamedTuple):
    """What all sources have in common."""

    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="URL",
            help="URL of the server that has the waiting messages. Other users can see it in the process list.",
            rich_help_panel=_SOURCE,
        ),
    ]
    source_file: Annotated[
        str | None,
        typer.Option(
            "--source-file",
            metavar="FILE",
            help="Read that URL from the first line of FILE. Use this for a URL with a password.",
            rich_help_panel=_SOURCE,
        ),
    ]
    dry_run: Annotated[
        bool | None, typer.Option("--dry-run", help="Change nothing. Count, and show the first ten due times as dates.")
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

    def run(self) -> Run:
        return Run(
            source_url(self.source, self.source_file),
            dry_run=bool(self.dry_run),
            follow=bool(self.follow),
            doubt=self.doubtful or "stop",
            as_json=bool(self.as_json),
        )


class MessageOptions(NamedTuple):
    """How entries become messages."""

    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Topic.", rich_help_panel=_MESSAGES)]
    topic_field: Annotated[
        str | None,
        typer.Option(
            "--topic-field", metavar="FIELD", help="Field of the entry that names the topic.", rich_help_panel=_MESSAGES
        ),
    ]
    key_field: Annotated[
        str | None,
        typer.Option(
            "--key-field", metavar="FIELD", help="Field of the entry that is the message's key.", rich_help_panel=_MESSAGES
        ),
    ]
    if_exists: Annotated[
        IfExists | None,
        typer.Option(
            "--if-exists",
            help="If a message in the queue has the key. Default: keep, and the entry stays where it is.",
            rich_help_panel=_MESSAGES,
        ),
    ]
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", min=1, help="Attempts.", rich_help_panel=_MESSAGES)
    ]

    def check(self) -> None:
        if (self.topic is None) == (self.topic_field is None):
            raise WrongUsage("Say which topic the messages get: --topic TOPIC, or --topic-field FIELD if entries name it.")


@section.command(
    "redis-zset",
    help="Move the members of a sorted set in Redis whose scores are due times.\n\n"
    "A score is seconds or milliseconds since 1970; its size tells which, or --score does. A member is the message, as JSON or "
    "as text; or it is the id of a job in a hash (--job-hash), whose value is the message then.",
    examples=(
        ("bide adopt redis-zset delayed --topic t --dry-run", "only look"),
        ("bide adopt redis-zset delayed --topic t --member raw", "members are text"),
        ("bide adopt redis-zset bucket --job-hash jobs --topic t", "members are ids"),
    ),
)
def redis_zset(
    options: QueueOptions,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the sorted set.", show_default=False)],
    run: RunOptions,
    messages: MessageOptions,
    *,
    member: Annotated[
        str,
        typer.Option(
            metavar="json|raw|FIELD",
            help="What the body is: the member as JSON or as text, or a field of its JSON.",
            rich_help_panel=_MESSAGES,
        ),
    ] = "json",
    score: Annotated[Literal["auto", "s", "ms"], typer.Option(help="Unit of the scores.", rich_help_panel=_MESSAGES)] = "auto",
    job_hash: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The hash that has the jobs, by member.", rich_help_panel=_SOURCE),
    ] = None,
) -> int:
    messages.check()
    wanted = run.run()

    def opened(longest: int) -> "Source":
        from bide.adopt.redis.server import Server
        from bide.adopt.redis.zset import SortedSet

        return SortedSet(Server(wanted.url), key, _shape(messages, member, longest), unit=score, jobs=job_hash)

    return adopt(options, opened, wanted)


def _shape(messages: MessageOptions, body: str, longest: int) -> "Shape":
    from bide.adopt.shaping import Shape

    return Shape(
        topic=messages.topic,
        topic_field=messages.topic_field,
        key_field=messages.key_field,
        body=body,
        if_exists=messages.if_exists or "keep",
        max_attempts=messages.max_attempts,
        longest=longest,
    )

"""`bide adopt rabbitmq-ttl`: the messages of a queue with a TTL."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bide.cli.adopt.command import adopt
from bide.cli.adopt.options import MESSAGES, RABBITMQ, SOURCE, BodyAs, MessageOptions, ParseBody, RunOptions
from bide.cli.exits import WrongUsage
from bide.cli.options import Section, parse_duration
from bide.cli.output import note
from bide.cli.queues import QueueOptions
from bide.core.formats import plural
from bide.core.times import duration_ms

if TYPE_CHECKING:
    from bide.adopt.rabbitmq.ttl import TTLQueue
    from bide.adopt.source import AdoptSource

section: Section = Section("Sources")


@section.command(
    "rabbitmq-ttl",
    help="Move messages that wait in a queue of RabbitMQ until they are dead-lettered.\n\n"
    "Messages that expire meanwhile are dead-lettered as before, to the old consumers. A message is due when it would have "
    "been dead-lettered: when it came, by its timestamp or by x-death, and its expiration or the queue's --ttl. If it does not "
    "tell when it came, it is due a whole TTL from now: late, never early. What was taken is kept in a file until the queue "
    "has it.",
    examples=(
        ("bide adopt rabbitmq-ttl wait.15m --ttl 15m --topic t --dry-run", "only look"),
        ("bide adopt rabbitmq-ttl wait --topic t", "messages have an expiration"),
    ),
)
def rabbitmq_ttl(
    options: QueueOptions,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue with the TTL.", show_default=False)],
    run: RunOptions,
    messages: MessageOptions,
    *,
    ttl: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The queue's x-message-ttl, if it has one.", rich_help_panel=SOURCE),
    ] = None,
    state: Annotated[
        str, typer.Option(metavar="FILE", help="Where what was taken is kept.", rich_help_panel=SOURCE)
    ] = "bide-adopt.db",
    by_routing_key: Annotated[
        bool, typer.Option("--topic-is-routing-key", help="A message's routing key is its topic.", rich_help_panel=MESSAGES)
    ] = False,
    anew: Annotated[
        bool,
        typer.Option(
            "--whole-ttl",
            help="Each message waits its whole TTL from now: for consumers that send messages again with the properties that "
            "they have received, which then do not tell when they came.",
            rich_help_panel=SOURCE,
        ),
    ] = False,
    body: Annotated[
        str,
        typer.Option(
            metavar="json|raw|FIELD",
            help="What the body is: the message's, as JSON or as text, or a field of its JSON.",
            rich_help_panel=MESSAGES,
        ),
    ] = "json",
    body_as: BodyAs = None,
    parse_body: ParseBody = False,
) -> int:
    if by_routing_key and (messages.topic is not None or messages.topic_field is not None):
        raise WrongUsage("Give either --topic-is-routing-key or a topic by --topic or --topic-field, not both.")
    messages.check(topic=not by_routing_key)
    wanted = run.run(RABBITMQ)
    longest = parse_duration(ttl, "--ttl")
    sources: list[TTLQueue] = []

    def opened(furthest: int) -> "AdoptSource":
        from bide.adopt.rabbitmq.letter import Waits
        from bide.adopt.rabbitmq.ttl import opened as source

        known = None if longest is None else duration_ms(longest)
        waits = Waits(queue=queue, ttl=known, by_routing_key=by_routing_key, anew=anew)
        shape = messages.shape(body, furthest, body_as, parse_body=parse_body)
        made = source(wanted.url, waits, Path(state), shape, look_only=wanted.dry_run)
        sources.append(made)
        return made

    code = adopt(options, opened, wanted, unkeyed=messages.unkeyed)
    if guessed := sum(each.guessed for each in sources):
        will = "would be" if wanted.dry_run else "are"
        note(f"{plural(guessed, 'message')} did not tell when they came: they {will} due a whole TTL after they were taken.")
    return code

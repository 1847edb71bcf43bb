"""`bide adopt table` and `bide adopt rabbitmq-ttl`: waiting messages in a database, and on a broker."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bide.cli.adopt import MESSAGES, SOURCE, MessageOptions, RunOptions
from bide.cli.adopting import adopt
from bide.cli.exits import WrongUsage
from bide.cli.options import Section, parse_duration
from bide.cli.output import note
from bide.cli.queues import QueueOptions
from bide.core.amounts import plural
from bide.core.when import duration_ms

if TYPE_CHECKING:
    from bide.adopt.rabbitmq.ttl import TTLQueue
    from bide.adopt.source import Source

_ENDS = re.compile(r"\b(limit|offset|for\s+(update|share|no\s+key\s+update|key\s+share))\b[^()]*$", re.IGNORECASE)

section: Section = Section("Sources")


@section.command(
    "table",
    help="Move rows of a polled table in PostgreSQL or SQLite.\n\n"
    "--query finds the rows that wait, with at least the columns id and due. --take marks or deletes the row with :id. Both "
    "run in one transaction with FOR UPDATE SKIP LOCKED, so that pollers that lock or mark their rows never get one that bide "
    "has. Rows are held in a table bide_adopt of the same database until the queue has them.",
    examples=(
        ('bide adopt table --query "select * from timers" --topic t --dry-run', ""),
        ('  … --take "delete from timers where id = :id"', "run it"),
        ('  … --undo "insert into timers (id, due) values (:id, :due)"', "the way back"),
    ),
)
def table(
    options: QueueOptions,
    run: RunOptions,
    messages: MessageOptions,
    *,
    where: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="URL of the database: the same as --source.", show_default=False)
    ] = None,
    query: Annotated[str, typer.Option(metavar="SQL", help="Finds the rows that wait.", rich_help_panel=SOURCE)],
    take: Annotated[
        str | None,
        typer.Option(
            metavar="SQL", help="Marks or deletes a row, named by :id or another column of the query.", rich_help_panel=SOURCE
        ),
    ] = None,
    undo: Annotated[
        str | None, typer.Option(metavar="SQL", help="The reverse of --take, if a row must go back.", rich_help_panel=SOURCE)
    ] = None,
    id_column: Annotated[
        str, typer.Option("--id", metavar="COLUMN", help="Column that identifies a row.", rich_help_panel=SOURCE)
    ] = "id",
    due: Annotated[str, typer.Option(metavar="COLUMN", help="Column with the due time.", rich_help_panel=MESSAGES)] = "due",
    body: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column that is the body. Default: body, or all other columns.", rich_help_panel=MESSAGES
        ),
    ] = None,
    unit: Annotated[
        Literal["auto", "s", "ms"], typer.Option(help="Unit of due times that are numbers.", rich_help_panel=MESSAGES)
    ] = "auto",
) -> int:
    messages.check()
    wanted = (run if where is None else run._replace(source=where)).run()
    query = query.strip().rstrip(";")
    if _ENDS.search(query):
        raise WrongUsage("Leave LIMIT, OFFSET and FOR UPDATE out of --query: the command adds its own.")
    if take is None and not wanted.dry_run:
        raise WrongUsage(
            'Say how a row is taken: --take "delete from … where id = :id", or an update that --query does not find.'
        )

    def opened(furthest: int) -> "Source":
        from bide.adopt.table.opening import database
        from bide.adopt.table.rows import Columns
        from bide.adopt.table.table import Statements, Table

        columns = Columns(id=id_column, due=due, body=body, unit=unit)
        said = Statements(query=query, take=(take or "").strip().rstrip(";"), undo=undo)
        return Table(database(wanted.url), said, columns, messages.shape("json", furthest))

    return adopt(options, opened, wanted)


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
    body: Annotated[
        str,
        typer.Option(
            metavar="json|raw|FIELD",
            help="What the body is: the message's, as JSON or as text, or a field of its JSON.",
            rich_help_panel=MESSAGES,
        ),
    ] = "json",
) -> int:
    if not by_routing_key:
        messages.check()
    wanted = run.run()
    longest = parse_duration(ttl, "--ttl")
    sources: list[TTLQueue] = []

    def opened(furthest: int) -> "Source":
        from bide.adopt.rabbitmq.letter import Waits
        from bide.adopt.rabbitmq.ttl import opened as source

        waits = Waits(queue=queue, ttl=None if longest is None else duration_ms(longest), by_routing_key=by_routing_key)
        made = source(wanted.url, waits, Path(state), messages.shape(body, furthest), look_only=wanted.dry_run)
        sources.append(made)
        return made

    code = adopt(options, opened, wanted)
    if guessed := sum(each.guessed for each in sources):
        will = "would be" if wanted.dry_run else "are"
        note(f"{plural(guessed, 'message')} did not tell when they came: they {will} due a whole TTL after they were taken.")
    return code

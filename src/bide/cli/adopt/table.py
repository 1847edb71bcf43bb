"""`bide adopt table`: the rows of a polled table."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bide.cli.adopt.command import adopt
from bide.cli.adopt.options import DATABASES, MESSAGES, SOURCE, BodyAs, MessageOptions, RunOptions
from bide.cli.exits import WrongUsage
from bide.cli.options import Section
from bide.cli.queues import QueueOptions

if TYPE_CHECKING:
    from bide.adopt.source import AdoptSource

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
            metavar="COLUMN",
            help="Column that is the body. Default: body, or all columns but --due and --topic-field.",
            rich_help_panel=MESSAGES,
        ),
    ] = None,
    body_as: BodyAs = None,
    unit: Annotated[
        Literal["auto", "s", "ms"], typer.Option(help="Unit of due times that are numbers.", rich_help_panel=MESSAGES)
    ] = "auto",
) -> int:
    from bide.adopt.table.database import has_end

    messages.check()
    if where is not None and (run.source is not None or run.source_file is not None):
        raise WrongUsage("Both a URL and --source or --source-file were given: leave one of them out.")
    wanted = (run if where is None else run._replace(source=where)).run(DATABASES)
    query = query.strip().rstrip(";")
    if has_end(query):
        raise WrongUsage("Leave LIMIT, OFFSET and FOR UPDATE out of --query: the command adds its own.")
    if take is None and not wanted.dry_run:
        raise WrongUsage(
            'Say how a row is taken: --take "delete from … where id = :id", or an update that --query does not find.'
        )

    def opened(furthest: int) -> "AdoptSource":
        from bide.adopt.table.rows import Columns
        from bide.adopt.table.table import SourceTable, TableStatements, database

        columns = Columns(id=id_column, due=due, body=body, unit=unit)
        said = TableStatements(query=query, take=(take or "").strip().rstrip(";"), undo=undo)
        return SourceTable(database(wanted.url), said, columns, messages.shape("json", furthest, body_as))

    return adopt(options, opened, wanted, unkeyed=messages.unkeyed)

"""The command that runs tasks: worker."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from bide.cli.commands.options import examples

family: typer.Typer = typer.Typer()

_LIMITS, _RUNNING = "What it takes", "How it runs"


class LogFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(enum.StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@family.command(
    "worker",
    help="Run the tasks of a queue: call their functions for the messages that fall due.\n\n"
    "MODULE:QUEUE names a Queue, an AsyncQueue or a Worker in a Python module, looked for in this folder too.\n\n"
    "SIGTERM, SIGHUP or Ctrl-C: nothing more is taken, handlers have --grace to end, the rest is given back. A second one "
    "ends at once. Exit code 0: it was stopped. 1: it could not begin. 2: the command line makes no sense.",
    epilog=examples(
        ("bide worker shop:queue", ""),
        ("bide worker shop:queue --import shop.mails", "tasks that are in another module"),
        ("bide worker shop:queue --processes 4", "replaced when they die"),
        ("bide worker shop:queue --slots mail=10", "ten places only for mail"),
        ("bide worker shop:queue --health :8080", "GET / says 200 or 503"),
        ("bide worker shop:queue --reload", "while you write it"),
    ),
)
def worker(
    target: Annotated[str, typer.Argument(metavar="MODULE:QUEUE", help="Where the queue is, as in shop.tasks:queue.")],
    *,
    imports: Annotated[
        list[str] | None, typer.Option("--import", metavar="MODULE", help="Import this too, for its tasks. May be repeated.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topics", metavar="TOPIC", help="Serve these only: a,b. May be repeated.", rich_help_panel=_LIMITS),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Handlers at once, in each process: 100.", rich_help_panel=_LIMITS)
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Sync handlers at once, of these: 32.", rich_help_panel=_LIMITS)
    ] = None,
    slots: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC=N", help="Keep N places for this topic. May be repeated.", rich_help_panel=_LIMITS),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How soon others get the messages of a dead worker: 15s.", rich_help_panel=_LIMITS),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long handlers may go on after SIGTERM: 20s.", rich_help_panel=_RUNNING),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=256, help="So many processes, and one that watches over them.", rich_help_panel=_RUNNING
        ),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(
            metavar=":PORT|FILE", help="Say whether all is well: over HTTP, or by a fresh file.", rich_help_panel=_RUNNING
        ),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start anew when a Python file in this folder changes.", rich_help_panel=_RUNNING)
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(help="Lines for people, or JSON.", rich_help_panel=_RUNNING)
    ] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="What is worth a line.", rich_help_panel=_RUNNING)] = LogLevel.INFO,
    claim_log: Annotated[Path | None, typer.Option(hidden=True)] = None,
    lifeline: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    from bide.cli.output.times import delay_of
    from bide.cli.worker.running import run
    from bide.cli.worker.wanted import Wanted

    wanted = Wanted(
        target=target,
        imports=tuple(imports or ()),
        topics=tuple(topic.strip() for each in topics or () for topic in each.split(",")),
        concurrency=concurrency,
        threads=threads,
        slots=tuple(slots or ()),
        lease=delay_of(lease, "--lease"),
        grace=delay_of(grace, "--grace"),
        processes=processes,
        health=health,
        reload=reload,
        log_format=log_format.value,
        log_level=log_level.value,
        claim_log=claim_log,
        lifeline=lifeline,
    )
    raise typer.Exit(run(wanted))

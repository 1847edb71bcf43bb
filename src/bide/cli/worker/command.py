"""`bide worker`: its options and its help. What runs tasks is loaded only when the command is called."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bide.cli.options import Section
from bide.cli.times import parse_duration
from bide.cli.worker.options import WorkerOptions

section: Section = Section("Tasks")

_LIMITS, _RUNNING = "What it takes", "How it runs"


@section.command(
    "worker",
    help="Run the tasks of a queue: call their functions for the messages that fall due.\n\n"
    "MODULE:QUEUE names a Queue, an AsyncQueue or a Worker in a Python module, looked for in this folder too.\n\n"
    "SIGTERM, SIGHUP or Ctrl-C: nothing more is taken, handlers have --grace to end, the rest is given back. A second one "
    "ends at once. Exit code 0: it was stopped. 1: it could not begin. 2: the command line makes no sense.",
    examples=(
        ("bide worker shop:queue", ""),
        ("bide worker shop:queue --import shop.mails", "tasks that are in another module"),
        ("bide worker shop:queue --processes 4", "replaced when they die"),
        ("bide worker shop:queue --slots mail=10", "ten places only for mail"),
        ("bide worker shop:queue --health :8080", "GET / says 200 or 503"),
        ("bide worker shop:queue --reload", "while you write it"),
    ),
)
def worker(
    queue_path: Annotated[str, typer.Argument(metavar="MODULE:QUEUE", help="Where the queue is, as in shop.tasks:queue.")],
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
        Literal["text", "json"], typer.Option(help="Lines for people, or JSON.", rich_help_panel=_RUNNING)
    ] = "text",
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="What is worth a line.", rich_help_panel=_RUNNING)
    ] = "info",
    claim_log: Annotated[Path | None, typer.Option(hidden=True)] = None,
    lifeline: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> int:
    options = WorkerOptions(
        queue_path=queue_path,
        imports=tuple(imports or ()),
        topics=tuple(topic.strip() for each in topics or () for topic in each.split(",")),
        concurrency=concurrency,
        threads=threads,
        slots=tuple(slots or ()),
        lease=parse_duration(lease, "--lease"),
        grace=parse_duration(grace, "--grace"),
        processes=processes,
        health=health,
        reload=reload,
        log_format=log_format,
        log_level=log_level,
        claim_log=claim_log,
        lifeline=lifeline,
    )
    from bide.cli.worker.running import run

    return run(options)

"""`bide worker`: runs a queue's tasks, in this process or in several under a supervisor. Here: its options and its help.

What runs tasks is loaded only when the command is called.
"""

from typing import Annotated, Literal

import typer

from bide.cli.options import Section, parse_duration

section: Section = Section("Tasks")

_LIMITS, _PROCESS = "Limits", "Process"


@section.command(
    "worker",
    help="Run the tasks of a queue: call their functions for messages that are due.\n\n"
    "MODULE:QUEUE names a Queue, an AsyncQueue or a Worker in a Python module. The current folder is searched, too.\n\n"
    "On SIGTERM, SIGHUP or Ctrl-C, the worker takes no more messages, waits --grace for its handlers, and gives the rest "
    "back. A second signal ends it at once. Exit code 0: stopped. 1: could not start. 2: wrong usage.",
    examples=(
        ("bide worker shop:queue", ""),
        ("bide worker shop:queue --import shop.mails", "tasks in another module"),
        ("bide worker shop:queue --processes 4", "restarted when they die"),
        ("bide worker shop:queue --slots mail=10", "reserve ten slots for mail"),
        ("bide worker shop:queue --health :8080", "GET /live and /ready answer 200 or 503"),
        ("bide worker shop:queue --metrics 9464", "GET /metrics for Prometheus, and the same"),
        ("bide worker shop:queue --log-messages", "a line for each message"),
        ("bide worker shop:queue --reload", "for development"),
    ),
)
def worker(
    queue_path: Annotated[str, typer.Argument(metavar="MODULE:QUEUE", help="The queue, as in shop.tasks:queue.")],
    *,
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import this module first, for its tasks. May be repeated."),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics", metavar="TOPIC", help="Serve only these topics: a,b. May be repeated.", rich_help_panel=_LIMITS
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(metavar="N", help="Maximum concurrent handlers in each process. Default: 100.", rich_help_panel=_LIMITS),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum concurrent sync handlers. Default: 32.", rich_help_panel=_LIMITS)
    ] = None,
    slots: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC=N", help="Reserve N slots for this topic. May be repeated.", rich_help_panel=_LIMITS),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="How soon others get the messages of a dead worker. Default: 15s.", rich_help_panel=_LIMITS
        ),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long handlers may go on after SIGTERM. Default: 20s.", rich_help_panel=_PROCESS),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=256, help="Run N worker processes and a supervisor.", rich_help_panel=_PROCESS),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(
            metavar=":PORT|FILE", help="Report health over HTTP, or by a file that stays fresh.", rich_help_panel=_PROCESS
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="PORT",
            help="Serve /metrics for Prometheus, of all processes, with /live and /ready.",
            rich_help_panel=_PROCESS,
        ),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a Python file in this folder changes.", rich_help_panel=_PROCESS)
    ] = False,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Log as text or as JSON.", rich_help_panel=_PROCESS)
    ] = "text",
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(help="Lowest level that is logged.", rich_help_panel=_PROCESS),
    ] = "info",
    counts: Annotated[str | None, typer.Option(hidden=True)] = None,
    log_messages: Annotated[
        bool, typer.Option("--log-messages", help="Log the end of every message.", rich_help_panel=_PROCESS)
    ] = False,
    slow: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Log messages whose handler takes this long. Default: 1s.", rich_help_panel=_PROCESS),
    ] = None,
    claim_log: Annotated[int | None, typer.Option(hidden=True)] = None,
    lifeline: Annotated[int | None, typer.Option(hidden=True)] = None,
    killed: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> int:
    from bide.cli.worker.load import WorkerOptions
    from bide.cli.worker.run import run

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
        metrics=metrics,
        reload=reload,
        log_format=log_format,
        log_level=log_level,
        counts=counts,
        log_messages=log_messages,
        slow=parse_duration(slow, "--slow"),
        claim_log=claim_log,
        lifeline=lifeline,
        killed=killed,
    )
    return run(options)

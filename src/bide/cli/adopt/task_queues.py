"""`bide adopt celery` and `rq`: tasks that wait on a Redis broker."""

from typing import TYPE_CHECKING, Annotated

import typer

from bide.cli.adopt.command import adopt
from bide.cli.adopt.options import REDIS, SOURCE, UNKEYED, AdoptTaskOptions, MessageOptions, RunOptions
from bide.cli.exits import WrongUsage
from bide.cli.options import Section, parse_duration
from bide.cli.queues import QueueOptions
from bide.core.times import duration_ms

if TYPE_CHECKING:
    from bide.adopt.source import AdoptSource


section: Section = Section("Sources: task queues")


@section.command(
    "celery",
    help="Move tasks of Celery that wait on a Redis broker: those with an ETA or countdown.\n\n"
    "Workers may go on meanwhile. A task that a worker has in its memory is revoked there in the same step in which it is "
    "taken, so each is run by Celery or by bide. A worker remembers 50,000 revoked tasks for three hours: when more wait, or "
    "for longer, the rest is moved when the workers have been stopped. The message has the task's arguments by name as its "
    "body, and the task's id as its key.",
    examples=(
        ("bide adopt celery --source-file broker.url --dry-run", "only look"),
        ("bide adopt celery --args shop.cancel=order", "name what is positional"),
        ("bide adopt celery --workers-stopped --immediate", "all that is left"),
    ),
)
def celery(
    options: QueueOptions,
    run: RunOptions,
    messages: MessageOptions,
    task: AdoptTaskOptions,
    *,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", metavar="QUEUE", help="Queue of Celery. May be repeated. Default: celery.", rich_help_panel=SOURCE
        ),
    ] = None,
    immediate: Annotated[
        bool, typer.Option("--immediate", help="Also move tasks without an ETA.", rich_help_panel=SOURCE)
    ] = False,
    workers_stopped: Annotated[
        bool,
        typer.Option(
            "--workers-stopped",
            help="All workers are stopped: also move what they had when they ended. Refused if one answers.",
            rich_help_panel=SOURCE,
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", metavar="N", min=0, help="Stop if fewer or more than N workers answer.", rich_help_panel=SOURCE
        ),
    ] = None,
    margin: Annotated[
        str, typer.Option(metavar="TIME", help="Leave to the workers what is due sooner.", rich_help_panel=SOURCE)
    ] = "60s",
    revokes: Annotated[
        int, typer.Option(metavar="N", min=1, help="The workers' setting CELERY_WORKER_REVOKES_MAX.", rich_help_panel=SOURCE)
    ] = 50_000,
    revoke_expires: Annotated[
        str, typer.Option(metavar="TIME", help="Their CELERY_WORKER_REVOKE_EXPIRES.", rich_help_panel=SOURCE)
    ] = "3h",
    control: Annotated[str, typer.Option(help="Celery's setting control_exchange.", rich_help_panel=SOURCE)] = "celery",
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="The transport option global_keyprefix.", rich_help_panel=SOURCE)
    ] = "",
) -> int:
    tasks, wanted = task.tasks(messages), run.run(REDIS)
    least, longest = _ms(margin, "--margin"), _ms(revoke_expires, "--revoke-expires")
    if not 2_000 <= least < longest / 2:
        raise WrongUsage("--margin must be 2s or more, and less than half of --revoke-expires.")

    def opened(furthest: int) -> "AdoptSource":
        from bide.adopt.redis.celery import celery as source
        from bide.adopt.redis.celery_tasks import Rules
        from bide.adopt.redis.server import SourceServer

        rules = Rules(
            stopped=workers_stopped,
            workers=workers,
            immediate=immediate,
            margin=least,
            most=revokes,
            longest=longest,
            look_only=wanted.dry_run,
        )
        made = messages.shape("json", furthest)
        return source(SourceServer(wanted.url), queue or ["celery"], made, tasks, rules, control=control, prefix=prefix)

    return adopt(options, opened, wanted, unkeyed=UNKEYED)


def _ms(text: str, option: str) -> int:
    return duration_ms(parse_duration(text, option) or 0)


@section.command(
    "rq",
    help="Move jobs of RQ that are scheduled in a queue.\n\n"
    "Its scheduler and workers may go on meanwhile. While a scheduler lives, jobs that are due within a minute are left to it. "
    "The message has the job's arguments by name as its body, and the job's id as its key. Nothing is unpickled: arguments "
    "that are not plain data are left where they are.",
    examples=(
        ("bide adopt rq default --source-file redis.url --dry-run", "only look"),
        ("bide adopt rq default --args shop.cancel=order", "name what is positional"),
        ("bide adopt rq default --queued", "also what waits for a worker"),
    ),
)
def rq(
    options: QueueOptions,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Queue of RQ.", show_default=False)],
    run: RunOptions,
    messages: MessageOptions,
    task: AdoptTaskOptions,
    *,
    queued: Annotated[
        bool, typer.Option("--queued", help="Also move jobs that are due and wait for a worker.", rich_help_panel=SOURCE)
    ] = False,
) -> int:
    tasks, wanted = task.tasks(messages), run.run(REDIS)

    def opened(furthest: int) -> "AdoptSource":
        from bide.adopt.redis.rq import rq as source
        from bide.adopt.redis.server import SourceServer

        return source(SourceServer(wanted.url), queue, messages.shape("json", furthest), tasks, queued=queued)

    return adopt(options, opened, wanted, unkeyed=UNKEYED)

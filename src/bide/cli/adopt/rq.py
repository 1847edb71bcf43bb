"""`bide adopt rq`: the jobs of a queue that are scheduled."""

from typing import TYPE_CHECKING, Annotated

import typer

from bide.cli.adopt.command import adopt
from bide.cli.adopt.options import REDIS, SOURCE, MessageOptions, RunOptions
from bide.cli.adopt.task_options import UNKEYED, TaskOptions
from bide.cli.options import Section
from bide.cli.queues import QueueOptions

if TYPE_CHECKING:
    from bide.adopt.source import Source

section: Section = Section("Sources: task queues")


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
    task: TaskOptions,
    *,
    queued: Annotated[
        bool, typer.Option("--queued", help="Also move jobs that are due and wait for a worker.", rich_help_panel=SOURCE)
    ] = False,
) -> int:
    tasks, wanted = task.tasks(messages), run.run(REDIS)

    def opened(furthest: int) -> "Source":
        from bide.adopt.redis.rq import rq as source
        from bide.adopt.redis.server import Server

        return source(Server(wanted.url), queue, messages.shape("json", furthest), tasks, queued=queued)

    return adopt(options, opened, wanted, unkeyed=UNKEYED)

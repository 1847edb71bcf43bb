"""`bide adopt bullmq`: the delayed jobs of a queue."""

from typing import TYPE_CHECKING, Annotated

import typer

from bide.cli.adopt.command import adopt
from bide.cli.adopt.options import REDIS, SOURCE, BodyAs, MessageOptions, RunOptions
from bide.cli.options import Section
from bide.cli.queues import QueueOptions

if TYPE_CHECKING:
    from bide.adopt.source import Source

section: Section = Section("Sources")


@section.command(
    "bullmq",
    help="Move the delayed jobs of a queue of BullMQ, while its workers and producers go on.\n\n"
    "The data of a job is the body. Its name and its id become headers, and it keeps the attempts that it has left. Jobs of "
    "flows and of job schedulers stay. --topic-field and --key-field may be name, id, or a field of the data, as in data.user.",
    examples=(
        ("bide adopt bullmq mail --topic mail --source redis://old/0 --dry-run", ""),
        ("bide adopt bullmq mail --topic-field name --key-field data.user …", ""),
        ("bide adopt bullmq mail --topic mail --waiting …", "also what is due"),
    ),
)
def bullmq(
    options: QueueOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue.", show_default=False)],
    run: RunOptions,
    messages: MessageOptions,
    *,
    body_as: BodyAs = None,
    prefix: Annotated[
        str, typer.Option(metavar="PREFIX", help="The prefix option of its Queue.", rich_help_panel=SOURCE)
    ] = "bull",
    waiting: Annotated[
        bool,
        typer.Option(
            "--waiting", help="Also jobs that wait for a worker now: wait, paused, prioritized.", rich_help_panel=SOURCE
        ),
    ] = False,
) -> int:
    messages.check()
    wanted = run.run(REDIS)

    def opened(longest: int) -> "Source":
        from bide.adopt.redis.bullmq import BullMQ
        from bide.adopt.redis.server import Server

        return BullMQ(Server(wanted.url), name, messages.shape("json", longest, body_as), prefix=prefix, waiting=waiting)

    return adopt(options, opened, wanted, unkeyed=messages.unkeyed)

"""`bide reshard`: another number of shards, while everybody goes on."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bide.cli.exits import Exit
from bide.cli.options import Json, Section
from bide.cli.output import echo, echo_json, note
from bide.cli.progress import progress
from bide.cli.queues import QueueOptions
from bide.core.formats import plural
from bide.errors import ConfigError

if TYPE_CHECKING:
    from bide.engines.redis.resharding import Emptying, Resharding

section: Section = Section("System")

LOOK = 1.0  # seconds between two looks at what is left


@section.command(
    "reshard",
    help="Spread the messages of a Redis queue over another number of shards. Programs go on meanwhile.\n\n"
    "New messages go to new shards at once. Messages that were sent before stay where they are, so the old shards empty "
    "themselves, and are given up when they hold neither messages nor dead letters, after ten minutes at least. You can stop "
    "this command at any time; the same command goes on.\n\n"
    "Without a number, say how the messages are spread, and give up old shards that are empty.",
    examples=(
        ("bide reshard 6 --url redis+cluster://redis-1:6379", "and wait until the old shards are empty"),
        ("bide reshard 6 --no-wait", "call it again later to give up the old shards"),
        ("bide reshard", "only look"),
    ),
)
def reshard(
    options: QueueOptions,
    shards: Annotated[int | None, typer.Argument(metavar="SHARDS", min=1, max=64, help="How many shards.")] = None,
    *,
    wait: Annotated[bool, typer.Option(help="Wait until the old shards are empty.")] = True,
    as_json: Json = False,
) -> int:
    guarded: Any = options.queue().session.setup.source
    source = guarded.plain
    if not hasattr(source, "resharding"):
        raise ConfigError("Only Redis queues have shards. Give a Redis URL: --url, --url-file or $BIDE_URL.")
    with source.resharding() as work:
        began = shards is not None and work.begin(shards)
        if began:
            note(f"New messages go to {plural(work.size, 'new shard')}.")
        left = work.step()
        if left is not None and wait and shards is not None:
            left = _waited_for(work, left)
        _tell(work, left, as_json=as_json)
    return Exit.OK


def _waited_for(work: "Resharding", left: "Emptying") -> "Emptying | None":
    total = left.pending + left.dead
    try:
        with progress("Old shards empty themselves", total) as moved:
            now: Emptying | None = left
            while now is not None:
                moved(max(0, total - now.pending - now.dead))
                time.sleep(LOOK)
                left, now = now, work.step()
    except KeyboardInterrupt:
        note("Stopped. The old shards go on emptying themselves; the same command goes on waiting.")
        return left
    return None


def _tell(work: "Resharding", left: "Emptying | None", *, as_json: bool) -> None:
    if as_json:
        old = left._asdict() if left else {"shards": 0, "pending": 0, "dead": 0, "gates": 0, "seconds": 0.0}
        echo_json({"shards": work.size, "old": old})
    elif left is None:
        echo(f"All messages are in {plural(work.size, 'shard')}.")
    else:
        echo(f"New messages go to {plural(work.size, 'shard')}.")
        what = f"{plural(left.pending, 'message')} and {plural(left.dead, 'dead letter')}"
        echo(f"Left in {plural(left.shards, 'old shard')}: {what}.")
        if left.gates:
            echo(f"Locks and limits that are in use there: {left.gates:,}.")
        if not left.pending and not left.dead and not left.gates:
            echo(f"They can be given up in {max(1, round(left.seconds))} s. Until then they know which sends were done.")

"""`bide migrate` and `reshard`: how a queue is stored on its server."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import Json, Section
from bide.cli.output import echo, echo_json, note, progress
from bide.cli.queues import QueueOptions
from bide.core.formats import plural
from bide.errors import ConfigError

if TYPE_CHECKING:
    from bide.engines.postgres.sync.migrations import Migrator
    from bide.engines.redis.resharding import Emptying, Resharding


section: Section = Section("System")
LOOK = 1.0  # seconds between two looks at what is left


@section.command(
    "migrate",
    help="Make the tables and functions of a PostgreSQL queue, or bring them to this release's layout.\n\n"
    "A queue does so by itself when it is opened, unless its URL says migrate=0. Programs of this release and of the one "
    "before can then work at the same time. Once none of the older release is left, --finish removes what only those used.\n\n"
    "Exit code 0: all is as this release needs it. 1: with --check, something is to be done.",
    examples=(
        ("bide migrate --url postgres://localhost/shop", ""),
        ("bide migrate --check", "only look"),
        ("bide migrate --sql > bide.sql", "to be read, and run by psql"),
        ("bide migrate --finish", "when all programs have been updated"),
    ),
)
def migrate(
    options: QueueOptions,
    *,
    check: Annotated[bool, typer.Option("--check", help="Change nothing. Say what would be done.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Change nothing. Print what would be run.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="Also remove what only older releases use.")] = False,
) -> int:
    guarded: Any = options.queue().session.setup.source
    source = guarded.plain
    if not hasattr(source, "migrating"):
        raise ConfigError(
            "Only PostgreSQL queues have tables to migrate. Give a PostgreSQL URL: --url, --url-file or $BIDE_URL."
        )
    if check and sql:
        raise WrongUsage("--check looks and --sql prints: give one of them.")
    work: Migrator = source.migrating()
    if check or sql:
        return _look(work, source, sql=sql, finish=finish)
    if not (work.finish() if finish else work.begin()):
        echo(f"Nothing to do: {source.shown} has layout {work.ours.number}.")
        return Exit.OK
    echo(f"{source.shown} has layout {work.ours.number} now.")
    if not finish and work.ours.last_steps(source.schema, work.found().finished):
        note("When all programs have been updated, run `bide migrate --finish`.")
    return Exit.OK


def _look(work: "Migrator", source: Any, *, sql: bool, finish: bool) -> int:
    found, ours, schema = work.found(), work.ours, source.schema
    steps = ours.steps(schema, found.number) if found.number < ours.number else ""
    last = ours.last_steps(schema, found.finished) if finish and found.number else ""
    if sql:
        quiet = "set local client_min_messages = warning;  -- or psql would tell of all that is dropped if it exists"
        script = f"begin;\n{quiet}\n{steps}\n{last}\ncommit;" if steps or last else "-- nothing to do"
        for line in script.splitlines():
            echo(line)
        return Exit.OK
    if steps:
        echo(f"{source.told(found)}: run `bide migrate`.")
    else:
        echo(f"{source.shown} has layout {found.number}: this release needs no other.")
    if finish:
        echo(
            "What only older releases use is still there: run `bide migrate --finish`."
            if last
            else "Nothing is left of older releases."
        )
    return Exit.FAILED if steps or last else Exit.OK


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

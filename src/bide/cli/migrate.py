"""`bide migrate`: the tables of a PostgreSQL queue, made or brought to this release's layout."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import Section
from bide.cli.output import echo, note
from bide.cli.queues import QueueOptions
from bide.errors import ConfigError

if TYPE_CHECKING:
    from bide.engines.postgres.sync.migrating import Migrating

section: Section = Section("System")


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
    work: Migrating = source.migrating()
    if check or sql:
        return _look(work, source, sql=sql, finish=finish)
    if not (work.finish() if finish else work.begin()):
        echo(f"Nothing to do: {source.shown} has layout {work.ours.number}.")
        return Exit.OK
    echo(f"{source.shown} has layout {work.ours.number} now.")
    if not finish and work.ours.last_steps(source.schema, work.found().finished):
        note("When all programs have been updated, run `bide migrate --finish`.")
    return Exit.OK


def _look(work: "Migrating", source: Any, *, sql: bool, finish: bool) -> int:
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

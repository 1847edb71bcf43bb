"""`bide dead` and `requeue`: a topic's dead letters, listed and delivered again."""

from typing import Annotated

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.messages import LISTED, print_pages, read_pages
from bide.cli.options import Delay, Json, JsonLines, Section, Topic, parse_duration
from bide.cli.output import echo, echo_json, local, note, relative
from bide.cli.progress import with_progress
from bide.cli.queues import QueueOptions
from bide.cli.table import Table
from bide.core.amounts import plural
from bide.types import Info

section: Section = Section("Dead letters")


@section.command(
    "dead",
    help="List the dead letters of a topic, each with its last error.",
    examples=(("bide dead order.pack", "the first 100"), ("bide dead order.pack --limit 5 --json", "one per line")),
)
def dead(
    options: QueueOptions,
    topic: Topic,
    *,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of dead letters.")] = LISTED,
    as_json: JsonLines = False,
) -> int:
    table = Table("id", "was due", "at", "attempts", "key", "last error", short=("key",), spare=("at",))
    with options.open() as queue:
        count, mark = print_pages(read_pages(queue, topic, "dead", limit), table, _row, as_json=as_json)
    if not count:
        note(f"{topic} has no dead letters.")
    elif mark is not None:
        note(f"There are more. Raise --limit, or list all: bide list {topic} --state dead --all")
    return Exit.OK


def _row(info: Info, now: int) -> tuple[str, ...]:
    attempts = f"{info.attempt}/{info.max_attempts}"
    return info.id, relative(info.due, now), local(info.due), attempts, info.key or "", info.last_error or ""


@section.command(
    "requeue",
    help="Deliver dead letters again, with all their attempts: by id, or --all.\n\n"
    "Exit code 0: all were requeued. 4: some ids are not dead letters of this topic; the others were requeued.",
    examples=(
        ("bide requeue order.pack 00000000002a1f3c", "one dead letter, due now"),
        ("bide requeue order.pack --all --delay 10m", "all, due in ten minutes"),
    ),
)
def requeue(
    options: QueueOptions,
    topic: Topic,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of dead letters.")] = None,
    *,
    whole: Annotated[bool, typer.Option("--all", help="Requeue all dead letters of the topic.")] = False,
    delay: Delay = None,
    as_json: Json = False,
) -> int:
    if bool(ids) == whole:
        raise WrongUsage("Give either the ids of dead letters or --all.")
    wait = parse_duration(delay) or 0
    named = list(dict.fromkeys(ids or ()))
    with options.open() as queue:
        if named:
            expected = len(named)
            done = queue.requeue(topic, named, delay=wait)
        else:
            expected = queue.stats(topic).dead
            done = with_progress(
                lambda: queue.requeue(topic, delay=wait),
                lambda: queue.stats(topic).dead,
                f"requeueing {topic}",
                expected,
            )
    count, keyless = int(done), done.keyless
    if as_json:
        echo_json({"topic": topic, "requeued": count, "keyless": keyless})
    elif not expected:
        echo(f"{topic} has no dead letters.")
    else:
        echo(f"Requeued {count:,} of {plural(expected, 'dead letter')} of {topic}.")
        if keyless:
            echo(f"{keyless:,} of them lost {'its' if keyless == 1 else 'their'} key, because a newer message has it.")
    return Exit.GONE if named and count < expected else Exit.OK

"""`bide dead` and `requeue`: dead letters, listed and delivered again."""

from typing import TYPE_CHECKING, Annotated

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import ONLY_DEAD, Delay, Json, JsonLines, Section, TopicOrPattern, Topics, parse_duration
from bide.cli.output import Table, local, note, relative
from bide.cli.pages import LISTED, is_many, print_pages, read_pages
from bide.cli.queues import QueueOptions
from bide.cli.sweep import DryRun, Filters, Meant, Steps, carry_out, tell
from bide.core.times import duration_ms
from bide.types import Info

if TYPE_CHECKING:
    from bide.engines.sync import Engine

section: Section = Section("Dead letters")


@section.command(
    "dead",
    help="List dead letters, each with its last error: of a topic, or of all topics.\n\n" + ONLY_DEAD,
    examples=(
        ("bide dead", "of all topics, the first 100"),
        ("bide dead order.pack --error Timeout --younger 1h", ""),
        ("bide dead order.pack --limit 5 --json", "one per line"),
    ),
)
def dead(
    options: QueueOptions,
    topic: Topics = None,
    *,
    filters: Filters,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of dead letters.")] = LISTED,
    as_json: JsonLines = False,
) -> int:
    columns = ("id", "topic", "was due", "at", "attempts", "key", "last error")
    table = Table(*columns, short=("topic", "key"), spare=("at",), without=() if is_many(topic) else ("topic",))
    where = filters.where()
    with options.open() as queue:
        pages = read_pages(queue, topic, ("dead",), limit, where=where)
        count, mark = print_pages(pages, table, _row, as_json=as_json)
    if not count:
        note(f"{topic or 'The queue'} has no dead letters{'' if where is None else ' that match'}.")
    elif mark is not None:
        one = f"{topic} " if topic else ""
        note(f"There are more. Raise --limit, or list all: bide list {one}--state dead --all")
    return Exit.OK


def _row(info: Info, now: int) -> tuple[str, ...]:
    attempts = f"{info.attempt}/{info.max_attempts}"
    return info.id, info.topic, relative(info.due, now), local(info.due), attempts, info.key or "", info.last_error or ""


@section.command(
    "requeue",
    help="Deliver dead letters again, with all their attempts: by id, or --all.\n\n"
    "--error, --key, --older and --younger choose some of --all. With --spread, they fall due evenly over a time, so that "
    "they don't arrive together.\n\n"
    "Exit code 0: done. 4: some ids are not dead letters of this topic; the others were requeued. 1: a server of "
    "several did not answer; what the others have was requeued.\n\n" + ONLY_DEAD,
    examples=(
        ("bide requeue order.pack 00000000002a1f3c", "one, due now"),
        ("bide requeue order.pack --all --delay 10m", "all, due in ten minutes"),
        ("bide requeue order.pack --all --error Timeout --dry-run", "shows which"),
        ("bide requeue order.pack --all --error Timeout --spread 10m", "over ten minutes"),
        ("bide requeue '*' --all --younger 1h", "of all topics"),
    ),
)
def requeue(
    options: QueueOptions,
    topic: TopicOrPattern,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of dead letters.")] = None,
    *,
    whole: Annotated[bool, typer.Option("--all", help="Requeue all dead letters of the topic.")] = False,
    filters: Filters,
    delay: Delay = None,
    spread: Annotated[
        str | None, typer.Option("--spread", metavar="TIME", help="Let them fall due evenly over this time: 10m.")
    ] = None,
    dry: DryRun = False,
    as_json: Json = False,
) -> int:
    where = filters.where()
    check_named(topic, ids, whole=whole, filtered=where is not None)
    wait, over = duration_ms(parse_duration(delay) or 0), duration_ms(parse_duration(spread, "--spread") or 0)
    with options.open() as queue:
        meant = Meant(queue, topic, ("dead",), where, tuple(dict.fromkeys(ids or ())))

        def steps(engine: "Engine", name: str) -> Steps:
            from bide.queue.sync import bulk

            if meant.ids:
                return bulk.requeue_named(engine, name, meant.ids, wait, over)
            if where is None:
                return bulk.requeue_all(engine, name, wait, over)
            return bulk.requeue_chosen(engine, name, meant.choice, wait, over)

        step = carry_out(meant, "requeue", "requeueing", steps, dry=dry, as_json=as_json)
    if isinstance(step, Exit):
        return step
    said = f"Requeued {step.done:,} of {meant.words(step.asked)}."
    return tell(meant, step, said, as_json=as_json, requeued=step.done, keyless=step.keyless)


def check_named(topic: str, ids: list[str] | None, *, whole: bool, filtered: bool) -> None:
    """Refuse what does not say which messages are meant."""
    if bool(ids) == whole:
        raise WrongUsage("Give either the ids of dead letters or --all.")
    if ids and filtered:
        raise WrongUsage("--error, --key, --older and --younger choose from --all. Leave out either them or the ids.")
    if ids and is_many(topic):
        raise WrongUsage("Ids need the name of their topic, without *.")

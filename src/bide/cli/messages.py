"""`bide list`, `show` and `reschedule`: what is stored, page by page or of one message, and another time for it."""

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import ONLY_DEAD, At, Delay, IdOrTopic, Json, JsonLines, Key, Section, Topics, parse_duration, parse_time
from bide.cli.output import (
    LATE,
    Table,
    body_lines,
    body_text,
    due,
    echo,
    echo_json,
    echo_pairs,
    is_terminal,
    local,
    note,
    now_ms,
    relative,
)
from bide.cli.pages import LISTED, is_many, print_pages, read_pages
from bide.cli.queues import CODES, ENDS, QueueOptions, Target, refused
from bide.cli.sweep import Filters
from bide.core import formats
from bide.types import Attempt, Info, RescheduleResult, State

section: Section = Section("Messages")

SHOWN = 1_000  # characters of a body on a terminal: no screen is wider
_STYLES = {"scheduled": "", "ready": "green", "leased": "cyan", "dead": "red"}


@section.command(
    "list",
    help="List the messages of a topic: pending messages by due time, then leased, then dead.\n\n"
    "Without a topic, list those of all topics. On a terminal, bodies are cut to its width. In a pipe or a file, they are "
    "complete. `bide send --from` sends what `bide list --json` has printed.\n\n" + ONLY_DEAD,
    examples=(
        ("bide list order.cancel", "the first 100"),
        ("bide list order.cancel --state dead --limit 10", ""),
        ("bide list 'order.*' --key 'order:4*'", "of several topics, by key"),
        ("bide list --all --json", "everything, one message per line"),
    ),
)
def list_(
    options: QueueOptions,
    topic: Topics = None,
    *,
    state: Annotated[State | None, typer.Option("--state", help="Only messages in this state.")] = None,
    filters: Filters,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Maximum number of messages. Default: 100.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="MARK", help="Continue after this mark, which the last list printed.")
    ] = None,
    whole: Annotated[bool, typer.Option("--all", help="List all messages.")] = False,
    as_json: JsonLines = False,
) -> int:
    if whole and limit is not None:
        raise WrongUsage("Give either --all or --limit, not both.")
    if after is not None and is_many(topic):
        raise WrongUsage("A mark is of one topic. Give its name.")
    columns = ("id", "topic", "state", "due", "at", "attempt", "key", "body")
    table = Table(*columns, short=("topic", "key"), spare=("at", "attempt"), without=() if is_many(topic) else ("topic",))
    with options.open() as queue:
        most, where = None if whole else limit or LISTED, filters.where()
        pages = read_pages(queue, topic, (state,), most, after=after, where=where)
        count, mark = print_pages(pages, table, _row, _style, as_json=as_json)
    if not count:
        note(f"{topic or 'The queue'} has no {state + ' ' if state else ''}messages{'' if where is None else ' that match'}.")
    elif mark:
        note(f"There are more messages. Continue with --after {mark}, or use --all.")
    elif mark is not None:
        note("There may be more messages. Raise --limit, or use --all.")
    return Exit.OK


def _style(info: Info, now: int) -> str:
    late = info.state == "ready" and now - info.due >= LATE * 1_000
    return "yellow" if late else _STYLES[info.state]


def _row(info: Info, now: int) -> tuple[str, ...]:
    body = body_text(info.body)
    if is_terminal(sys.stdout):
        body = body[:SHOWN]
    attempt = f"{info.attempt}/{info.max_attempts}"
    return info.id, info.topic, info.state, relative(info.due, now), local(info.due), attempt, info.key or "", body


@section.command(
    "show",
    help="Show everything that is stored about a message.\n\nExit code 0: found. 1: the message has ended or was never sent.",
    examples=(
        ("bide show 00000000002a1f3c", "by its id"),
        ("bide show order.cancel --key order:42", "by its topic and key"),
    ),
    needs="lookup",
)
def show(options: QueueOptions, message: IdOrTopic, *, key: Key = None, as_json: Json = False) -> int:
    target = Target(message, key)
    with options.open() as queue:
        info = queue.get(target.id, topic=target.topic, key=key)
        if info is None:
            note(f"bide: {target} does not exist. It has ended, or was never sent.")
            target.note_if_no_id(queue)
            return Exit.FAILED
    if as_json:
        echo_json(formats.message(info) | {"attempts": [formats.attempt(each) for each in info.attempts]})
    else:
        echo_pairs(_pairs(info, now_ms()))
    return Exit.OK


def _pairs(info: Info, now: int) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str | None]] = [
        ("id", info.id),
        ("topic", info.topic),
        ("state", info.state),
        ("due", due(info.due, now)),
        ("attempt", f"{info.attempt} of {info.max_attempts}"),
        ("key", info.key),
        ("priority", info.priority),
        ("leased by", info.worker),
        ("leased since", None if info.leased_since is None else due(info.leased_since, now)),
        ("leased until", None if info.lease_until is None else due(info.lease_until, now)),
        ("expires", None if info.expires is None else due(info.expires, now)),
        ("last error", info.last_error),
        *_attempts(info.attempts),
        *(("header", f"{name}={value}") for name, value in info.headers.items()),
    ]
    first, *rest = body_lines(info.body)
    return [*((name, value) for name, value in pairs if value is not None), ("body", first), *(("", line) for line in rest)]


def _attempts(attempts: Sequence[Attempt]) -> Iterator[tuple[str, str]]:
    """Each with its error, and the last traceback."""
    again = [place for place in range(1, len(attempts)) if attempts[place].number <= attempts[place - 1].number]
    for place, each in enumerate(attempts):
        life = " before it was requeued" if again and place < again[-1] else ""
        where = "" if each.worker is None else f", {each.worker}"
        yield f"attempt {each.number}", f"{local(each.began)}{where}{life}: {each.error or 'no error was given'}"
    last = next((each.traceback for each in reversed(attempts) if each.traceback), None)
    if last is not None:
        first, *rest = last.split("\n")
        yield "traceback", first
        yield from (("", line) for line in rest)


@section.command(
    "reschedule",
    help="Give a pending message a new due time.\n\n" + ENDS.format(done="MOVED"),
    examples=(
        ("bide reschedule 00000000002a1f3c --delay 20m", "from now"),
        ("bide reschedule 00000000002a1f3c --by 3d", "later than it was due"),
        ("bide reschedule order.cancel --key order:42 --at 2030-01-15T09:00:00Z", ""),
    ),
    needs="cancel",
)
def reschedule(
    options: QueueOptions,
    message: IdOrTopic,
    *,
    key: Key = None,
    delay: Delay = None,
    at: At = None,
    by: Annotated[str | None, typer.Option("--by", metavar="TIME", help="So much later than it was due: 3d, 1h30m.")] = None,
    as_json: Json = False,
) -> int:
    if [delay, at, by].count(None) != 2:
        raise WrongUsage("Give the new time with --delay, --at or --by.")
    (wait, instant), later = parse_time(delay, at), parse_duration(by, "--by")
    target = Target(message, key)
    with options.open() as queue:
        result = queue.reschedule(target.id, topic=target.topic, key=key, delay=wait, at=instant, by=later)
        known = result in (RescheduleResult.MOVED, RescheduleResult.DEAD)
        info = queue.get(target.id, topic=target.topic, key=key) if known and queue.capabilities.lookup else None
        if result is RescheduleResult.GONE:
            target.note_if_no_id(queue)
    if as_json:
        moved = info.due if result and info is not None else None
        echo_json({"result": result.value, **formats.instant("due", moved)})
    elif result is RescheduleResult.MOVED:
        echo(f"MOVED: {target} was rescheduled." if info is None else f"MOVED: {target} is due {due(info.due, now_ms())}.")
    else:
        echo(refused(result, target, info))
    return CODES.get(result.name, Exit.OK)

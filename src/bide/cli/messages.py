"""`bide show` and `reschedule`: what is stored about a message, and another time for it."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import At, Delay, IdOrTopic, Json, Key, Section, parse_duration, parse_time
from bide.cli.output import body_lines, due, echo, echo_json, local, note, now_ms
from bide.cli.queues import QueueOptions
from bide.cli.table import echo_pairs
from bide.cli.target import CODES, ENDS, Target, refused
from bide.core import formats
from bide.types import Attempt, Info, RescheduleResult

section: Section = Section("Messages")


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

"""`bide list`, `show`, `cancel` and `reschedule`: what is stored, and what is still to come."""

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import At, Delay, IdOrTopic, Json, JsonLines, Key, Section, Topic, parse_time
from bide.cli.output import LATE, body_lines, body_text, due, echo, echo_json, is_terminal, local, note, now_ms, relative
from bide.cli.queues import QueueOptions
from bide.cli.table import Table, echo_pairs
from bide.core import json_shapes
from bide.types import CancelResult, Info, Page, RescheduleResult, State

if TYPE_CHECKING:
    from bide.queue import Queue

section: Section = Section("Messages")

PAGE = 200  # messages in one look; their bodies are in memory together
LISTED = 100  # messages that a list has unless told otherwise
SHOWN = 1_000  # characters of a body on a terminal: no screen is wider
ID_LENGTH = 16  # characters of the shortest id
_STYLES = {"scheduled": "", "ready": "green", "leased": "cyan", "dead": "red"}
_CODES = {"RUNNING": Exit.RUNNING, "DEAD": Exit.DEAD, "GONE": Exit.GONE}
_ENDS = (
    "Exit code 0: {done}. 3: RUNNING, a worker has the message. 4: GONE, the message has ended or was never sent. "
    "6: DEAD, the message is a dead letter."
)


class Target(NamedTuple):
    """The message that a command is about: named by its id, or by its topic and --key."""

    name: str
    key: str | None

    @property
    def id(self) -> str | None:
        return self.name if self.key is None else None

    @property
    def topic(self) -> str | None:
        return None if self.key is None else self.name

    def note_if_no_id(self, queue: "Queue") -> None:
        """Say how to name a message, if this is the name of a topic or perhaps a key."""
        if self.key is not None:
            return
        if self.name in queue.topics():
            note(f"bide: {self.name} is a topic. Give the id of a message, or the topic and a key: {self.name} --key KEY")
        elif len(self.name) < ID_LENGTH:
            note(f"bide: {self.name} is not an id. If it is a key, give its topic, too: TOPIC --key {self.name}")

    def __str__(self) -> str:
        return f"Message {self.name}" if self.key is None else f"The message with key {self.key!r} in {self.name}"


@section.command(
    "list",
    help="List the messages of a topic: pending messages by due time, then leased, then dead.\n\n"
    "On a terminal, bodies are cut to its width. In a pipe or a file, they are complete.",
    examples=(
        ("bide list order.cancel", "the first 100"),
        ("bide list order.cancel --state dead --limit 10", ""),
        ("bide list order.cancel --all --json", "one message per line"),
    ),
)
def list_(
    options: QueueOptions,
    topic: Topic,
    *,
    state: Annotated[State | None, typer.Option("--state", help="Only messages in this state.")] = None,
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
    table = Table("id", "state", "due", "at", "attempt", "key", "body", short=("key",), spare=("at", "attempt"))
    with options.open() as queue:
        pages = read_pages(queue, topic, state, None if whole else limit or LISTED, after)
        count, mark = print_pages(pages, table, _row, _style, as_json=as_json)
    if not count:
        note(f"{topic} has no {state + ' ' if state else ''}messages.")
    elif mark is not None:
        note(f"There are more messages. Continue with --after {mark}, or use --all.")
    return Exit.OK


def read_pages(queue: "Queue", topic: str, state: State | None, limit: int | None, after: str | None = None) -> Iterator[Page]:
    """Pages of messages, up to `limit` messages, or all without one."""
    done = 0
    while limit is None or done < limit:
        page = queue.messages(topic, state=state, limit=PAGE if limit is None else min(PAGE, limit - done), after=after)
        done, after = done + len(page), page.after
        if page:
            yield page
        if after is None:
            return


def print_pages(
    pages: Iterator[Page],
    table: Table,
    row: Callable[[Info, int], tuple[str, ...]],
    style: Callable[[Info, int], str] = lambda info, now: "",
    *,
    as_json: bool,
) -> tuple[int, str | None]:
    """Print pages of messages. Returns how many there were, and the mark to go on from if there are more."""
    count, mark = 0, None
    for page in pages:
        count, mark = count + len(page), page.after
        if as_json:
            for info in page:
                echo_json(json_shapes.message(info))
        else:
            now = now_ms()
            table.add([row(info, now) for info in page], [style(info, now) for info in page])
    return count, mark


def _style(info: Info, now: int) -> str:
    late = info.state == "ready" and now - info.due >= LATE * 1_000
    return "yellow" if late else _STYLES[info.state]


def _row(info: Info, now: int) -> tuple[str, ...]:
    body = body_text(info.body)
    if is_terminal(sys.stdout):
        body = body[:SHOWN]
    attempt = f"{info.attempt}/{info.max_attempts}"
    return info.id, info.state, relative(info.due, now), local(info.due), attempt, info.key or "", body


@section.command(
    "show",
    help="Show everything that is stored about a message.\n\nExit code 0: found. 1: the message has ended or was never sent.",
    examples=(
        ("bide show 00000000002a1f3c", "by its id"),
        ("bide show order.cancel --key order:42", "by its topic and key"),
    ),
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
        echo_json(json_shapes.message(info))
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
        ("leased until", None if info.lease_until is None else due(info.lease_until, now)),
        ("expires", None if info.expires is None else due(info.expires, now)),
        ("last error", info.last_error),
        *(("header", f"{name}={value}") for name, value in info.headers.items()),
    ]
    first, *rest = body_lines(info.body)
    return [*((name, value) for name, value in pairs if value is not None), ("body", first), *(("", line) for line in rest)]


@section.command(
    "cancel",
    help="Cancel a pending message: it will never be delivered.\n\n" + _ENDS.format(done="CANCELLED"),
    examples=(
        ("bide cancel 00000000002a1f3c", "by its id"),
        ("bide cancel order.cancel --key order:42", "by its topic and key"),
    ),
)
def cancel(options: QueueOptions, message: IdOrTopic, *, key: Key = None, as_json: Json = False) -> int:
    target = Target(message, key)
    with options.open() as queue:
        result = queue.cancel(target.id, topic=target.topic, key=key)
        dead = queue.get(target.id) if result is CancelResult.DEAD else None
        if result is CancelResult.GONE:
            target.note_if_no_id(queue)
    if as_json:
        echo_json({"result": result.value})
    elif result is CancelResult.CANCELLED:
        echo(f"CANCELLED: {target} will never be delivered.")
    else:
        echo(_refused(result, target, dead))
    return _CODES.get(result.name, Exit.OK)


@section.command(
    "reschedule",
    help="Give a pending message a new due time.\n\n" + _ENDS.format(done="MOVED"),
    examples=(
        ("bide reschedule 00000000002a1f3c --delay 20m", "from now"),
        ("bide reschedule order.cancel --key order:42 --at 2030-01-15T09:00:00Z", ""),
    ),
)
def reschedule(
    options: QueueOptions, message: IdOrTopic, *, key: Key = None, delay: Delay = None, at: At = None, as_json: Json = False
) -> int:
    if delay is None and at is None:
        raise WrongUsage("Give the new time with --delay or --at.")
    wait, instant = parse_time(delay, at)
    target = Target(message, key)
    with options.open() as queue:
        result = queue.reschedule(target.id, topic=target.topic, key=key, delay=wait, at=instant)
        known = result in (RescheduleResult.MOVED, RescheduleResult.DEAD)
        info = queue.get(target.id, topic=target.topic, key=key) if known else None
        if result is RescheduleResult.GONE:
            target.note_if_no_id(queue)
    if as_json:
        moved = info.due if result and info is not None else None
        echo_json({"result": result.value, **json_shapes.instant("due", moved)})
    elif result is RescheduleResult.MOVED:
        echo(f"MOVED: {target} was rescheduled." if info is None else f"MOVED: {target} is due {due(info.due, now_ms())}.")
    else:
        echo(_refused(result, target, info))
    return _CODES.get(result.name, Exit.OK)


def _refused(result: CancelResult | RescheduleResult, target: Target, dead: Info | None) -> str:
    if result.name == "RUNNING":
        return f"RUNNING: {target} was not changed, because a worker has it."
    if result.name == "DEAD":
        topic = "TOPIC" if dead is None else dead.topic
        return (
            f"DEAD: {target} is a dead letter. `bide requeue {topic} {target.id}` delivers it again, "
            f"`bide purge {topic} --state dead` deletes all dead letters of its topic."
        )
    return f"GONE: {target} has ended, or was never sent."

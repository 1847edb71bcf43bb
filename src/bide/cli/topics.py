"""`bide stats`, `topics`, `pause` and `resume`: what a topic holds, and whether it is delivered."""

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from bide.cli.exits import Exit
from bide.cli.options import Json, JsonLines, Section, Topic
from bide.cli.output import LATE, due, echo, echo_json, note, note_missing, now_ms, relative
from bide.cli.queues import QueueOptions, complete_topics
from bide.cli.table import Table, echo_pairs
from bide.core import formats
from bide.core import options as checks
from bide.core.formats import plural, span
from bide.errors import ConfigError
from bide.types import Stats

if TYPE_CHECKING:
    from bide.queue import Queue

section: Section = Section("Topics")

SUGGESTED = 5  # names of topics, when one may be mistyped
ALWAYS_EXACT = 10_000  # messages of a topic and state; more may be an estimate


@section.command(
    "stats",
    help="Count messages by state, of one topic or all topics.\n\n"
    "The answer also has how late the oldest message is, and when the next one is due.",
    examples=(("bide stats", "all topics together"), ("bide stats order.cancel --json", "one topic, for a program")),
    needs="inspect",
)
def stats(
    options: QueueOptions,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="Name of the topic. Default: all topics.", autocompletion=complete_topics),
    ] = None,
    *,
    as_json: Json = False,
) -> int:
    with options.open() as queue:
        counts = queue.stats(topic)
        if topic is not None:
            _note_if_unknown(queue, topic)
    note_missing(counts.missing)
    if as_json:
        echo_json(formats.stats(topic, counts))
    else:
        echo_pairs(_pairs(counts, now_ms(), one=topic is not None), {"oldest overdue": "red"} if _late(counts) else {})
    return Exit.OK


def _pairs(counts: Stats, now: int, *, one: bool) -> list[tuple[str, str]]:
    if one:
        paused = "yes" if counts.paused else "no"
    else:
        paused = ", ".join(sorted(name for name, each in counts.topics.items() if each.paused)) or "none"
    return [
        *([] if one else [("topics", f"{len(counts.topics):,}")]),
        ("scheduled", count(counts.scheduled, counts)),
        ("ready", count(counts.ready, counts)),
        ("leased", f"{counts.leased:,}"),
        ("dead", f"{counts.dead:,}"),
        ("dead and dropped", f"{counts.dead_dropped:,}"),
        ("paused", paused),
        ("oldest overdue", overdue(counts) or "none"),
        ("next due", "none" if counts.next_due is None else due(counts.next_due, now)),
    ]


@section.command(
    "topics",
    help="List the topics with their counts.\n\n"
    "The list also has how late the oldest message is, and when the next one is due.",
    examples=(("bide topics", ""), ("bide topics --json", "one topic per line")),
    needs="inspect",
)
def topics(options: QueueOptions, *, as_json: JsonLines = False) -> int:
    with options.open() as queue:
        counts = queue.stats()
    note_missing(counts.missing)
    each = sorted(counts.topics.items())
    if as_json:
        for name, one in each:
            echo_json(formats.stats(name, one))
    elif each:
        numbers = ("scheduled", "ready", "leased", "dead")
        table = Table("topic", *numbers, "paused", "overdue", "next due", right=numbers)
        now = now_ms()
        table.add([_row(name, one, now) for name, one in each], [_style(one) for _, one in each])
    else:
        note("There are no topics.")
    return Exit.OK


def _row(name: str, counts: Stats, now: int) -> tuple[str, ...]:
    return (
        name,
        count(counts.scheduled, counts),
        count(counts.ready, counts),
        f"{counts.leased:,}",
        f"{counts.dead:,}",
        "paused" if counts.paused else "",
        overdue(counts),
        "" if counts.next_due is None else relative(counts.next_due, now),
    )


def count(number: int, counts: Stats) -> str:
    """A number of messages, which may be an estimate."""
    return f"about {number:,}" if counts.about and number > ALWAYS_EXACT else f"{number:,}"


def _style(counts: Stats) -> str:
    if counts.paused:
        return "yellow"
    return "red" if counts.dead or _late(counts) else ""


def overdue(counts: Stats) -> str:
    """How late the oldest ready message is; empty if there is none."""
    return "" if counts.oldest_overdue is None else span(counts.oldest_overdue) or "0s"


def _late(counts: Stats) -> bool:
    return counts.oldest_overdue is not None and counts.oldest_overdue >= LATE


@section.command(
    "pause",
    help="Stop delivering a topic's messages until you resume it. Running handlers go on.",
    examples=(
        ("bide pause order.pack", ""),
        ("bide pause order.pack --empty", "before its first message, or when none is left"),
    ),
    needs="pause",
)
def pause(
    options: QueueOptions,
    topic: Topic,
    *,
    empty: Annotated[
        bool,
        typer.Option("--empty", help="Pause it even if it has no messages. Without it, this is refused as a mistyped name."),
    ] = False,
    as_json: Json = False,
) -> int:
    with options.open() as queue:
        unknown = None if empty else _unknown(queue, topic)
        if unknown is not None:
            raise ConfigError(f"{unknown} Nothing was paused. To pause {topic} all the same, add --empty.")
        queue.pause(topic)
    if as_json:
        echo_json({"topic": topic, "paused": True})
    else:
        echo(f"Paused {topic}; due messages wait, running handlers go on.")
    return Exit.OK


@section.command(
    "resume",
    help="Deliver the messages of a paused topic again.",
    examples=(("bide resume order.pack", ""),),
    needs="pause",
)
def resume(options: QueueOptions, topic: Topic, *, as_json: Json = False) -> int:
    with options.open() as queue:
        _note_if_unknown(queue, topic)
        queue.resume(topic)
        waiting = queue.stats(topic).ready if queue.capabilities.inspect else None
    if as_json:
        echo_json({"topic": topic, "paused": False})
    else:
        echo(f"Resumed {topic}." if waiting is None else f"Resumed {topic}; {plural(waiting, 'message')} waiting.")
    return Exit.OK


def _note_if_unknown(queue: "Queue", topic: str) -> None:
    unknown = _unknown(queue, topic)
    if unknown is not None:
        note(f"bide: {unknown}")


def _unknown(queue: "Queue", topic: str) -> str | None:
    """What to tell the user if a topic has no messages: its name may be mistyped."""
    checks.topic(topic)  # what is no name is not looked for
    if not queue.capabilities.inspect:
        return None
    counts = queue.stats()
    known = counts.topics
    if topic in known or counts.missing:  # a server that does not answer may have some
        return None
    alike = difflib.get_close_matches(topic, known, SUGGESTED) or sorted(known)[:SUGGESTED]
    more = "." if len(known) <= len(alike) else " …"
    there = f"Known topics: {', '.join(alike)}{more}" if alike else "There are no topics."
    return f"{topic} has no messages. {there}"

"""`bide stats`, `topics`, `timeline`, `pause` and `resume`: what topics hold, when it is due, and whether it comes."""

import difflib
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import Json, JsonLines, Section, Topic, parse_duration, parse_instant
from bide.cli.output import (
    LATE,
    Table,
    due,
    echo,
    echo_json,
    echo_pairs,
    is_terminal,
    is_unicode,
    local,
    note,
    note_missing,
    now_ms,
    relative,
)
from bide.cli.queues import QueueOptions, complete_topics
from bide.clock import epoch_ms
from bide.core import formats
from bide.core import options as checks
from bide.core.formats import plural, span
from bide.core.times import duration_ms
from bide.errors import ConfigError
from bide.types import Span, Stats

if TYPE_CHECKING:
    from bide.queue import Queue


section: Section = Section("Topics")

SUGGESTED = 5  # names of topics, when one may be mistyped
ALWAYS_EXACT = 10_000  # messages of a topic and state; more may be an estimate
COLUMNS = 80  # of what is not a terminal
LEAST = 10  # characters that the longest bar has, however narrow the terminal is
BUCKETS = 20
MOST = 10_000
_EIGHTHS = " ▏▎▍▌▋▊▉"


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


@section.command(
    "timeline",
    help="Draw how many pending messages fall due when: of a topic, or of all topics.\n\n"
    "By default, of the next hour. --start and --end take a timestamp, or a duration from now. What is overdue is not in the "
    "bars; a line below them counts it, and what is due later.",
    examples=(
        ("bide timeline", "all topics, the next hour"),
        ("bide timeline order.cancel --end 1d --buckets 24", "the next day, by the hour"),
        ("bide timeline --start 2030-01-15T08:00:00Z --end 2030-01-16T08:00:00Z", ""),
        ("bide timeline order.cancel --json", "one bar per line"),
    ),
    needs="inspect",
)
def timeline(
    options: QueueOptions,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="Name of the topic. Default: all topics.", autocompletion=complete_topics),
    ] = None,
    *,
    start: Annotated[
        str | None, typer.Option("--start", metavar="TIME", help="Begin here: a timestamp, or 15m from now. Default: now.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="TIME", help="End here: the same. Default: an hour after the start.")
    ] = None,
    buckets: Annotated[
        int, typer.Option("--buckets", metavar="N", min=1, max=MOST, help="Number of bars, of equal time.")
    ] = BUCKETS,
    as_json: JsonLines = False,
) -> int:
    now = datetime.now(UTC)
    begin = now if start is None else _instant(start, now, "--start")
    until = begin + timedelta(hours=1) if end is None else _instant(end, now, "--end")
    if until - begin < timedelta(milliseconds=buckets):
        raise WrongUsage("--end has to be after --start, by a millisecond for each bar.")
    with options.open() as queue:
        spans = queue.timeline(topic, start=begin, end=until, buckets=buckets)
        pending = queue.stats(topic)
    if as_json:
        for each in spans:
            times = {**formats.instant("start", epoch_ms(each.start)), **formats.instant("end", epoch_ms(each.end))}
            echo_json({"topic": topic, **times, "messages": each.messages})
        return Exit.OK
    for line in _bars(spans):
        echo(line)
    shown = sum(each.messages for each in spans)
    about = "about " if pending.about else ""
    ready = f"{pending.ready:,} {'is' if pending.ready == 1 else 'are'} due now"
    note(f"Due in this time: {shown:,} of {about}{plural(pending.pending, 'pending message')}. {ready}.")
    return Exit.OK


def _instant(text: str, now: datetime, option: str) -> datetime:
    if text[:4].isdigit() and "-" in text:
        return parse_instant(text, option)
    return now + timedelta(milliseconds=duration_ms(parse_duration(text, option) or 0))


def _bars(spans: Sequence[Span]) -> list[str]:
    """A line for each span: when it begins, how many messages, and a bar that is as long as there is room for."""
    begins = [_begin(each.start, each.end - each.start) for each in spans]
    counts = [f"{each.messages:,}" for each in spans]
    wide, most = max(map(len, begins)), max(each.messages for each in spans)
    right = max(map(len, counts))
    columns = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else COLUMNS
    room = max(LEAST, columns - wide - right - 4)
    return [
        f"{begin:<{wide}}  {count:>{right}}  {_bar(each.messages, most, room)}".rstrip()
        for begin, count, each in zip(begins, counts, spans, strict=True)
    ]


def _begin(start: datetime, length: timedelta) -> str:
    """As much of an instant as tells it from the next one."""
    text = local(epoch_ms(start))
    return f"{text[:19]}.{start.microsecond // 1_000:03d}{text[19:]}" if length < timedelta(seconds=1) else text


def _bar(count: int, most: int, room: int) -> str:
    """A bar, to an eighth of a character. A bar of any message is never empty."""
    if not count:
        return ""
    if not is_unicode(sys.stdout):
        return "#" * max(1, count * room // most)
    eighths = max(1, count * room * 8 // most)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()

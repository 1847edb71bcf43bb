"""`bide timeline`: how many messages fall due when, as bars."""

import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import JsonLines, Section, parse_duration, parse_instant
from bide.cli.output import echo, echo_json, is_terminal, is_unicode, local, note
from bide.cli.queues import QueueOptions, complete_topics
from bide.clock import epoch_ms
from bide.core import formats
from bide.core.formats import plural
from bide.core.times import duration_ms
from bide.types import Span

section: Section = Section("Topics")

COLUMNS = 80  # of what is not a terminal
LEAST = 10  # characters that the longest bar has, however narrow the terminal is
BUCKETS = 20
MOST = 10_000
_EIGHTHS = " ▏▎▍▌▋▊▉"


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

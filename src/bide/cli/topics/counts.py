"""`bide stats` and `bide topics`: how many messages there are in each state, and how late they are."""

from bide.cli.exits import Exit
from bide.cli.output import fields
from bide.cli.output.columns import Columns, say_pairs
from bide.cli.output.out import say_json, tell
from bide.cli.output.times import LATE, due, now_ms, relative
from bide.cli.place import Place
from bide.cli.topics.nothing import say_if_unknown
from bide.core.amounts import span
from bide.types import Stats


def stats(place: Place, topic: str | None, *, as_json: bool = False) -> int:
    with place.queue() as queue:
        counts = queue.stats(topic)
        if topic is not None:
            say_if_unknown(queue, topic)
    if as_json:
        say_json(fields.stats(topic, counts))
    else:
        say_pairs(_pairs(counts, now_ms(), one=topic is not None), {"oldest overdue": "red"} if _late(counts) else {})
    return Exit.OK


def topics(place: Place, *, as_json: bool = False) -> int:
    with place.queue() as queue:
        each = sorted(queue.stats().topics.items())
    if as_json:
        for name, counts in each:
            say_json(fields.stats(name, counts))
    elif each:
        numbers = ("scheduled", "ready", "leased", "dead")
        columns = Columns("topic", *numbers, "paused", "overdue", "next due", right=numbers)
        now = now_ms()
        columns.add([_row(name, counts, now) for name, counts in each], [_style(counts) for _, counts in each])
    else:
        tell("No topic holds a message.")
    return Exit.OK


def _pairs(counts: Stats, now: int, *, one: bool) -> list[tuple[str, str]]:
    paused = ("yes" if counts.paused else "no") if one else ", ".join(sorted(_paused(counts))) or "none"
    return [
        *([] if one else [("topics", f"{len(counts.topics):,}")]),
        ("scheduled", f"{counts.scheduled:,}"),
        ("ready", f"{counts.ready:,}"),
        ("leased", f"{counts.leased:,}"),
        ("dead", f"{counts.dead:,}"),
        ("dead and dropped", f"{counts.dead_dropped:,}"),
        ("paused", paused),
        ("oldest overdue", "none" if counts.oldest_overdue is None else _overdue(counts.oldest_overdue)),
        ("next due", "none" if counts.next_due is None else due(counts.next_due, now)),
    ]


def _paused(counts: Stats) -> list[str]:
    return [name for name, each in counts.topics.items() if each.paused]


def _row(name: str, counts: Stats, now: int) -> tuple[str, ...]:
    return (
        name,
        f"{counts.scheduled:,}",
        f"{counts.ready:,}",
        f"{counts.leased:,}",
        f"{counts.dead:,}",
        "paused" if counts.paused else "",
        "" if counts.oldest_overdue is None else _overdue(counts.oldest_overdue),
        "" if counts.next_due is None else relative(counts.next_due, now),
    )


def _overdue(seconds: float) -> str:
    return span(seconds) or "0s"


def _style(counts: Stats) -> str:
    if counts.paused:
        return "yellow"
    return "red" if counts.dead or _late(counts) else ""


def _late(counts: Stats) -> bool:
    return counts.oldest_overdue is not None and counts.oldest_overdue >= LATE

"""The tables of `bide watch` as cells: a row for each topic, and one for each worker process."""

from bide.cli.output import LATE, relative
from bide.cli.topics import count, overdue
from bide.cli.watch.looking import Look, by_worker
from bide.core.formats import plural, span
from bide.types import Info, Stats

TOPICS = ("topic", "scheduled", "ready", "leased", "dead", "change", "overdue", "next due")
WORKERS = ("worker", "runs", "longest", "of", "attempt", "message")
RIGHT = ("scheduled", "ready", "leased", "dead", "change", "overdue", "runs", "longest", "attempt")


def topic_rows(look: Look) -> list[tuple[str, ...]]:
    return [_topic_row(topic, counts, look) for topic, counts in look.topics.items()]


def _topic_row(topic: str, counts: Stats, look: Look) -> tuple[str, ...]:
    change = look.changes.get(topic)
    return (
        topic,
        count(counts.scheduled, counts),
        count(counts.ready, counts),
        f"{counts.leased:,}",
        f"{counts.dead:,}",
        "" if change is None else rate(change),
        "paused" if counts.paused else overdue(counts),
        "" if counts.next_due is None else relative(counts.next_due, look.at),
    )


def style(counts: Stats) -> str:
    if counts.paused:
        return "yellow"
    late = counts.oldest_overdue is not None and counts.oldest_overdue >= LATE
    return "red" if late else "" if counts.ready or counts.leased or counts.scheduled or counts.dead else "dim"


def worker_rows(look: Look) -> list[tuple[str, ...]]:
    return [
        (
            worker,
            f"{many:,}",
            _for(oldest, look.at),
            ", ".join(topics),
            f"{oldest.attempt}/{oldest.max_attempts}",
            _name(oldest),
        )
        for worker, many, topics, oldest in by_worker(look.running)
    ]


def _for(info: Info, now: int) -> str:
    """How long a worker has had a message."""
    return "" if info.leased_since is None else span(max(0, now - info.leased_since) / 1000) or "0s"


def _name(info: Info) -> str:
    return info.id if info.key is None else info.key


def rate(change: float) -> str:
    """How many messages a second are gained or lost."""
    digits = 0 if abs(change) >= 99.95 or not change else 1
    return f"{change:+,.{digits}f}/s" if change else "0/s"


def summary(look: Look) -> str:
    """All topics in a line."""
    about = "about " if look.about else ""
    states = ", ".join(f"{look.count(state):,} {state}" for state in ("scheduled", "ready", "leased", "dead"))
    change = "" if look.change is None else f", {rate(look.change)}"
    missing = f"; no answer from {', '.join(look.missing)}" if look.missing else ""
    return f"{plural(len(look.topics), 'topic')}: {about}{states}{change}{missing}"

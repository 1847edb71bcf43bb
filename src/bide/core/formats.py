"""How values are shown to people and programs: amounts in words, records as JSON."""

import base64
from typing import Any

from bide.clock import moment
from bide.types import Attempt, Info, ScheduleInfo, Sent, Stats, WorkerInfo

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")


def span(seconds: float) -> str:
    """A stretch of time in its two largest units; nothing when it is under half a second."""
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 message", "2,500 messages"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size(count: float) -> str:
    """A number of bytes, to three digits: "812 bytes", "1.21 MiB", "48.3 GiB"."""
    place = 0
    while count >= 1_000 and place + 1 < len(_SIZES):
        count, place = count / 1_024, place + 1
    digits = 0 if place == 0 or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:,.{digits}f} {_SIZES[place]}"


def iso(ms: int) -> str:
    """An instant as ISO 8601 in UTC, with its milliseconds."""
    return moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(name: str, ms: int | None) -> dict[str, Any]:
    """An instant twice: ISO 8601 in UTC, and milliseconds since 1970."""
    return {name: None if ms is None else iso(ms), f"{name}_ms": ms}


def message(info: Info) -> dict[str, Any]:
    undecoded = isinstance(info.body, bytes)
    return {
        "id": info.id,
        "topic": info.topic,
        "state": info.state,
        **instant("due", info.due),
        "attempt": info.attempt,
        "max_attempts": info.max_attempts,
        "key": info.key,
        "priority": info.priority,
        "body": None if undecoded else info.body,
        "body_base64": base64.b64encode(info.body).decode() if undecoded else None,
        "headers": dict(info.headers),
        "last_error": info.last_error,
        **instant("lease_until", info.lease_until),
        **instant("leased_since", info.leased_since),
        "worker": info.worker,
        **instant("expires", info.expires),
    }


def attempt(one: Attempt) -> dict[str, Any]:
    return {
        "attempt": one.number,
        **instant("began", one.began),
        "worker": one.worker,
        "error": one.error,
        "traceback": one.traceback,
    }


def sent(answer: Sent) -> dict[str, Any]:
    return {"id": answer.id, "topic": answer.topic, "outcome": answer.outcome, **instant("due", answer.due)}


def stats(topic: str | None, counts: Stats) -> dict[str, Any]:
    return {
        "topic": topic,
        "scheduled": counts.scheduled,
        "ready": counts.ready,
        "leased": counts.leased,
        "dead": counts.dead,
        "dead_dropped": counts.dead_dropped,
        "paused": counts.paused,
        "oldest_overdue": counts.oldest_overdue,
        **instant("next_due", counts.next_due),
        "about": counts.about,
        "missing": list(counts.missing),
    }


def worker(info: WorkerInfo) -> dict[str, Any]:
    return {
        "worker": info.name,
        "host": info.host,
        "pid": info.pid,
        "version": info.version,
        "topics": list(info.topics),
        **instant("started", info.started),
        **instant("seen", info.seen),
        "stopped": info.stopped,
        "running": dict(info.running),
        "done": info.done,
        "failed": info.failed,
        "minutes": [
            {**instant("begin", each.begin), "done": each.done, "failed": each.failed, "lateness": each.lateness}
            for each in info.minutes
        ],
    }


def schedule(info: ScheduleInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "topic": info.topic,
        "schedule": info.schedule,
        "timezone": info.timezone,
        "missed": info.missed,
        **instant("next", info.next),
        **instant("announced", info.announced),
        "paused": info.paused,
        "changed": info.changed,
    }

"""What messages, sends and counts look like as JSON. The names and their meanings stay as they are; docs/cli.md lists them."""

import base64
from typing import Any

from bide.clock import moment
from bide.types import Attempt, Info, ScheduleInfo, Sent, Stats


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

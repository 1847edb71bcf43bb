"""A message that moves to another queue: with its time AWAY while it is on its way, and as the other queue gets it."""

import zlib
from typing import Any

import msgspec

from bide.core.times import MAX_DELAY_MS
from bide.engines.base import NewMessage, Past, Stored
from bide.queue.deliveries import attempts_left

YEAR = 365 * 86_400_000
AWAY = 35 * YEAR  # ms that a message is moved away
FURTHEST = AWAY - 10 * YEAR  # ms until a message is due that can be moved: later ones were moved away, ten years ago at most


class Able(msgspec.Struct, frozen=True):
    """What the other queue can store of a message."""

    past: bool = True
    keys: bool = True
    priority: bool = True
    longest: int = MAX_DELAY_MS
    largest: int = 2**30  # bytes of a body


def is_away(message: Stored, due: int) -> bool:
    """Whether a message that was due then is still moved away. Since then, somebody may have moved it on by up to a year."""
    return message.state == "scheduled" and 0 <= message.due - AWAY - due <= YEAR


def brought_back(message: Stored, due: int) -> Stored:
    """As it was before it was moved away, when it was due then."""
    if not is_away(message, due):
        return message
    expires = None if message.expires is None else message.expires - AWAY
    return msgspec.structs.replace(message, due=message.due - AWAY, expires=expires)


def has_failed(message: Stored) -> bool:
    """Whether attempts may have left records, which no listing tells."""
    return bool(message.attempt) or message.last_error is not None


def fingerprint(message: Stored) -> str:
    """Of what a copy has: a message that is changed after a kill is another one for the queue that has the copy."""
    return f"{zlib.crc32(message.body):08x}{zlib.crc32(repr(_around(message)).encode()):08x}"


def crc_in(print: str) -> int:
    """Of the body, in a fingerprint."""
    return int(print[:8], 16)


def is_same(message: Stored, held: Stored) -> bool:
    """Whether a message that is on its way has not changed since it was listed."""
    now = brought_back(message, held.due)
    return is_away(message, held.due) and now.body == held.body and _around(now) == _around(held)


def _around(message: Stored) -> tuple[Any, ...]:
    """What a copy has of it, but for the body."""
    of_time = message.due, message.expires, message.attempt, message.max_attempts
    return *of_time, message.level, message.key, dict(message.headers)


def message_of(message: Stored, able: Able, now: int) -> NewMessage:
    """The message as it goes on in the other queue. `now`: of its own queue."""
    dead = message.state == "dead"
    begin = message.due if dead else max(message.due, now)
    had = dead or has_failed(message) or message.traces
    past = Past(message.attempt, message.last_error, message.traces, dead) if had and able.past else None
    attempts, headers = attempts_left(message.max_attempts, message.attempt if past is None else 0, message.headers)
    return NewMessage(
        message.topic,
        message.body,
        at=message.due,
        key=message.key,
        level=message.level if able.priority else 1,
        expires_in=None if message.expires is None else min(max(1, message.expires - begin), MAX_DELAY_MS),
        max_attempts=attempts,
        headers=headers,
        past=past,
    )

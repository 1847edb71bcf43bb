"""A message that moves to another queue: with its time AWAY while it is on its way, and as the other queue gets it."""

import time
import zlib

import msgspec

from bide.core.when import MAX_DELAY_MS
from bide.engines.base import NewMessage, Past, Stored

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


def is_away(message: Stored) -> bool:
    return _way(message) > 0


def brought_back(message: Stored) -> Stored:
    """As it was before it was moved away."""
    way = _way(message)
    if not way:
        return message
    expires = None if message.expires is None else message.expires - way
    return msgspec.structs.replace(message, due=message.due - way, expires=expires)


def _way(message: Stored) -> int:
    """The ms that a message was moved away."""
    far = message.state == "scheduled" and message.due - time.time_ns() // 1_000_000 > FURTHEST
    return AWAY if far else 0


def has_failed(message: Stored) -> bool:
    """Whether attempts may have left records, which no listing tells."""
    return bool(message.attempt) or message.last_error is not None


def fingerprint(message: Stored) -> str:
    """Of what a copy has: a message that is changed after a kill is another one for the queue that has the copy."""
    of_time = message.due, message.expires, message.attempt, message.max_attempts
    told = *of_time, message.level, message.key, dict(message.headers)
    return f"{zlib.crc32(message.body):08x}{zlib.crc32(repr(told).encode()):08x}"


def crc_in(print: str) -> int:
    """Of the body, in a fingerprint."""
    return int(print[:8], 16)


def is_same(message: Stored, held: Stored) -> bool:
    """Whether a message that is on its way has not changed since it was listed."""
    way = _way(message)
    if not way or message.due - way != held.due or message.body != held.body:
        return False
    expires = None if message.expires is None else message.expires - way
    now = expires, message.attempt, message.max_attempts, message.level, message.key, message.headers
    return now == (held.expires, held.attempt, held.max_attempts, held.level, held.key, held.headers)


def message_of(message: Stored, able: Able, now: int) -> NewMessage:
    """The message as it goes on in the other queue. `now`: of its own queue."""
    dead = message.state == "dead"
    begin = message.due if dead else max(message.due, now)
    had = dead or has_failed(message) or message.traces
    past = Past(message.attempt, message.last_error, message.traces, dead) if had and able.past else None
    made = message.attempt if past is None else 0
    return NewMessage(
        message.topic,
        message.body,
        at=message.due,
        key=message.key,
        level=message.level if able.priority else 1,
        expires_in=None if message.expires is None else min(max(1, message.expires - begin), MAX_DELAY_MS),
        max_attempts=max(1, message.max_attempts - made),
        headers=message.headers,
        past=past,
    )

"""From the rows of the tables to messages, and back: ids, tokens, headers, and the order by priority."""

import re
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from bide.core.times import Planned
from bide.engines.base import Claimed, End, Stored, claim_time
from bide.engines.stored import UNREADABLE, read_headers
from bide.types import State

PENDING, LEASED, DEAD = range(3)
LEVELS = (0, 1, 2)
LARGE = 1_024  # bytes: longer bodies are kept apart, so that a claim does not write them again
CHANGED = f"{UNREADABLE} Has another program changed bide's tables?"
OLDEST_EVERY = 8  # every eighth message handed out is the oldest, whatever its priority

_ID = re.compile(r"[0-9a-f]{16}")
_encode_headers = msgspec.json.Encoder().encode


class Known(NamedTuple):
    """A message as the verbs that change it see it."""

    id: int
    salt: int
    topic: int
    stage: int
    due: int
    level: int
    life: int | None
    expires: int | None
    since: int
    instant: int | None
    attempt: int

    @property
    def planned(self) -> Planned:
        return Planned(self.due, self.since, bool(self.instant))


class Delivered(NamedTuple):
    """A leased message, with what its end depends on."""

    id: int
    topic: int
    due: int
    attempt: int
    most: int
    expires: int | None
    error: str | None
    began: int | None = None  # its first attempt, as its end tells
    claimed_at: int = 0  # of one whose lease has ended


def public_id(number: int, salt: int) -> str:
    """Fixed width, so that ids sort in the order of birth."""
    return f"{number:012x}{salt:04x}"


def private_id(text: str) -> tuple[int, int]:
    """The row and salt of an id; zeros, which no message has, when the text is not an id of bide."""
    if not _ID.fullmatch(text):
        return 0, 0
    return int(text[:12], 16), int(text[12:], 16)


def token_text(token: int) -> str:
    return f"{token:016d}"


def token_number(text: str) -> int:
    return int(text) if len(text) == 16 and text.isdecimal() and text.isascii() else -1


def headers_text(headers: Any) -> str | None:
    return _encode_headers(dict(headers)).decode() if headers else None


def claimed_of(row: tuple[Any, ...], topic: str, token: str, counted: int) -> Claimed | End:
    """From a row of `due` (whose attempt is not counted yet: 1) or of `claimed_again` (0). Its end if it can't be read."""
    number, salt, due, attempt, most, body, headers, key, since, began = row[:10]
    id, known = public_id(number, salt), read_headers(headers)
    if known is None:
        return End(topic, id, token, "dead", error=CHANGED)
    return Claimed(id, topic, body, known, key, due, since, attempt + counted, most, token, began)


def by_priority(levels: Sequence[list[tuple[Any, ...]]], count: int) -> list[tuple[Any, ...]]:
    """Due messages, one list for each priority, in the order of delivery: by priority, but every eighth is the oldest."""
    if sum(map(bool, levels)) < 2:
        return [row for rows in levels for row in rows]
    left = [deque(rows) for rows in levels]
    ordered = []
    while any(left):
        count += 1
        filled = [rows for rows in left if rows]
        first = min(filled, key=lambda rows: (rows[0][2], rows[0][0])) if count % OLDEST_EVERY == 0 else filled[0]
        ordered.append(first.popleft())
    return ordered


def since_of(when: Planned) -> int | None:
    """As it is stored: only if it is not the due time."""
    return None if when.since == when.due else when.since


def instant_of(when: Planned) -> int | None:
    return 1 if when.instant else None


def state_of(stage: int, due: int, now: int) -> State:
    if stage == LEASED:
        return "leased"
    if stage == DEAD:
        return "dead"
    return "ready" if due <= now else "scheduled"


def stored_of(row: Sequence[Any], now: int, wall: int) -> Stored:
    number, salt, topic, stage, due, attempt, most, key, level, body, headers, error, until, expires, *rest = row
    _, request, token, instant, since = rest
    return Stored(
        id=public_id(number, salt),
        topic=topic,
        state=state_of(stage, due, now if instant is None else wall),
        due=due,
        attempt=attempt,
        max_attempts=most,
        key=key,
        level=level,
        body=body,
        headers=read_headers(headers) or {},
        last_error=error,
        lease_until=until,
        expires=expires,
        request=request,
        leased_since=None if stage != LEASED else claim_time(token, now),
        since=since,
        token=None if stage != LEASED else token_text(token),
    )

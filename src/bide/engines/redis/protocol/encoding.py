"""How a message is written, and how it and its names are read again. The scripts' parts/layout.lua is the other side."""

import contextlib
import functools
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from bide.core.key_rules import marked
from bide.engines.base import Claimed, NewMessage, Stored, claim_time
from bide.engines.stored import read_headers, records_of
from bide.types import State

LAYOUT = "3"  # of all that is stored, as parts/begin.lua has it
SPREAD = "4"  # the same in a Cluster, or after a reshard
ATTEMPTS, EXPIRES, KEYED, HEADERS, LARGE, INSTANT = 1, 2, 4, 8, 16, 32
KEYLESS = 1
USUAL_ATTEMPTS = 3
LONG_KEY = 255  # the first byte of the length of a key that has so many bytes or more; two more tell it
LONG = 1_024  # bytes: a longer body has a key of its own, so that nothing reads it but a claim

TOPIC, LOCAL = 5, 10  # bytes of an id: the topic's number; the kind of location (1), slot (6) and number (3)
FULL = TOPIC + LOCAL
SLOT = TOPIC + 7  # up to here messages of one slot share it
SALT = 2
RAW = 1 + FULL + SALT  # bytes of an id, with the shard before

_KINDS = b"ABCDEFGHIJKLMNOPQRSTUVWX"  # of locations: three levels of priority, and eight sorts in each
_SORTS = ((6, 27), (5, 22), (4, 16), (4, 11), (3, 6), (2, 0), (8, None), (8, None))  # where the flags are; bits of a slot
_FIELDS: Mapping[int, tuple[int, int | None]] = {kind: _SORTS[i % 8] for i, kind in enumerate(_KINDS)}
_SAFE = bytes.maketrans(b"+/", b"-_")  # for URLs and shells
SHOWN = RAW * 4 // 3  # characters of an id; ids that stand together are written and read as each by itself
_UNSAFE = bytes.maketrans(b"-_+/=", b"+/\xff\xff\xff")  # and back; what is in no id of ours becomes what base64 refuses
_RAWS = Struct(f"{RAW}s")
_SHORT = Struct(">H")
_LENGTH = Struct(">I")
_LONG_KEY = Struct(">BH")
_LIFE = Struct(">6s6sHBB")

_encode_headers = msgspec.json.Encoder().encode


class MessageName(NamedTuple):
    """What an id says: where a message is, and its salt."""

    shard: int
    topic: str  # its number, as the scripts write it
    local: bytes
    salt: bytes


class MessageLife(NamedTuple):
    """What has changed since a message was sent."""

    due: int
    since: int
    attempt: int
    level: int
    marks: int
    error: str | None


class Beside(NamedTuple):
    """What there is of a message that is claimed beside its value; empty for what there is not."""

    life: bytes
    body: bytes  # a long one
    began: int | None  # its first attempt


class Content(NamedTuple):
    """What a client wrote about a message."""

    flags: int
    attempts: int
    expires: int | None
    key: str | None
    headers: Mapping[str, str] | None  # None: somebody else has written what bide can't read
    body: bytes


NOWHERE = MessageName(0, "", b"", b"")


def id_text(raw: bytes) -> str:
    """An id as it is shown. It begins with no dash, as no shard has a number above 127."""
    return b2a_base64(raw, newline=False).translate(_SAFE).decode("ascii")


def id_texts(raw: Sequence[bytes]) -> list[str]:
    """As id_text, of many at once."""
    if len(raw) <= 1:
        return list(map(id_text, raw))
    text = id_text(b"".join(raw))
    return [text[at : at + SHOWN] for at in range(0, len(text), SHOWN)]


def id_bytes(text: str) -> bytes | None:
    """What an id is made of: shard, number of the topic, location, salt. None when it is none of ours."""
    if len(text) != SHOWN:
        return None
    try:
        raw = _raw(text)
    except ValueError:
        return None
    return raw if raw[1 + TOPIC] in _FIELDS else None


def ids_bytes(texts: Sequence[str]) -> list[bytes | None]:
    """As id_bytes, of many at once."""
    if len(texts) > 1 and set(map(len, texts)) == {SHOWN}:
        with contextlib.suppress(ValueError):
            raw = _raw("".join(texts))
            if _FIELDS.keys() >= set(raw[1 + TOPIC :: RAW]):
                return [each for (each,) in _RAWS.iter_unpack(raw)]
    return list(map(id_bytes, texts))


def _raw(text: str) -> bytes:
    return a2b_base64(text.encode().translate(_UNSAFE), strict_mode=True)


def public_id(shard: int, full: bytes, salt: bytes) -> str:
    return id_text(shard.to_bytes(1, "big") + full + salt)


def full_id(topic: str, local: bytes) -> bytes:
    return int(topic, 16).to_bytes(TOPIC, "big") + local


@functools.lru_cache(maxsize=4_096)  # a batch is asked for its shards, and then for what the scripts are told
def name_of(text: str) -> MessageName:
    """What an id names; NOWHERE when it is none of ours."""
    raw = id_bytes(text)
    if raw is None:
        return NOWHERE
    at = 1 + TOPIC
    return MessageName(raw[0], f"{int.from_bytes(raw[1:at], 'big'):x}", raw[at : at + LOCAL], raw[at + LOCAL :])


def content(new: NewMessage) -> tuple[bytes, bytes]:
    """What is written of a message, and the body that has a key of its own, if it is long."""
    tail = new.body
    if (
        new.max_attempts == USUAL_ATTEMPTS
        and new.expires_in is None
        and new.key is None
        and not new.headers
        and len(tail) <= LONG
    ):
        return (b"\0" if new.at is None else b"\x20") + tail, b""
    flags = 0 if new.at is None else INSTANT
    head = b""
    if new.max_attempts != USUAL_ATTEMPTS:
        flags |= ATTEMPTS
        head += _SHORT.pack(new.max_attempts)
    if new.expires_in is not None:
        flags |= EXPIRES
        head += new.expires_in.to_bytes(6, "big")
    if new.key is not None:
        key = new.key.encode()
        flags |= KEYED
        head += (bytes((len(key),)) if len(key) < LONG_KEY else _LONG_KEY.pack(LONG_KEY, len(key))) + key
    if new.headers or new.max_wait is not None:
        flags |= HEADERS
        headers = _encode_headers(dict(new.headers if new.max_wait is None else marked(new.headers)))
        tail = _LENGTH.pack(len(headers)) + headers + tail
    if len(tail) > LONG:
        return bytes((flags | LARGE,)) + head, tail
    return bytes((flags,)) + head + tail, b""


def read_content(at: int, value: bytes, large: bytes) -> Content:
    """`at`: where the flags are."""
    flags = value[at]
    at += 1
    if not flags:
        return Content(0, USUAL_ATTEMPTS, None, None, {}, value[at:])
    attempts, expires, key = USUAL_ATTEMPTS, None, None
    if flags & ATTEMPTS:
        (attempts,) = _SHORT.unpack_from(value, at)
        at += 2
    if flags & EXPIRES:
        expires = int.from_bytes(value[at : at + 6], "big")
        at += 6
    if flags & KEYED:
        length, at = value[at], at + 1
        if length == LONG_KEY:
            (length,) = _SHORT.unpack_from(value, at)
            at += 2
        key = value[at : at + length].decode(errors="replace")
        at += length
    tail = large if flags & LARGE else value[at:]
    if flags & HEADERS:
        length = int.from_bytes(tail[:4], "big")
        return Content(flags, attempts, expires, key, read_headers(tail[4 : 4 + length]), tail[4 + length :])
    return Content(flags, attempts, expires, key, {}, tail)


def read_life(text: bytes) -> MessageLife | None:
    if not text:
        return None
    due, since, attempt, level, marks = _LIFE.unpack_from(text)
    told = text[_LIFE.size :]  # nothing, or what error_text makes
    error = told[1:].decode(errors="replace") if told else None
    return MessageLife(int.from_bytes(due, "big"), int.from_bytes(since, "big"), attempt, level, marks, error)


def flags_and_start(full: bytes) -> tuple[int, int]:
    """Where in its value a message's flags are, after its offset; and from when that counts to its first due time."""
    at, bits = _FIELDS[full[TOPIC]]
    return at, 0 if bits is None else int.from_bytes(full[TOPIC + 1 : SLOT], "big") << bits


def born_due(full: bytes, value: bytes) -> int:
    """When a message was due that has no life."""
    at, start = flags_and_start(full)
    return start + int.from_bytes(value[SALT:at], "big")


def claimed(id: str, full: bytes, topic: str, token: str, value: bytes, beside: Beside) -> Claimed | None:
    """None of a message whose headers can't be read."""
    what = read_content(_FIELDS[full[TOPIC]][0], value, beside.body)
    if what.headers is None:
        return None
    life = read_life(beside.life)
    if life is None:
        due = born_due(full, value)
        return Claimed(id, topic, what.body, what.headers, what.key, due, due, 1, what.attempts, token)
    key = None if life.marks & KEYLESS else what.key
    return Claimed(
        id, topic, what.body, what.headers, key, life.due, life.since, life.attempt + 1, what.attempts, token, beside.began
    )  # fmt: skip


class Lease(NamedTuple):
    """What a message is leased by."""

    end: int
    request: str
    number: int  # of the claim: its time in µs, or one more than the last


NO_LEASE = Lease(0, "", 0)


def stored(shard: int, topic: str, now: int, told: list[Any], lease: Lease) -> Stored:
    """From what the scripts tell of a message: topic's number, id, value, state, life, long body, records of attempts."""
    number, local, value, state, life_text, large, *traces = told
    full = full_id(number.decode(), local)
    what = read_content(_FIELDS[full[TOPIC]][0], value, large)
    life = read_life(life_text)
    due = life.due if life else born_due(full, value)
    state, _, again = state.partition(b" ")
    since = life.since if life else due
    counted = life.attempt if life else 0
    return Stored(
        id=public_id(shard, full, value[:SALT]),
        topic=topic,
        state=_state(state, int(again or due), now),
        due=due,
        attempt=counted + 1 if state == b"leased" else counted,
        max_attempts=what.attempts,
        key=None if life and life.marks & KEYLESS else what.key,
        level=life.level if life else _KINDS.index(full[TOPIC]) // 8,
        body=what.body,
        headers=what.headers or {},
        last_error=life.error if life else None,
        lease_until=(lease.end or now) if state == b"leased" else None,
        expires=None if what.expires is None else since + what.expires,
        request=lease.request or None,
        leased_since=claim_time(lease.number // 1_000, now) if lease.number else None,
        traces=records_of(traces[0]) if traces else (),
        since=since,
    )


def _state(told: bytes, due: int, now: int) -> State:
    if told == b"leased":
        return "leased"
    if told == b"dead":
        return "dead"
    return "ready" if due <= now else "scheduled"


def error_text(error: str | None) -> bytes:
    """An error as a life keeps it: nothing, or a mark and the text."""
    return b"" if error is None else b"+" + error.encode()

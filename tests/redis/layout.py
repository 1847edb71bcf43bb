"""What the keys of one shard hold, read as the scripts read it: topics, their places, the messages in them, and claims."""

import functools
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bide.engines.redis.aio import calls as aio

Held = Mapping[bytes, tuple[bytes, Any]]
"""All keys, as `keyspace.held` gives them."""

COARSE, MINUTE, FINEST, NEAR, READY = 0, 2, 5, 6, 7
LENGTHS = (134_217_728, 4_194_304, 65_536, 2_048, 64, 1)  # ms of a slot, by sort
DUE_BYTES = (4, 3, 2, 2, 1, 0, 6, 6)  # of a due time, by sort
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWX"
TOPIC, ID, FULL, NUMBER = 5, 10, 15, 16  # bytes
NEVER = 9_007_199_254_740_991
ATTEMPTS, EXPIRES, KEYED, HEADERS, LARGE, INSTANT = 1, 2, 4, 8, 16, 32
KEYLESS = 1
TRACED = 2
BEGUN = 4
BY_CLOCK = 8
BEGAN = b"b"  # stands behind an id: when the message's first attempt began
TAG = 3  # bytes of a key's hash
LONG_KEY = 255


class Bounds(NamedTuple):
    """Of the scripts that are in use, which a test may have made smaller."""

    bucket: int
    row: int
    rooms: tuple[int, ...]  # messages in a slot at most, by sort
    tags: int  # hashes of keys
    alike: int  # keys of one hash in a bucket of the index
    group: int  # buckets of the index in one hash
    parts: int  # of the expiries


def bounds() -> Bounds:
    return _bounds_in(vars(aio)["scripts"]()["claim"].text)


@functools.cache
def _bounds_in(text: str) -> Bounds:
    found: dict[str, int] = {}
    for match in re.finditer(r"\blocal ([A-Z]+(?:, [A-Z]+)*) = (\d+(?:, \d+)*)", text):
        found.update(zip(match[1].split(", "), map(int, match[2].split(", ")), strict=True))
    some = found["SOME"]
    rooms = (some, some, 4 * some, some, some, found["NUMBERS"])
    return Bounds(found["BUCKET"], found["ROW"], rooms, found["TAGS"], found["ALIKE"], found["GROUP"], found["PARTS"])


class Location(NamedTuple):
    """Where a message lives; as bytes it is its id in its topic."""

    kind: str
    slot: int
    n: int

    @property
    def sort(self) -> int:
        return LETTERS.index(self.kind) % 8

    @property
    def level(self) -> int:
        return LETTERS.index(self.kind) // 8

    @property
    def start(self) -> int:
        return self.slot * LENGTHS[self.sort] if self.sort <= FINEST else 0

    @classmethod
    def of(cls, id: bytes) -> "Location":
        return cls(chr(id[0]), int.from_bytes(id[1:7], "big"), int.from_bytes(id[7:10], "big"))

    @property
    def name(self) -> str:
        return f"{self.kind}{self.slot:x}:{self.n:x}"


class Life(NamedTuple):
    """What has changed since a message was sent."""

    due: int
    since: int
    attempt: int
    level: int
    marks: int


class Message(NamedTuple):
    location: Location
    born: int
    flags: int
    expires_in: int | None
    key: bytes | None
    life: Life | None

    @property
    def due(self) -> int:
        return self.life.due if self.life else self.born

    @property
    def level(self) -> int:
        return self.life.level if self.life else self.location.level

    @property
    def expires(self) -> int | None:
        return None if self.expires_in is None else self.expires_in + (self.life.since if self.life else self.born)

    @property
    def keyless(self) -> bool:
        return bool(self.life and self.life.marks & KEYLESS)


def life_of(text: bytes) -> Life:
    head = text[:16]
    attempt, level, marks = struct.unpack(">HBB", head[12:])
    return Life(int.from_bytes(head[:6], "big"), int.from_bytes(head[6:12], "big"), attempt, level, marks)


def message_of(location: Location, value: bytes, life: Life | None) -> Message:
    at = 2 + DUE_BYTES[location.sort]
    born, flags, at = location.start + int.from_bytes(value[2:at], "big"), value[at], at + 1
    at += 2 if flags & ATTEMPTS else 0
    expires_in = int.from_bytes(value[at : at + 6], "big") if flags & EXPIRES else None
    at += 6 if flags & EXPIRES else 0
    return Message(location, born, flags, expires_in, _key_at(value, at) if flags & KEYED else None, life)


def _key_at(value: bytes, at: int) -> bytes:
    length, at = value[at], at + 1
    if length == LONG_KEY:
        length, at = int.from_bytes(value[at : at + 2], "big"), at + 2
    return value[at : at + length]


class Record(NamedTuple):
    """Of the index of keys: the bucket that it is in, a key's hash, and the message that holds this key."""

    bucket: int
    tag: int
    id: bytes


def records_of(bucket: int, text: bytes, size: Bounds) -> Iterator[Record]:
    """What a bucket of the index says."""
    length = TAG + 1 + text[0]
    for at in range(1, len(text), length):
        record = text[at : at + length]
        yield Record(bucket, int.from_bytes(record[:TAG], "big"), _id_of_place(record[TAG : TAG + 1], record[TAG + 1 :], size))


def _id_of_place(kind: bytes, place: bytes, size: Bounds) -> bytes:
    sort = LETTERS.index(kind.decode()) % 8
    if sort == FINEST:
        return kind + place
    slot, n = divmod(int.from_bytes(place, "big"), size.row if sort > FINEST else 2 * size.rooms[0])
    return kind + slot.to_bytes(6, "big") + n.to_bytes(3, "big")


@dataclass
class Topic:
    """One topic: its counters, and what its keys hold, by their names behind its number."""

    digits: str
    name: bytes
    bound: int | None  # what `topics` says: nothing is due earlier
    f: dict[str, int]
    keys: dict[str, Any]
    messages: dict[bytes, Message] = field(default_factory=dict)

    def hash(self, name: str) -> dict[bytes, bytes]:
        return self.keys.get(name, {})  # type: ignore[no-any-return]

    def scores(self, name: str) -> dict[bytes, int]:
        return {member: int(score) for member, score in self.keys.get(name, [])}

    def count(self, name: str) -> int:
        return self.f.get(name, 0)

    @functools.cached_property
    def buckets(self) -> dict[str, list[bytes]]:
        return {name[1:]: held for name, held in self.keys.items() if name[0] == "b"}

    def full(self, id: bytes) -> bytes:
        return int(self.digits, 16).to_bytes(TOPIC, "big") + id


class Claim(NamedTuple):
    """What one request holds: full ids, with a letter and the end of the lease for each."""

    number: bytes
    fulls: list[bytes]
    states: bytes
    score: int | None
    untils: list[int] | None


@dataclass
class Shard:
    prefix: str
    own: dict[str, Any] = field(default_factory=dict)  # keys that are of no topic, by name
    topics: dict[str, Topic] = field(default_factory=dict)  # by number
    strays: dict[str, dict[str, Any]] = field(default_factory=dict)  # keys of topics that are not, by number and name
    claims: dict[bytes, Claim] = field(default_factory=dict)

    @functools.cached_property
    def expiring(self) -> dict[bytes, float]:
        return {full: score for part in self.expiries.values() for full, score in part.items()}

    @functools.cached_property
    def expiries(self) -> dict[str, dict[bytes, float]]:
        """By part; those that a release before has noted are of none."""
        found: dict[str, dict[bytes, float]] = {"": {}}
        for name, held in self.own.items():
            if re.fullmatch("exp(:[0-9a-f]+)?", name):
                found[name.partition(":")[2]] = dict(held)
        return found

    @functools.cached_property
    def next_expiry(self) -> dict[str, float]:
        return {part.decode(): score for part, score in self.own.get("exp:next", [])}

    def of_full(self, full: bytes) -> tuple[Topic | None, bytes]:
        return self.topics.get(f"{int.from_bytes(full[:TOPIC], 'big'):x}"), full[TOPIC:]


def location_in(bucket: str, place: int, size: int) -> Location:
    slot, _, number = bucket[1:].partition(":")
    return Location(bucket[0], int(slot, 16), int(number, 16) * size + place)


def id_of(location: Location) -> bytes:
    return location.kind.encode() + location.slot.to_bytes(6, "big") + location.n.to_bytes(3, "big")


def shard_of(held: Held, prefix: str, size: int) -> Shard:
    """The keys that begin so; `size` is how many messages a bucket has."""
    shard, of_topics = Shard(prefix), dict[str, dict[str, Any]]()
    for full, (_, value) in held.items():
        name = full.decode()
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            if found := re.fullmatch(r"([0-9a-f]+):(.+)", name):
                of_topics.setdefault(found[1], {})[found[2]] = value
            else:
                shard.own[name] = value
    for name, known in shard.own.get("topics", {}).items():
        digits, _, bound = known.decode().partition("@")
        keys = of_topics.pop(digits, {})
        fields = {each.decode(): value for each, value in keys.get("h", {}).items()}
        topic = Topic(digits, name, int(bound) if bound else None, {}, keys)
        topic.f = {each: int(value) for each, value in fields.items() if each != "name"}
        lives = {id: life_of(text) for id, text in topic.hash("life").items() if len(id) == ID}
        for bucket, values in topic.buckets.items():
            for place, value in enumerate(values):
                location = location_in(bucket, place, size)
                if value:
                    topic.messages[id_of(location)] = message_of(location, value, lives.get(id_of(location)))
        shard.topics[digits] = topic
    shard.strays = of_topics
    _read_claims(shard)
    return shard


def _read_claims(shard: Shard) -> None:
    scores, opens, untils = dict(shard.own.get("lease", [])), shard.own.get("open", {}), shard.own.get("until", {})
    for request, text in shard.own.get("held", {}).items():
        fulls = [text[at : at + FULL] for at in range(NUMBER, len(text), FULL)]
        score, until = scores.get(request), untils.get(request)
        parts = None if until is None else [int.from_bytes(until[at : at + 6], "big") for at in range(0, len(until), 6)]
        shard.claims[request] = Claim(text[:NUMBER], fulls, opens.get(request, b""), score and int(score), parts)

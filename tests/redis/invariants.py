"""What is true of the keys of a namespace between any two scripts: each message in one place, each counter, no key too many."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import redis

from tests.model.expected import insist
from tests.redis.gate_invariants import is_of_gate, of_gates
from tests.redis.keyspace import held
from tests.redis.layout import (
    ATTEMPTS,
    BEGAN,
    BEGUN,
    BY_CLOCK,
    EXPIRES,
    FINEST,
    HEADERS,
    ID,
    INSTANT,
    KEYED,
    LARGE,
    LETTERS,
    NEAR,
    NEVER,
    NUMBER,
    READY,
    TAG,
    TOPIC,
    TRACED,
    Bounds,
    Held,
    Location,
    Message,
    Record,
    Shard,
    Topic,
    bounds,
    life_of,
    records_of,
    shard_of,
)

ENDED, SIMPLE, OTHER = b"012"
OWN = {"meta", "topics", "held", "open", "lease", "until", "exp", "graves", "retired", "timers", "alarm", "agenda", "rates"}
META = {
    b"raw",
    b"mark",
    b"layout",
    b"shards",
    b"topic",
    b"claim",
    b"expiry",
    b"respread",
    b"unique",
    b"upkeep",
    b"token",
    b"kept",
    b"pauses",
}
OF_TOPIC = re.compile(
    r"h|life|dead|ended|due[012]|slots|o[A-X]|k[0-9a-f]+|crowd|b[A-X][0-9a-f]+:[0-9a-f]+|m[A-X][0-9a-f]+:[0-9a-f]+(:t)?"
)
OF_NO_TOPIC = re.compile(r"(lanes|ops):\d+|u:.*|exp:(next|[0-9a-f]+)|(result|waiting|followers):.+")
OF_RETIRED = re.compile(r"slots|o[A-X]|b[A-X][0-9a-f]+:[0-9a-f]+")
TOLD = 8  # faults, of many


def invariants_hold(client: redis.Redis, namespace: str = "") -> None:
    """Of all shards of a namespace, or of all there are; raises Divergence with what is not so."""
    found = held(client, f"{{{namespace}:*" if namespace else "*")
    wrong = list(faults(found))
    insist(not wrong, f"{len(wrong)} faults in the keys: " + "; ".join(wrong[:TOLD]))


def faults(found: Held) -> Iterator[str]:
    size = bounds()
    for prefix in sorted({name.decode().partition("}:")[0] + "}:" for name in found}):
        shard = shard_of(found, prefix, size.bucket)
        for each in _of_shard(shard, size):
            yield f"{prefix} {each}"


def _of_shard(shard: Shard, size: Bounds) -> Iterator[str]:
    yield from _names(shard)
    yield from _claims(shard)
    yield from _expiries(shard, size)
    yield from _upkeep(shard)
    yield from of_gates(shard)
    leased = Counter(
        full for each in shard.claims.values() for full, state in zip(each.fulls, each.states, strict=False) if state != ENDED
    )
    for full in leased:
        topic, id = shard.of_full(full)
        if topic is None or id not in topic.messages:
            yield f"{full!r} is leased, and is not there"
    for topic in shard.topics.values():
        for each in _of_topic(shard, topic, leased, size):
            yield f"topic {topic.name.decode()}: {each}"


def _names(shard: Shard) -> Iterator[str]:
    """No key, token, timer, grave or number of a topic that is not there, or of a kind that nobody knows."""
    names, retired = {each.name for each in shard.topics.values()}, {each.decode() for each, _ in shard.own.get("retired", [])}
    for name in shard.own:
        if name.startswith("w:"):
            if name[2:].encode() not in names:
                yield f"{name} is a token of no topic"
            if len(shard.own[name]) != 1:
                yield f"{name} has {len(shard.own[name])} tokens"
        elif name not in OWN and not OF_NO_TOPIC.fullmatch(name) and not is_of_gate(name):
            yield f"{name} is no key of ours"
    for name in set(shard.own.get("timers", {})) - names:
        yield f"{name!r} has a timer, and is no topic"
    for digits, _ in shard.own.get("graves", []):
        if digits.decode() not in shard.topics:
            yield f"{digits!r} has a grave, and is no topic"
    for digits, keys in shard.strays.items():
        pattern = OF_RETIRED if digits in retired else None
        for name in keys:
            if not pattern or not pattern.fullmatch(name):
                yield f"{digits}:{name} is of no topic"
    yield from (f"{digits} has retired, and lives" for digits in retired & set(shard.topics))
    meta = shard.own.get("meta", {})
    if set(meta) - META:
        yield f"meta has {set(meta) - META}"
    if shard.topics and max(int(digits, 16) for digits in shard.topics) > int(meta.get(b"topic", 0)):
        yield "a topic has a number that was not given yet"


def _claims(shard: Shard) -> Iterator[str]:
    """A claim is whole, ends no later than the first of what it holds, and has a number that was given."""
    own = {name: set(shard.own.get(name, {})) for name in ("held", "open", "until")}
    leases = {request for request, _ in shard.own.get("lease", [])}
    if not own["held"] == own["open"] == leases or own["until"] - leases:
        yield f"held, open and lease differ: {own}, {leases}"
        return
    last = shard.own.get("meta", {}).get(b"claim", b"")
    for request, claim in shard.claims.items():
        if len(claim.number) != NUMBER or claim.number > last:
            yield f"claim {request!r} has the number {claim.number!r}, the last one is {last!r}"
        if len(claim.fulls) != len(claim.states) or set(claim.states) - {ENDED, SIMPLE, OTHER}:
            yield f"claim {request!r} has {len(claim.fulls)} messages and {claim.states!r}"
        if set(claim.states) <= {ENDED}:
            yield f"claim {request!r} has ended, and is there"
        elif claim.untils is not None:
            open_ = [until for until, state in zip(claim.untils, claim.states, strict=True) if state != ENDED]
            if (claim.score or 0) > min(open_):
                yield f"claim {request!r} ends at {claim.score}, a part of it at {min(open_)}"
        for full, state in zip(claim.fulls, claim.states, strict=False):
            topic, id = shard.of_full(full)
            message = topic.messages.get(id) if topic else None
            if state == SIMPLE and message and (message.life or message.flags & ~(ATTEMPTS | HEADERS | INSTANT)):
                yield f"{message.location.name} is more than claim {request!r} knows"


def _expiries(shard: Shard, size: Bounds) -> Iterator[str]:
    """Each is true, in the part of its message, and looked at in time."""
    for part, noted in shard.expiries.items():
        for full in noted:
            number, (_, slot, n) = int.from_bytes(full[:TOPIC], "big"), Location.of(full[TOPIC:])
            if part and int(part, 16) != (number + slot * 64 + n // size.bucket) % 65_521 * 40_503 % 65_521 % size.parts:
                yield f"{full!r} has its expiry in the part {part}"
            if part and full in shard.expiries[""]:
                yield f"{full!r} has two expiries"
        if part and shard.next_expiry.get(part, NEVER) > min(noted.values()):
            yield f"in part {part} one expires at {min(noted.values())}, and it is opened at {shard.next_expiry.get(part)}"
    for full, score in shard.expiring.items():
        topic, id = shard.of_full(full)
        message = topic.messages.get(id) if topic else None
        if message is None or message.expires != int(score):
            yield f"{full!r} expires at {int(score)}, and is {message}"


def _upkeep(shard: Shard) -> Iterator[str]:
    """No claim says that no upkeep is needed when some is."""
    meta = shard.own.get("meta", {})
    upkeep, needed = (
        int(meta.get(b"upkeep", 0)),
        [(name, score) for name in ("lease", "exp", "exp:next") for _, score in shard.own.get(name, [])],
    )
    at_once = [("retired", 0) for _ in shard.own.get("retired", [])]
    at_once += [("graves", 0) for _, score in shard.own.get("graves", []) if not score]
    needed += [(name, int(meta.get(b"mark", 0)) // 1_000) for name, _ in at_once]
    yield from (f"upkeep is needed at {upkeep}, and {name} at {int(time)}" for name, time in needed if time < upkeep)


def _of_lives(topic: Topic) -> Iterator[str]:
    told = topic.hash("life")
    lives = {id for id in told if len(id) == ID}
    yield from (f"{Location.of(id).name} has a life, and is not there" for id in lives - set(topic.messages))
    begun = {id for id in lives if life_of(told[id]).marks & BEGUN}
    yield from (f"{Location.of(id).name} has begun, nobody knows when" for id in begun if id + BEGAN not in told)
    yield from (f"{Location.of(id).name} has begun without a life" for id in set(told) - lives if id[:ID] not in lives)
    stale = (id for id in begun if told.get(id + BEGAN, b"")[:6] != told[id][6:12])
    yield from (f"{Location.of(id).name} has begun at another time" for id in stale)


def _of_topic(shard: Shard, topic: Topic, leased: Counter[bytes], size: Bounds) -> Iterator[str]:
    yield from (f"{name} is no key of a topic" for name in topic.keys if not OF_TOPIC.fullmatch(name))
    if topic.hash("h").get(b"name") != topic.name or topic.bound != topic.f.get("next"):
        yield f"its name is {topic.hash('h').get(b'name')!r}, its bound {topic.bound} and {topic.f.get('next')}"
    if not topic.messages and not topic.count("paused") and not topic.count("dropped"):
        yield "nothing is left of it, and it is there"
    places = {name: topic.scores(name) for name in ("due0", "due1", "due2", "dead")}
    for name, scores in places.items():
        yield from (f"{Location.of(id).name} is in {name}, and is not there" for id in set(scores) - set(topic.messages))
    yield from _of_lives(topic)
    traced = {f"m{each.location.name}:t" for each in topic.messages.values() if each.life and each.life.marks & TRACED}
    noted = {name for name in topic.keys if name.endswith(":t")}
    yield from (f"{name} has records, or a mark of them, alone" for name in traced ^ noted)
    large = {f"m{each.location.name}" for each in topic.messages.values() if each.flags & LARGE}
    yield from (f"{name} is a large body of no message" for name in topic.keys if name[0] == "m" and name not in large | noted)
    far, pending = Counter[tuple[str, int]](), dict[bytes, int]()
    for id, message in topic.messages.items():
        found = [name for name, scores in places.items() if id in scores] + ["leased"] * leased[topic.full(id)]
        if len(found) != int(_opened(topic, message, size)):
            yield f"{message.location.name} is in {found}"
        yield from _of_message(topic, id, message, places, found)
        yield from _expiry(message, found, noted=topic.full(id) in shard.expiring)
        if id not in places["dead"] and not leased[topic.full(id)]:
            pending[id] = _looked_at(id, message, places)
            if not _opened(topic, message, size):
                far[message.location.kind, message.location.slot] += 1
    told = (topic.count("live"), topic.count("far"))
    if told != (len(topic.messages), far.total()):
        yield f"live and far are {told}, there are {len(topic.messages)} and {far.total()}"
    if not topic.count("paused") and pending and (topic.bound or 0) > min(pending.values()):
        yield f"its bound is {topic.bound}, and one is due at {min(pending.values())}"
    if topic.count("paused") and topic.bound != NEVER:
        yield f"it is paused, and its bound is {topic.bound}"
    yield from (
        f"level {each} is not used" for each in {topic.messages[id].level for id in pending} if not topic.count(f"l{each}")
    )
    for kind in LETTERS:
        yield from (
            _of_row(topic, kind, far, size) if Location(kind, 0, 0).sort > FINEST else _of_calendar(topic, kind, far, size)
        )
    yield from _buckets(topic, size)
    yield from _index(topic, places["dead"], size)
    yield from _graves(shard, topic, places["dead"])


def _opened(topic: Topic, message: Message, size: Bounds) -> bool:
    """Whether its time is in a zset, or nowhere, and no more in its location."""
    kind, slot, n = message.location
    if message.life or message.location.sort == NEAR:
        return True
    if message.location.sort == READY:
        return slot * size.row + n < topic.count(f"p{kind}")
    return (slot, n) < (topic.count(f"c{kind}"), topic.count(f"p{kind}"))


def _looked_at(id: bytes, message: Message, places: dict[str, dict[bytes, int]]) -> int:
    """When it is due; an instant that the clock holds back is looked at later."""
    is_instant = message.life.marks & BY_CLOCK if message.life else message.flags & INSTANT
    return max(message.due, places.get(f"due{message.level}", {}).get(id, 0)) if is_instant else message.due


def _of_message(
    topic: Topic, id: bytes, message: Message, places: dict[str, dict[bytes, int]], found: Sequence[str]
) -> Iterator[str]:
    """Its time is true, and it has what it needs."""
    location, due = message.location, f"due{message.level}"
    for name in found:
        if name.startswith("due") and (name != due or places[name][id] != _looked_at(id, message, places)):
            yield f"{location.name} is in {name} at {places[name][id]}, and due at {message.due} in {due}"
    if "dead" in found and not message.life:
        yield f"{location.name} is dead without a life"
    if message.flags & LARGE and f"m{location.name}" not in topic.keys:
        yield f"{location.name} has no large body"


def _expiry(message: Message, found: Sequence[str], *, noted: bool) -> Iterator[str]:
    """Noted while it is pending; while it is leased it may be."""
    wanted = bool(message.flags & EXPIRES) and "dead" not in found
    if noted != wanted and (noted or "leased" not in found):
        yield f"{message.location.name} has its expiry {'noted' if noted else 'nowhere'}, in {found}"


def _of_row(topic: Topic, kind: str, far: Counter[tuple[str, int]], size: Bounds) -> Iterator[str]:
    births, first, gone = (topic.count(name + kind) for name in "bpg")
    numbers = [
        each.location.slot * size.row + each.location.n for each in topic.messages.values() if each.location.kind == kind
    ]
    if first > births or max(numbers, default=-1) >= births:
        yield f"row {kind} has number {max(numbers, default=0)} of {births}, and {first} taken out"
    count = sum(many for (each, _), many in far.items() if each == kind)
    if Location(kind, 0, 0).sort == READY and births - first - gone != count:
        yield f"row {kind} tells of {births - first - gone}, and has {count}"


def _of_calendar(topic: Topic, kind: str, far: Counter[tuple[str, int]], size: Bounds) -> Iterator[str]:
    """Each slot is in order, with a true count, and the first is known."""
    slots = {name.decode(): int(value) for name, value in topic.hash("slots").items()}
    order = {name.decode(): score for name, score in topic.scores(f"o{kind}").items()}
    births = {name: many for name, many in slots.items() if name[0] == kind}
    gone = {name[1:]: many for name, many in slots.items() if name[0] == "g" and name[1] == kind}
    if order != {name: int(name[1:], 16) for name in births} or set(gone) - set(births):
        yield f"calendar {kind} has {order}, and slots {births}, gone {gone}"
    if topic.count(f"s{kind}") != (min(order.values()) + 1 if order else 0):
        yield f"calendar {kind} begins at {topic.count(f's{kind}') - 1}, and has {order}"
    room = size.rooms[Location(kind, 0, 0).sort]
    for name, many in births.items():
        slot, cursor = int(name[1:], 16), topic.count(f"c{kind}")
        first = topic.count(f"p{kind}") if slot == cursor else 0
        if slot < cursor or first > many or many >= room + size.bucket:
            yield f"slot {name} has {many} with a room of {room}, the cursor is at {cursor}, {first}"
        if many - first - gone.get(name, 0) != far[kind, slot]:
            yield f"slot {name} tells of {many - first - gone.get(name, 0)}, and has {far[kind, slot]}"
    for each, slot in far:
        if each == kind and f"{kind}{slot:x}" not in births:
            yield f"slot {kind}{slot:x} has messages, and is not known"


def _buckets(topic: Topic, size: Bounds) -> Iterator[str]:
    """A bucket is as long as its slot says, and how many of its places have ended is true; one that has none left is gone."""
    ended = {name.decode().split(":", 3)[3][1:]: int(many) for name, many in topic.hash("ended").items()}
    yield from (f"bucket {name} is counted, and is not there" for name in set(ended) - set(topic.buckets))
    for name, values in topic.buckets.items():
        kind, at = name[0], int(name.rpartition(":")[2], 16)
        slot = name.partition(":")[0]
        if Location(kind, 0, 0).sort > FINEST:
            births: int | None = topic.count(f"b{kind}") - int(slot[1:], 16) * size.row
        else:
            told = topic.hash("slots").get(slot.encode())
            births = None if told is None else int(told)
        whole = size.bucket if births is None else min(size.bucket, births - at * size.bucket)
        free = whole - len(values) + values.count(b"")
        if len(values) > whole or ended.get(name, 0) != free or free >= size.bucket:
            yield f"bucket {name} has {len(values)} of {whole}, {free} free, and {ended.get(name, 0)} are counted"


def _index(topic: Topic, dead: dict[bytes, int], size: Bounds) -> Iterator[str]:
    """Each key is where it is looked for, once, and held by the message that has it."""
    records = [each for name in topic.keys if name[0] == "k" for each in _of_group(topic, int(name[1:], 16), size)]
    for bucket, tag, id in records:
        message = topic.messages.get(id)
        if message is None or message.key is None or _hash(message.key, size) != tag or not _holds(message, id, dead):
            yield f"the index has a record of {tag:x} in bucket {bucket:x} for {message}"
        if bucket != _bucket_for(tag, topic.count("index")):
            yield f"the index has {tag:x} in bucket {bucket:x}, and looks for it in {_bucket_for(tag, topic.count('index')):x}"
    alike = Counter(each.tag for each in records)
    yield from (f"the index has {many} keys of {tag:x}" for tag, many in alike.items() if many > size.alike)
    crowd = topic.hash("crowd")
    for key, id in crowd.items():
        message = topic.messages.get(id)
        if message is None or message.key != key or not _holds(message, id, dead):
            yield f"key {key!r} is in the crowd for {message}"
    if topic.count("crowd") != len(crowd):
        yield f"the crowd has {len(crowd)}, and {topic.count('crowd')} are counted"
    held = Counter([each.id for each in records] + list(crowd.values()))
    holders = [id for id, each in topic.messages.items() if each.flags & KEYED and _holds(each, id, dead)]
    if not topic.count("keys") == held.total() == len(held) == len(holders):
        yield f"keys are {topic.count('keys')}, the index has {held.total()}, and {len(holders)} messages hold one"


def _of_group(topic: Topic, group: int, size: Bounds) -> Iterator[Record]:
    for field, text in topic.hash(f"k{group:x}").items():
        yield from records_of(group * size.group + int(field, 16), text, size)


def _hash(key: bytes, size: Bounds) -> int:
    return int(hashlib.sha1(key, usedforsecurity=False).hexdigest()[: 2 * TAG], 16) % size.tags


def _bucket_for(tag: int, buckets: int) -> int:
    base = 1 << max(0, buckets.bit_length() - 1)
    return tag % (base * 2) if tag % (base * 2) < buckets else tag % base


def _holds(message: Message, id: bytes, dead: dict[bytes, int]) -> bool:
    return not message.keyless and id not in dead


def _graves(shard: Shard, topic: Topic, dead: dict[bytes, int]) -> Iterator[str]:
    noted = dict(shard.own.get("graves", [])).get(topic.digits.encode())
    if (dead or topic.count("dropped")) and (noted is None or noted > min(dead.values(), default=noted)):
        yield f"its first dead letter is of {min(dead.values(), default=0)}, and graves has {noted}"

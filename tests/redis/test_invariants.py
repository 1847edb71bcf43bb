"""What is true of the keys between any two scripts; and a planted fault of each sort is seen."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.model.expected import Divergence
from tests.redis.crowd import SETTINGS, Scene, calls
from tests.redis.invariants import invariants_hold
from tests.redis.keyspace import bench_at, bring_back

P = "{shop:0}:"
NEVER = "9007199254740991"
Plant = Callable[["At"], object]


class At:
    """The keys, and where a topic has its own."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def of(self, topic: str, name: str) -> str:
        digits = self.client.hget(f"{P}topics", topic).decode().partition("@")[0]
        return f"{P}{digits}:{name}"

    def first(self, topic: str, pattern: str) -> str:
        return sorted(self.client.keys(self.of(topic, pattern)))[0].decode()  # type: ignore[no-any-return]

    def bucket(self, topic: str) -> Any:
        """The first of the index of keys."""
        return self.client.hget(self.of(topic, "k0"), "0")

    def member(self, topic: str, name: str) -> Any:
        return self.client.zrange(self.of(topic, name), 0, 0)[0]

    def part_of_expiries(self) -> str:
        """That has one whose message nobody holds, since that of a leased one may be missing."""
        full = int(self.of("ready", "")[len(P) : -1], 16).to_bytes(5, "big")
        names: list[str] = [each.decode() for each in self.client.keys(f"{P}exp:*") if not each.endswith(b"next")]
        return next(each for each in names if any(member[:5] == full for member in self.client.zrange(each, 0, -1)))

    def an_expiry(self) -> Any:
        return self.client.zrange(self.part_of_expiries(), 0, 0)[0]

    def request(self) -> Any:
        return self.client.hkeys(f"{P}held")[0]


def count(name: str, topic: str = "slots", by: int = 1) -> Plant:
    return lambda at: at.client.hincrby(at.of(topic, "h"), name, by)


def slot_counts(field: str) -> Plant:
    def plant(at: At) -> None:
        slots = at.of("slots", "slots")
        name = sorted(each for each in at.client.hkeys(slots) if not each.startswith(b"g"))[0].decode()
        at.client.hincrby(slots, field + name, 1)

    return plant


def first_slot(at: At) -> int:
    return int(at.member("slots", "oI")[1:], 16)


def all_of(*plants: Plant) -> Plant:
    return lambda at: [plant(at) for plant in plants]


PLANTS: dict[str, Plant] = {
    "live": count("live"),
    "far": count("far"),
    "keys": count("keys"),
    "the index has a bucket more": count("index", by=60),
    "gone of the ready row": count("gP", "ready", 1),
    "taken of the ready row": count("pP", "ready", 1),
    "births of the ready row": count("bP", "ready", -1),
    "the first slot": count("sI"),
    "no first slot": lambda at: at.client.hset(at.of("slots", "h"), "sI", 0),
    "the cursor": count("cI", by=10**9),
    "how far into a slot": lambda at: at.client.hset(at.of("slots", "h"), mapping={"cI": first_slot(at), "pI": 1}),
    "births of a slot": slot_counts(""),
    "gone of a slot": slot_counts("g"),
    "a level that nobody looks into": lambda at: at.client.hdel(at.of("ready", "h"), "l2"),
    "the bound in topics": lambda at: at.client.hset(f"{P}topics", "near", at.of("near", "")[len(P) : -1] + "@" + NEVER),
    "the bound in both places": all_of(
        lambda at: at.client.hset(f"{P}topics", "near", at.of("near", "")[len(P) : -1] + "@" + NEVER),
        lambda at: at.client.hset(at.of("near", "h"), "next", NEVER),
    ),
    "a paused topic that is asked": lambda at: at.client.hset(at.of("paused", "h"), "paused", 0),
    "ended places": lambda at: at.client.hincrby(at.of("leased", "ended"), at.first("leased", "b*"), 1),
    "a message that is nowhere": lambda at: at.client.zrem(at.of("near", "due1"), at.member("near", "due1")),
    "a message in two places": lambda at: at.client.zadd(at.of("near", "due0"), {at.member("near", "due1"): 5}),
    "a message at another time": lambda at: at.client.zincrby(at.of("near", "due1"), 1, at.member("near", "due1")),
    "a dead letter nowhere": lambda at: at.client.zrem(at.of("dead", "dead"), at.member("dead", "dead")),
    "a dead letter without a life": lambda at: at.client.hdel(at.of("dead", "life"), at.member("dead", "dead")),
    "a life of nobody": lambda at: at.client.hset(at.of("ready", "life"), "A" * 10, b"\0" * 16),
    "a first attempt that began, nobody knows when": lambda at: at.client.hdel(
        at.of("tried", "life"), at.member("tried", "due1") + b"b"
    ),
    "a first attempt that began at another time": lambda at: at.client.hset(
        at.of("tried", "life"), at.member("tried", "due1") + b"b", b"\0" * 12
    ),
    "a first attempt of nobody": lambda at: at.client.hset(at.of("ready", "life"), "A" * 10 + "b", b"\0" * 12),
    "a message that was forgotten": lambda at: at.client.lset(at.first("near", "b*"), 0, ""),
    "a bucket of nobody": lambda at: at.client.rpush(at.of("slots", "bI7:0"), "??????" * 3),
    "a bucket too long": lambda at: at.client.rpush(at.first("ready", "b*"), ""),
    "a bucket of a topic that is gone": lambda at: at.client.rpush(f"{P}fff:bI7:0", "?"),
    "a key that nobody knows": lambda at: at.client.set(f"{P}what", "?"),
    "a key of a topic that nobody knows": lambda at: at.client.set(at.of("ready", "what"), "?"),
    "a field that nobody knows": lambda at: at.client.hset(f"{P}meta", "what", "?"),
    "a large body of nobody": lambda at: at.client.set(at.of("ready", "mI7:0"), "?"),
    "no large body": lambda at: at.client.delete(at.first("ready", "m*")),
    "a key in the wrong place": lambda at: at.client.rename(at.first("near", "k*"), at.of("near", "k77")),
    "a key of nobody": lambda at: at.client.hset(at.of("near", "k0"), "0", at.bucket("near")[:-1] + b"?"),
    "a key that is held twice": lambda at: at.client.hset(at.of("near", "k0"), "0", at.bucket("near") + at.bucket("near")[1:]),
    "a key of another hash": lambda at: at.client.hset(
        at.of("near", "k0"), "0", at.bucket("near")[:1] + b"?" + at.bucket("near")[2:]
    ),
    "a crowd of nobody": all_of(
        lambda at: at.client.hset(at.of("near", "crowd"), "new", "A" * 10), count("crowd", "near"), count("keys", "near")
    ),
    "a crowd that is not counted": lambda at: at.client.hset(at.of("near", "crowd"), "near 0", at.member("near", "due1")),
    "a crowd that is not there": count("crowd"),
    "a key that nobody holds": lambda at: at.client.delete(at.first("ready", "k*")),
    "an expiry of nobody": lambda at: at.client.zadd(f"{P}exp", {"A" * 15: 5}),
    "no expiry": lambda at: at.client.delete(at.part_of_expiries()),
    "an expiry at another time": lambda at: at.client.zincrby(at.part_of_expiries(), 1, at.an_expiry()),
    "an expiry in another part": lambda at: at.client.rename(at.part_of_expiries(), f"{P}exp:ff"),
    "an expiry twice": lambda at: at.client.zadd(
        f"{P}exp", {at.an_expiry(): at.client.zscore(at.part_of_expiries(), at.an_expiry())}
    ),
    "expiries that nobody looks at": lambda at: at.client.delete(f"{P}exp:next"),
    "expiries that are looked at too late": lambda at: at.client.zincrby(
        f"{P}exp:next", 1e12, at.part_of_expiries()[len(P) + 4 :]
    ),
    "upkeep too late": lambda at: at.client.hset(f"{P}meta", "upkeep", 8_000_000_000_000),
    "a lease that nobody ends": lambda at: at.client.zrem(f"{P}lease", at.request()),
    "a claim of nothing": lambda at: at.client.hdel(f"{P}open", at.request()),
    "a claim that has ended": lambda at: at.client.hset(f"{P}open", at.request(), "000"),
    "ends of no claim": lambda at: at.client.hset(f"{P}until", "nobody", "\0" * 6),
    "a claim that ends too late": lambda at: at.client.zadd(f"{P}lease", dict.fromkeys(at.client.hkeys(f"{P}until"), 8e12)),
    "a claim with a number to come": lambda at: at.client.hset(f"{P}meta", "claim", "0" * 16),
    "more than a claim knows": lambda at: at.client.hset(
        f"{P}open", mapping=dict.fromkeys(at.client.hkeys(f"{P}open"), "1" * 6)
    ),
    "a number of a topic to come": lambda at: at.client.hset(f"{P}meta", "topic", 1),
    "no grave": lambda at: at.client.delete(f"{P}graves"),
    "a grave too late": lambda at: at.client.zincrby(f"{P}graves", 1e12, at.of("dead", "")[len(P) : -1]),
    "a grave of nobody": lambda at: at.client.zadd(f"{P}graves", {"fff": 5}),
    "a token of nobody": lambda at: at.client.rpush(f"{P}w:nobody", "1"),
    "two tokens": lambda at: at.client.rpush(f"{P}w:ready", "1", "1"),
    "a timer of nobody": lambda at: at.client.hset(f"{P}timers", "nobody", "?"),
    "a topic of another name": lambda at: at.client.hset(at.of("ready", "h"), "name", "other"),
    "a topic without anything": lambda at: (
        at.client.hset(f"{P}topics", "x", "a@" + NEVER),
        at.client.hset(f"{P}a:h", mapping={"name": "x", "next": NEVER}),
        at.client.hset(f"{P}meta", "topic", 77),
    ),
    "a topic that has retired and lives": lambda at: at.client.zadd(f"{P}retired", {at.of("ready", "")[len(P) : -1]: 1}),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_in_the_keys_is_seen(scene: Scene, name: str) -> None:
    invariants_hold(scene.client)
    PLANTS[name](At(scene.client))
    with pytest.raises(Divergence):
        invariants_hold(scene.client)


async def test_every_script_leaves_the_keys_in_order(scene: Scene) -> None:
    for verb, some in calls().items():
        for call in some:
            bring_back(scene.client, scene.base)
            async with bench_at(scene.url, now=scene.now, **SETTINGS) as bench:
                await call(bench, scene.crowd)
                invariants_hold(scene.client)
            assert verb

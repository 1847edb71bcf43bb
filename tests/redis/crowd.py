"""A keyspace with messages of every sort in every state, and for each script calls that meet many of them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest
import redis

from bide.engines.base import Claimed, Condition, End, Hold, Move, NewMessage, Ref, Seen, Window
from bide.engines.gates import Entry, Held, Spend
from bide.engines.redis.aio.connections import AsyncConnection
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.script import Script, scripts
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept
from bide.testing.contract.bench import Bench
from tests.redis.keyspace import Picture, bench_at, bring_back
from tests.redis.late import recall

DAY = 86_400_000
TOPICS = ("near", "tried", "ready", "slots", "leased", "held", "dead", "paused", "new", "x", "-1", "1e99", "nan")
LARGE = b"L" * 5_000
SETTINGS: dict[str, Any] = {"dead_for": DAY}


class Crowd(NamedTuple):
    """What the verbs are asked about."""

    ids: dict[str, str]
    held: list[Claimed]
    inside: list[Held]
    seen: dict[Ref, Seen]  # pending messages, as they are


async def gather_crowd(bench: Bench) -> Crowd:
    """Three days of history; the bench stands at its end."""
    ids: dict[str, str] = {}
    begin = bench.now
    for level in (0, 1, 2):
        await bench.put("slots", b"%d" % level, delay=30_000, level=level)
        await bench.put("slots", delay=90_000, level=level, headers={"x": "y"})
    await bench.put("slots", LARGE, delay=90_000)
    await bench.put("slots", delay=95_000, expires_in=5 * DAY, max_attempts=5)
    await bench.put("slots", delay=96_000, expires_in=1_000)  # which has ended when somebody looks
    for i, delay in enumerate((3 * DAY + 1, 3 * DAY + 40_000, 4 * DAY, 40 * DAY, 30_000 * DAY)):
        ids[f"far {i}"] = (await bench.put("slots", LARGE if i == 1 else b"f", delay=delay, key=f"far {i}")).id
    for i in range(3):
        await bench.put("leased", b"old", max_attempts=i + 1)
    await bench.claim("leased", limit=3, lease=1_000)  # nobody ends it
    await bench.bury("dead", b"first")
    await bench.bury("dead", LARGE, key="dead")
    bench.now = begin + 3 * DAY - 2_000
    for i in range(4):
        sent = await bench.put("near", LARGE if i == 0 else b"n", delay=5 * DAY, key=f"near {i}" if i < 2 else None)
        await bench.reschedule(sent.id, delay=1_000)
        ids[f"near {i}"] = sent.id
    tried = await bench.running("tried", max_attempts=9)
    await bench.end(tried, "retry", delay=1_000, error="once", began=bench.now, trace=b"{}")
    ids["tried"] = tried.id
    ids["dead"] = (await bench.bury("dead", b"second", key="second", expires_in=DAY)).id
    await bench.put("paused")
    await bench.engine.pause("paused", True)
    held = await _lease_some(bench)
    for level in (0, 1, 2):
        await bench.put("ready", b"%d" % level, level=level)
    await bench.put("ready", LARGE, key="ready", expires_in=DAY)
    ids["ready"] = (await bench.put("ready", b"r", key="plain")).id
    inside = await _let_in(bench)
    await _keep_some(bench, list(ids.values()))
    bench.now = begin + 3 * DAY
    refs = [Ref(id=ids[name]) for name in ("far 0", "far 1", "far 3", "near 0", "tried", "ready")]
    there = zip(refs, await bench.engine.get(refs, now=bench.now), strict=True)
    seen = {ref: Seen(each.due, each.body if each.key else None) for ref, each in there if each is not None}
    assert len(seen) == len(refs)
    return Crowd(ids, held, inside, seen)


async def _lease_some(bench: Bench) -> list[Claimed]:
    for i in range(6):
        options: dict[str, Any] = {"key": f"held {i}", "expires_in": DAY} if i % 2 else {}
        await bench.put("held", LARGE if i == 3 else b"h", **options)
    held = await bench.claim("held", limit=6, lease=60_000)
    assert len(held) == 6
    assert await bench.extend(held[0], 90_000)
    return held


async def _let_in(bench: Bench) -> list[Held]:
    """Some are inside, called or in line, and the leases of some will have ended; and there are rates."""
    gates, now = bench.engine.gates, bench.now
    entries = [Entry("wide", f"h{i}", 90_000, 3, f"w{i}") for i in range(6)] + [Entry("over", f"h{i}", 1_000) for i in range(2)]
    entered = await gates.enter(entries, now=now)
    inside = [Held(each.gate, each.holder, got.token) for each, got in zip(entries, entered, strict=True) if got.token]
    await gates.enter([Entry("over", "h2", 1_000, 1, "w2"), Entry("alone", "h", 90_000)], now=now)
    assert len((await gates.leave(inside[:1], now=now)).called) == 1
    await gates.spend([Spend("rate", 250, 90_000, 240), Spend("short", 2, 1_000, 2)], now=now)
    await gates.spend([Spend("held", 1, 90_000, holder=f"h{i}") for i in range(3)], now=now)
    return inside[1:]


async def _keep_some(bench: Bench, ids: list[str]) -> None:
    """Results are expected and kept, and somebody waits for all of them."""
    results, now = bench.engine.results, bench.now
    await results.expect([Expected(id, now + 90_000) for id in ids[::2]], now=now)
    await results.expect([Dependent("waits", tuple(ids), now + 90_000)], now=now)
    await results.follow([Follow("waits", id, now + 90_000) for id in ids], now=now)
    crowd = [f"follower {i}" for i in range(1_200)]  # more than one script tells
    for first in range(0, len(crowd), 400):
        await results.follow([Follow(each, ids[2], now + 90_000) for each in crowd[first : first + 400]], now=now)
    await results.fulfil([Kept(id, 90_000, b"7") for id in ids[::3]], now=now)


def _ends(crowd: Crowd) -> list[End]:
    verdicts: list[Any] = ["done", "done", "done", "retry", "release", "dead"]
    return [
        End(
            each.topic,
            each.id,
            each.token,
            verdict,
            1_000 if verdict == "release" else 0,
            "broke",
            began=each.since,
            trace=b"{}",
        )
        for each, verdict in zip(crowd.held, verdicts, strict=True)
    ]


def _set_aside(crowd: Crowd) -> list[End]:
    return [End(each.topic, each.id, each.token, "release", 2 * DAY, aside=True) for each in crowd.held]


def _holds(held: Sequence[Claimed]) -> list[Hold]:
    return [Hold(each.topic, each.id, each.token) for each in held]


def _refs(crowd: Crowd) -> list[Ref]:
    ids = crowd.ids
    named = [ids["far 0"], ids["far 3"], ids["near 0"], ids["tried"], crowd.held[1].id, ids["dead"], ids["ready"], "no such id"]
    return [*map(Ref, named), Ref(topic="slots", key="far 1"), Ref(topic="near", key="near 1"), Ref(topic="none", key="no")]


def _condition(crowd: Crowd) -> Condition:
    ref, seen = next(iter(crowd.seen.items()))
    return Condition(ref.id or "", seen.due)


BATCH = [
    NewMessage("ready", b"1"),
    NewMessage("ready", b"2", delay=5_000, max_attempts=7),
    NewMessage("new", b"3", delay=100 * DAY, level=2, headers={"x": "y"}),
    NewMessage("slots", b"4", key="far 0"),
    NewMessage("slots", b"5", key="far 1", if_exists="replace", delay=1),
    NewMessage("near", LARGE, key="near 0", if_exists="later", delay=1, expires_in=DAY),
    NewMessage("held", b"7", key="held 1", if_exists="replace", operation="once"),
    NewMessage("new", LARGE, key="fresh", if_exists="error", delay=3, operation="twice"),
]


RULED = [
    *BATCH,
    NewMessage("near", LARGE, key="near 1", if_exists="later", delay=1, max_wait=DAY),
    NewMessage("new", b"9", key="rare", if_exists="later", delay=3, max_wait=5),
    NewMessage("new", b"9", key="once", unique_for=DAY),
    NewMessage("near", b"[7]", key="near 1", if_exists="merge"),
    NewMessage("new", b"[8]", key="all", if_exists="merge", delay=DAY),
    NewMessage("new", b"[%b]" % (b"9" * 2_000), key="all", if_exists="merge"),
    NewMessage("new", b"[9]", key="all", if_exists="merge", largest=5),
    NewMessage("new", b"9", key="once", unique_for=DAY, if_exists="error"),
    NewMessage("new", b"9", key="rare", if_exists="later", delay=5, max_wait=5),
]


def any_shard(bench: Bench) -> Any:
    """What is below the seam, for what is no verb of it."""
    engine: Any = bench.engine
    return engine._engine._shards[0]  # behind the guard


async def pin(at: Bench) -> None:
    """What the first message of another shard would do."""
    first = any_shard(at)
    other = AsyncShard(1, first._namespace, first.connections, first)
    connection = await first.connections.take()
    try:
        await other.calls._pin(connection, at.now)
    finally:
        await first.connections.give(connection)


async def spread(at: Bench) -> None:
    """What somebody else does who knows that there are more shards."""
    first = any_shard(at)
    connection = await first.connections.take()
    try:
        told = [*first.calls._told(connection, at.now), "1:1|2@1"]
        await connection.run(scripts()["spread"], first.calls._keys, told)
    finally:
        await first.connections.give(connection)


Ask = Callable[[Bench, Crowd], Awaitable[Any]]
CALLS: dict[str, list[Ask]] = {
    "put": [lambda at, _: at.put_all(*BATCH[:3])],
    "put_named": [
        lambda at, _: at.put_all(*BATCH),
        lambda at, _: at.put("new", operation=f"~0.{'0' * 16}.7#2"),  # asked after, and never heard of
    ],
    "put_ruled": [lambda at, _: at.put_all(*RULED)],
    "claim": [
        lambda at, _: at.engine.claim(["near", "tried", "ready", "slots", "held"], 100, 10_000, request="mine", now=at.now)
    ],
    "settle": [
        lambda at, crowd: at.engine.settle(_ends(crowd), now=at.now),
        lambda at, crowd: at.engine.settle(_set_aside(crowd), now=at.now),
    ],
    "extend": [lambda at, crowd: at.engine.extend(_holds(crowd.held[:2]), 99_000, now=at.now)],
    "cancel": [lambda at, crowd: at.engine.cancel(_refs(crowd), now=at.now)],
    "cancel_seen": [lambda at, crowd: at.engine.cancel([*crowd.seen], seen=[*crowd.seen.values()], now=at.now)],
    "reschedule": [
        lambda at, crowd: at.engine.reschedule([Move(ref, 70_000) for ref in _refs(crowd)], now=at.now),
        lambda at, crowd: at.engine.reschedule([Move(_refs(crowd)[0], at=at.now + DAY)], now=at.now),
        lambda at, crowd: at.engine.reschedule([Move(ref, 5, origin="due") for ref in _refs(crowd)], now=at.now),
        lambda at, crowd: at.engine.reschedule([Move(ref, 5, origin="since") for ref in _refs(crowd)], now=at.now),
        lambda at, crowd: at.engine.reschedule(
            [Move(ref, 5, seen=each.due) for ref, each in crowd.seen.items()], condition=_condition(crowd), now=at.now
        ),
    ],
    "tend": [lambda at, _: at.engine.tend(now=at.now)],
    "requeue": [
        lambda at, _: at.engine.requeue("dead", now=at.now),
        lambda at, crowd: at.engine.requeue("dead", [crowd.ids["dead"]], delay=5, now=at.now),
    ],
    "purge": [
        lambda at, _: at.engine.purge("slots", "ready", now=at.now),
        lambda at, _: at.engine.purge("dead", "dead", now=at.now),
        lambda at, _: at.engine.purge("slots", "scheduled", now=at.now),
    ],
    "purge_dead": [lambda at, crowd: at.engine.purge("dead", "dead", [crowd.ids["dead"]], now=at.now)],
    "expect": [lambda at, _: any_shard(at).ask_for_expiry()],
    "pin": [lambda at, _: pin(at)],
    "spread": [lambda at, _: spread(at)],
    "time": [lambda at, _: any_shard(at).tell_time()],
    "hear": [lambda at, _: any_shard(at).hear(["none", "near", "ready"])],
    "sweep": [lambda at, _: any_shard(at).sweep(["none", "near", "ready"])],
    "close": [lambda at, _: at.claim("held", "slots", limit=50)],
    "enter": [
        lambda at, _: at.engine.gates.enter(
            [Entry("wide", f"n{i}", 5_000, 4, f"w{i}" if i % 2 else None) for i in range(7)]
            + [Entry("wide", "h1", 7_000, 3), Entry("over", "new", 7_000), Entry("fresh", "new", 7_000, 2)],
            now=at.now,
        )
    ],
    "keep": [
        lambda at, crowd: at.engine.gates.keep(
            [*crowd.inside, Held("wide", "h1", "1"), Held("no", "h", "1")], 9_000, now=at.now
        )
    ],
    "leave": [
        lambda at, crowd: at.engine.gates.leave(
            [*crowd.inside, Held("wide", "w5", None), Held("wide", "w3", None), Held("no", "h", "1")], now=at.now
        )
    ],
    "recall": [lambda at, _: recall(at), lambda at, _: recall(at, 1)],
    "spend": [
        lambda at, _: at.engine.gates.spend(
            [Spend("rate", 250, 90_000, 30), Spend("rate", 9, 60_000, 3), Spend("fresh", 3, 10, 5)], now=at.now
        ),
        lambda at, _: at.engine.gates.spend([Spend("held", 1, 90_000, holder=f"h{i}") for i in range(1, 5)], now=at.now),
    ],
    "expect_results": [
        lambda at, crowd: at.engine.results.expect([Expected(id, at.now + 9_000) for id in crowd.ids.values()], now=at.now)
    ],
    "fulfil_results": [
        lambda at, crowd: at.engine.results.fulfil([Kept(id, 9_000, LARGE) for id in crowd.ids.values()], now=at.now)
    ],
    "followers": [lambda at, crowd: at.engine.results.fulfil([Kept(list(crowd.ids.values())[2], 9_000, b"7")], now=at.now)],
    "read_results": [lambda at, crowd: at.engine.results.read(list(crowd.ids.values()), now=at.now)],
    "depend": [
        lambda at, crowd: at.engine.results.expect([Dependent("new", tuple(crowd.ids.values()), at.now + 9_000)], now=at.now)
    ],
    "follow": [
        lambda at, crowd: at.engine.results.follow([Follow("new", id, at.now + 9_000) for id in crowd.ids.values()], now=at.now)
    ],
    "arrive": [
        lambda at, crowd: at.engine.results.arrive([Arrival("waits", id) for id in crowd.ids.values()], now=at.now),
        lambda at, _: at.engine.results.arrive([Arrival(id, None) for id in ("waits", "new")], now=at.now),
    ],
    "pause": [lambda at, _: at.engine.pause("new", True), lambda at, _: at.engine.pause("paused", False)],
    "count_pause": [lambda at, _: any_shard(at).count_pause()],
    "get": [lambda at, crowd: at.engine.get(_refs(crowd), now=at.now)],
    "scan": [
        lambda at, _: at.engine.scan("slots", None, 5, now=at.now),
        lambda at, _: at.engine.scan("held", None, 5, now=at.now),
    ],
    "leased": [lambda at, _: at.engine.scan("held", "leased", 5, now=at.now)],
    "lease_ends": [lambda at, crowd: at.engine.get(_refs(crowd), now=at.now)],
    "stats": [lambda at, _: at.engine.stats("slots", window=Window(at.now - DAY, at.now + DAY, 3), now=at.now)],
}


def calls() -> dict[str, list[Ask]]:
    """One entry for every script there is."""
    assert set(CALLS) == set(scripts()), "a script has no call here"
    return CALLS


class Call(NamedTuple):
    script: Script
    keys: Sequence[str]
    args: Sequence[Any]


class Scene(NamedTuple):
    """A crowded keyspace, and the calls that meet it."""

    client: redis.Redis
    url: str
    base: Picture
    crowd: Crowd
    now: int


async def recorded(scene: Scene, verb: str, patch: pytest.MonkeyPatch) -> list[Call]:
    """Calls of a script as the engine makes them, each of the scene as it is."""
    run = AsyncConnection.run
    found: list[Call] = []

    async def listen(
        connection: AsyncConnection, script: Script | None, keys: Sequence[str], args: Sequence[Any], **how: Any
    ) -> Any:
        answer = await run(connection, script, keys, args, **how)
        if script and script.name == verb:
            found.append(Call(script, list(keys), list(args)))
        return answer

    with patch.context() as wrapped:
        wrapped.setattr(AsyncConnection, "run", listen)
        for call in calls()[verb]:
            bring_back(scene.client, scene.base)
            async with bench_at(scene.url, now=scene.now, **SETTINGS) as bench:
                await call(bench, scene.crowd)
    assert len(found) >= len(calls()[verb])
    return found

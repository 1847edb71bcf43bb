"""What each path costs the Redis server: the calls that its script makes of Redis, and the instructions, for one message."""

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import redis

from benchmarks.counts import callgrind, gates
from bide.engines.base import MAX_BATCH, Claimed, End, Hold, Move, NewMessage, Ref, Settings
from bide.engines.registry import source
from bide.engines.sync import Engine
from tests.servers.redis import RedisServer

SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
NOW = 1_800_000_000_000  # the engines are told the time, so that each run meets the same slots
SPREADS = {"now": 0, "over 1 h": HOUR, "over 24 h": DAY}
THERE = 20_000  # messages that wait already, over the same stretch
MANY = 4_000
ONES = 100
LEASE = 30 * SECOND
RATE = 100  # messages a second, of a worker that keeps up
QUIET: Mapping[str, int | str] = {"hz": 1, "dynamic-hz": "no", "activerehashing": "no"}
"""What Redis does by the clock, and not for a call, it does seldom: a busy machine would count more of it."""
ASKED = {"evalsha", "eval", "info", "hello", "client", "ping", "script", "select", "config", "function"}
"""What clients send; the rest is called by scripts."""

Step: TypeAlias = tuple[str, int, Callable[[], object]]
"""A path's name, how many messages it is about, and what to do."""


def calls() -> Mapping[str, float]:
    """Calls of Redis that scripts make."""
    with RedisServer() as server:
        client = server.client()
        found = {}
        for name, many, act in steps(server):
            before = _calls(client)
            act()
            found[name] = (_calls(client) - before) / many
        return found


def instructions() -> Mapping[str, float]:
    with (
        tempfile.TemporaryDirectory(prefix="bide-bench-") as folder,
        RedisServer(under=callgrind.command(Path(folder))) as server,
    ):
        counter = callgrind.Callgrind(server.pid, Path(folder))
        for name, value in QUIET.items():
            server.client().config_set(name, value)
        found = {}
        for name, many, act in steps(server):
            with counter.counted():
                act()
            found[name] = counter.last / many
        return found


def _calls(client: redis.Redis) -> int:
    stats: dict[str, Any] = client.info("commandstats")
    names = ((name.removeprefix("cmdstat_").partition("|")[0], numbers["calls"]) for name, numbers in stats.items())
    return sum(count for name, count in names if name not in ASKED)


def steps(server: RedisServer) -> Iterator[Step]:
    for name, spread in SPREADS.items():
        with _engine(server) as engine:
            yield from _life(engine, name, spread)
    with _engine(server) as engine:
        yield from _others(engine)
    with _engine(server) as engine:
        yield from _expiring(engine)
    for name, every in (("each when it is due", 0), ("a claim a second", SECOND)):
        with _engine(server) as engine:
            yield from _on_time(engine, name, every)
    with _engine(server) as engine:
        yield from gates.steps(engine)


@contextmanager
def _engine(server: RedisServer) -> Iterator[Engine]:
    server.client().flushall()
    engine = source(Settings(url=f"{server.url}?timeout=60")).sync()
    engine.open()
    yield engine
    engine.close()


def _new(many: int, spread: int, *, chance: random.Random, keys: str = "", expires_in: int | None = None) -> list[NewMessage]:
    return [
        NewMessage(
            "t",
            b"x" * 100,
            delay=int(chance.random() * spread),
            key=f"{keys}{number:09}" if keys else None,
            expires_in=expires_in,
        )
        for number in range(many)
    ]


def _put(engine: Engine, new: Sequence[NewMessage]) -> list[str]:
    ids: list[str] = []
    for first in range(0, len(new), MAX_BATCH):
        ids += [each.id for each in engine.put(new[first : first + MAX_BATCH], now=NOW)]
    return ids


def _claim(engine: Engine, many: int, now: int, limit: int = 200) -> list[Claimed]:
    found: list[Claimed] = []
    while len(found) < many:
        found += engine.claim(["t"], min(limit, many - len(found)), LEASE, now=now).messages
    return found


def _settle(engine: Engine, claimed: Sequence[Claimed], now: int, many: int) -> None:
    for first in range(0, len(claimed), many):
        engine.settle([End(each.topic, each.id, each.token, "done") for each in claimed[first : first + many]], now=now)


def _life(engine: Engine, name: str, spread: int) -> Iterator[Step]:
    """Put, and claimed and settled when all are due."""
    chance = random.Random(1)
    _put(engine, _new(THERE, spread, chance=chance))
    new, ones = _new(MANY, spread, chance=chance), _new(ONES, spread, chance=chance)
    yield f"put in thousands, {name}", MANY, lambda: _put(engine, new)
    yield f"put one, {name}", ONES, lambda: [engine.put([each], now=NOW) for each in ones]
    later = NOW + spread + 60 * SECOND
    claimed: list[Claimed] = []
    yield f"claim 200, {name}", MANY, lambda: claimed.extend(_claim(engine, MANY, later))
    yield f"settle 200, {name}", MANY // 2, lambda: _settle(engine, claimed[: MANY // 2], later, 200)
    yield f"settle 50, {name}", MANY // 4, lambda: _settle(engine, claimed[MANY // 2 :][: MANY // 4], later, 50)
    yield f"settle one, {name}", ONES, lambda: _settle(engine, claimed[-ONES:], later, 1)
    yield f"claim one, {name}", ONES, lambda: _claim(engine, ONES, later, 1)


def _others(engine: Engine) -> Iterator[Step]:
    """The verbs beside the usual life, in a topic of a day."""
    chance = random.Random(2)
    ids = _put(engine, _new(THERE, DAY, chance=chance))
    chance.shuffle(ids)
    keyed, ones = _new(MANY, DAY, chance=chance, keys="o:1"), _new(ONES, DAY, chance=chance, keys="o:2")
    yield "put in thousands with keys", MANY, lambda: _put(engine, keyed)
    yield "put one with a key", ONES, lambda: [engine.put([each], now=NOW) for each in ones]
    yield "cancel one", ONES, lambda: [engine.cancel([Ref(id)], now=NOW) for id in ids[:ONES]]
    yield "reschedule one", ONES, lambda: [engine.reschedule([Move(Ref(id), HOUR)], now=NOW) for id in ids[ONES:][:ONES]]
    yield "cancel 1,000", MAX_BATCH, lambda: engine.cancel([Ref(id) for id in ids[1_000:2_000]], now=NOW)
    yield "claim, nothing due", ONES, lambda: [engine.claim(["u"], 1, LEASE, now=NOW) for _ in range(ONES)]
    yield "tend, nothing to do", ONES, lambda: [engine.tend(now=NOW) for _ in range(ONES)]
    later = NOW + DAY
    held = [Hold(each.topic, each.id, each.token) for each in _claim(engine, MAX_BATCH, later)]
    yield (
        "extend 200",
        MAX_BATCH,
        lambda: [engine.extend(held[i : i + 200], LEASE, now=later) for i in range(0, MAX_BATCH, 200)],
    )


def _expiring(engine: Engine) -> Iterator[Step]:
    """Over an hour: some are claimed and end in time, and upkeep ends the rest."""
    chance = random.Random(4)
    new, ones = (_new(many, HOUR, chance=chance, expires_in=2 * HOUR) for many in (MANY, ONES))
    _put(engine, _new(THERE, HOUR, chance=chance, expires_in=2 * HOUR))
    yield "put in thousands with an expiry", MANY, lambda: _put(engine, new)
    yield "put one with an expiry", ONES, lambda: [engine.put([each], now=NOW) for each in ones]
    later = NOW + HOUR
    claimed: list[Claimed] = []
    yield "claim 200 with an expiry", MANY, lambda: claimed.extend(_claim(engine, MANY, later))
    yield "settle 200 with an expiry", MANY // 2, lambda: _settle(engine, claimed[: MANY // 2], later, 200)
    yield "settle one with an expiry", ONES, lambda: _settle(engine, claimed[-ONES:], later, 1)
    _settle(engine, claimed[MANY // 2 : -ONES], later, 1_000)
    yield "tend, 100 expired", 2_000, lambda: [engine.tend(100, now=NOW + 4 * HOUR) for _ in range(20)]


def _on_time(engine: Engine, name: str, every: int) -> Iterator[Step]:
    """As a worker does that keeps up."""
    _put(engine, _new(RATE * 120, 120 * SECOND, chance=random.Random(3)))
    yield f"claim + settle on time, {name}", RATE * 20, lambda: _keep_up(engine, RATE * 20, every)


def _keep_up(engine: Engine, many: int, every: int) -> None:
    now = NOW
    while many > 0:
        claim = engine.claim(["t"], min(100, many), LEASE, now=now)
        many -= len(claim.messages)
        if claim.messages:
            _settle(engine, claim.messages, now, 100)
        now = now + every if every else max(claim.next_due or now, now + 1)

"""What a message costs the Redis server in its whole life, by the engine itself: it can be told that a day has passed.

Put in thousands, at random times; claimed in groups of 200 when all are due; and settled a group in one call, in 4 calls, or
each alone.
"""

import random
import time

import msgspec

from benchmarks.costs import HOUR, Cost, body, load
from benchmarks.measure import Figure, figure
from benchmarks.redis_meter import Meter
from bide.engines.base import MAX_BATCH, Claimed, End, NewMessage, Settings
from bide.engines.registry import source
from bide.engines.sync import Engine
from tests.servers.redis import RedisServer

RUNS = 3  # each puts and ends this many, for each spread
MANY = 120_000
GROUP = 200
TURN = 10  # groups that are claimed before they are settled, so that looking at the clock costs little
LEASE = 30_000
WAYS = {"in one call": GROUP, "in 4 calls": GROUP // 4, "each alone": 1}
SIZES = (100, 1_000)
SPREADS = {"immediate": 0.0, "over 1 h": 1.0 * HOUR, "over 24 h": 24.0 * HOUR}


def run() -> list[Figure]:
    with RedisServer() as server:
        meter = Meter(server)
        return [*_lives(meter), *_sizes(meter), load()]


def opened(meter: Meter) -> Engine:
    engine = source(Settings(url=meter.url)).sync()
    engine.open()
    return engine


def _lives(meter: Meter) -> list[Figure]:
    seen: dict[str, list[Cost]] = {}
    for _ in range(RUNS):
        for name, seconds in SPREADS.items():
            for what, cost in _life(meter, seconds, body(), WAYS).items():
                seen.setdefault(f"{name}: {what}", []).append(cost)
    lines = []
    for name in SPREADS:
        for what in ("put", "claim", *WAYS):
            costs = seen[f"{name}: {what}"]
            said = f"{name}: settle {what}" if what in WAYS else f"{name}: {what}"
            lines.append(figure(f"{said}, server", "µs", [cost.server for cost in costs]))
            lines.append(figure(f"{said}, client", "µs", [cost.client for cost in costs]))
        parts = zip(*(seen[f"{name}: {what}"] for what in ("put", "claim", "in one call")), strict=True)
        lines.append(figure(f"{name}: whole life, server", "µs", [sum(cost.server for cost in each) for each in parts], "<= 8"))
    return lines


def _sizes(meter: Meter) -> list[Figure]:
    seen: dict[tuple[str, int], list[float]] = {}
    for _ in range(RUNS):
        for size in SIZES:
            costs = _life(meter, 0, body(size), {"in one call": GROUP})
            seen.setdefault(("put", size), []).append(costs["put"].server)
            seen.setdefault(("claim + ack", size), []).append(costs["claim"].server + costs["in one call"].server)
    lines = [figure(f"{what} of {size:,} bytes, server", "µs", values) for (what, size), values in seen.items()]
    for what in ("put", "claim + ack"):
        ratios = [large / small for small, large in zip(*(seen[what, size] for size in SIZES), strict=True)]
        lines.append(figure(f"… the ratio, {what}", "x", ratios, "<= 2"))
    return lines


def _life(meter: Meter, seconds: float, what: object, ways: dict[str, int]) -> dict[str, Cost]:
    """Costs a message of each part; the ways to settle take turns."""
    meter.empty()
    plain, chance, now = msgspec.json.encode(what), random.Random(1), time.time_ns() // 1_000_000
    engine = opened(meter)
    new = [NewMessage(topic="t", body=plain, delay=int(chance.random() * seconds * 1_000)) for _ in range(MANY)]
    meter.start()
    for first in range(0, MANY, MAX_BATCH):
        engine.put(new[first : first + MAX_BATCH], now=now)
    costs: dict[str, list[Cost]] = {"put": [meter.stop(MANY)], "claim": [], **{name: [] for name in ways}}
    later = now + int(seconds * 1_000) + 60_000
    each_way = MANY // len(ways)
    for name, size in ways.items():
        for _ in range(0, each_way, TURN * GROUP):
            meter.start()
            groups = [_claim(engine, later) for _ in range(TURN)]
            costs["claim"].append(meter.stop(TURN * GROUP))
            meter.start()
            for group in groups:
                for first in range(0, GROUP, size):
                    engine.settle(ends(group[first : first + size]), now=later)
            costs[name].append(meter.stop(TURN * GROUP))
    assert meter.client.dbsize() < 20
    engine.close()
    return {name: _mean(each) for name, each in costs.items()}


def _claim(engine: Engine, now: int) -> list[Claimed]:
    """A claim may stop before its limit, at its own bounds."""
    group: list[Claimed] = []
    while len(group) < GROUP:
        group += engine.claim(["t"], GROUP - len(group), LEASE, now=now).messages
    return group


def ends(deliveries: list[Claimed]) -> list[End]:
    return [End(each.topic, each.id, each.token, "done") for each in deliveries]


def _mean(costs: list[Cost]) -> Cost:
    return Cost(*(sum(each) / len(costs) for each in zip(*costs, strict=True)))

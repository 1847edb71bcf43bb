"""Whether the Redis server works harder when more is pending: the same work on servers that hold few and many, in turns."""

import random
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec

from benchmarks.costs import HOUR, body, load
from benchmarks.measure import RUNS, Figure, figure
from benchmarks.redis_life import GROUP, LEASE, ends, opened
from benchmarks.redis_meter import PENDING, Meter
from bide.engines.base import MAX_BATCH, NewMessage, Ref
from bide.engines.sync import Engine
from tests.servers.redis import RedisServer

FEW = 10_000
WORK = 20_000  # messages of each kind in a turn
BODY = msgspec.json.encode(body())


def run() -> list[Figure]:
    sizes = sorted({FEW, 1_000_000, PENDING})
    seen: dict[tuple[int, str], list[float]] = {}
    with ExitStack() as stack:
        meters = {size: Meter(stack.enter_context(RedisServer())) for size in sizes}
        engines = {size: opened(meter) for size, meter in meters.items()}
        for size, engine in engines.items():
            for _ in put(engine, size):
                pass
        for _ in range(RUNS):
            for size, engine in engines.items():
                for what, spent in turn(engine, meters[size]).items():
                    seen.setdefault((size, what), []).append(spent)
        for engine in engines.values():
            engine.close()
    lines = []
    for what in ("put", "cancel", "claim + ack"):
        lines += [figure(f"{what}, {size:,} pending, server", "µs", seen[size, what]) for size in sizes]
        for size in sizes[1:]:
            ratios = [many / few for few, many in zip(seen[FEW, what], seen[size, what], strict=True)]
            lines.append(figure(f"… the ratio, {what}, {size:,}", "x", ratios, "<= 1.5"))
    return [*lines, load()]


def put(engine: Engine, count: int) -> Iterator[str]:
    """Due at random in a day that begins in an hour. Gives their ids, and goes on only as they are taken."""
    for first in range(0, count, MAX_BATCH):
        delays = (int((1 + 24 * random.random()) * HOUR * 1_000) for _ in range(min(MAX_BATCH, count - first)))
        for sent in engine.put([NewMessage(topic="t", body=BODY, delay=delay) for delay in delays]):
            yield sent.id


def turn(engine: Engine, meter: Meter) -> dict[str, float]:
    """µs of the server a message. What it adds it takes away again."""
    costs = {}
    meter.start()
    ids = list(put(engine, WORK))
    costs["put"] = meter.stop(WORK).server
    random.shuffle(ids)
    meter.start()
    for first in range(0, WORK, GROUP):
        engine.cancel([Ref(id=each) for each in ids[first : first + GROUP]])
    costs["cancel"] = meter.stop(WORK).server
    for _ in range(0, WORK, MAX_BATCH):
        engine.put([NewMessage(topic="t", body=BODY)] * MAX_BATCH)
    left = WORK
    meter.start()
    while left:
        claim = engine.claim(["t"], GROUP, LEASE)
        engine.settle(ends(list(claim.messages)))
        left -= len(claim.messages)
    costs["claim + ack"] = meter.stop(WORK).server
    return costs

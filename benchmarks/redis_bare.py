"""What bide costs on Redis beside the calls of redis-py that nobody can do without: by turns, on one server.

The drain is that of one `bide worker` process with a handler that does nothing, from its first call until the last message
has ended. Batches of 1,000 messages, each with a time of its own, all go into the same 1,000 seconds of one topic.
"""

import asyncio
import statistics
import time
import uuid
from collections.abc import Callable

import msgspec
import redis.asyncio

from benchmarks.costs import body, load
from benchmarks.measure import RUNS, Figure, figure
from benchmarks.redis_meter import Meter
from benchmarks.throughput import Drained, worker_process
from bide import AsyncQueue, Outgoing, Queue
from tests.servers.redis import RedisServer

PINGS = 20_000
MANY = 60_000
BARS = {200: ">= 11", 100: ">= 9"}  # by how many handlers run at the same time; 100 is the default
BATCH, BATCHES, PARTS = 1_000, 20, 10  # so many parts, of so many batches
SINGLE = 5_000
BODY = body()
PLAIN = msgspec.json.encode(BODY)


def run() -> list[Figure]:
    with RedisServer() as server:
        meter = Meter(server)
        return [*_drains(meter), *_batches(meter), *_singles(meter), load()]


def _rate(count: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def _drains(meter: Meter) -> list[Figure]:
    pings: list[float] = []
    drains: dict[int, list[Drained]] = {concurrency: [] for concurrency in BARS}
    for _ in range(RUNS):
        pings.append(_rate(PINGS, lambda: [meter.client.ping() for _ in range(PINGS)]))
        for concurrency, each in drains.items():
            each.append(_drain(meter, concurrency))
    lines = [figure("bare PING one by one", "a second", pings)]
    for concurrency, each in drains.items():
        lines += [
            figure(f"bide worker --concurrency {concurrency}", "a second", [rate for rate, _ in each]),
            figure("… client's CPU", "µs", [cpu for _, cpu in each]),
            figure(
                "… to a bare PING", "x", [rate / ping for (rate, _), ping in zip(each, pings, strict=True)], BARS[concurrency]
            ),
        ]
    return lines


def _drain(meter: Meter, concurrency: int) -> Drained:
    with Queue(meter.fresh()) as queue:
        queue.send_many("t", [BODY] * MANY)
    return worker_process(meter.url, MANY, concurrency)


def _batches(meter: Meter) -> list[Figure]:
    ours: list[float] = []
    bare: list[float] = []
    with Queue(meter.fresh()) as queue:
        queue.send("t", BODY)
        for part in range(PARTS):
            ours.append(_rate(BATCH * BATCHES, lambda: _send_batches(queue)))
            bare.append(_rate(BATCH * BATCHES, lambda part=part: _zadd_batches(meter, part)))  # type: ignore[misc]
    half = PARTS // 2
    ratios = [each / other for each, other in zip(ours, bare, strict=True)]
    return [
        figure("batches with times of their own", "a second", ours),
        figure("bare ZADDs, 1,000 a pipeline", "a second", bare),
        figure("… the one to the other", "x", ratios, ">= 1.2"),
        figure(
            "… its last half to its first", "x", [statistics.median(ours[half:]) / statistics.median(ours[:half])], ">= 0.9"
        ),
    ]


def _send_batches(queue: Queue) -> None:
    for _ in range(BATCHES):
        queue.send_many("t", [Outgoing(BODY, delay=3_600 + second) for second in range(BATCH)])


def _zadd_batches(meter: Meter, part: int) -> None:
    for batch in range(BATCHES):
        head = b"%d.%d." % (part, batch)
        pipeline = meter.client.pipeline(transaction=False)
        for second in range(BATCH):
            pipeline.zadd("bare", {head + b"%d" % second + PLAIN: second})
        pipeline.execute()


def _singles(meter: Meter) -> list[Figure]:
    lines: list[Figure] = []
    ways = {
        "sync": (lambda: _send_each(meter), lambda: _zadd_each(meter)),
        "async": (lambda: asyncio.run(_send_each_async(meter)), lambda: asyncio.run(_zadd_each_async(meter))),
    }
    for way, (send, zadd) in ways.items():
        both = [(send(), zadd()) for _ in range(RUNS)]
        lines += [
            figure(f"send one by one, {way}", "a second", [ours for ours, _ in both]),
            figure(f"bare ZADD one by one, {way}", "a second", [bare for _, bare in both]),
            figure("… the one to the other", "x", [ours / bare for ours, bare in both], ">= 0.75"),
        ]
    return lines


def _send_each(meter: Meter) -> float:
    with Queue(meter.fresh()) as queue:
        queue.send("t", BODY, delay=900)
        return _rate(SINGLE, lambda: [queue.send("t", BODY, delay=900) for _ in range(SINGLE)])


def _zadd_each(meter: Meter) -> float:
    meter.empty()
    return _rate(SINGLE, lambda: [meter.client.zadd("bare", {_member(): time.time() + 900}) for _ in range(SINGLE)])


async def _send_each_async(meter: Meter) -> float:
    async with AsyncQueue(meter.fresh()) as queue:
        await queue.send("t", BODY, delay=900)
        began = time.perf_counter()
        for _ in range(SINGLE):
            await queue.send("t", BODY, delay=900)
        return SINGLE / (time.perf_counter() - began)


async def _zadd_each_async(meter: Meter) -> float:
    meter.empty()
    async with redis.asyncio.Redis.from_url(meter.url) as client:
        await client.ping()
        began = time.perf_counter()
        for _ in range(SINGLE):
            await client.zadd("bare", {_member(): time.time() + 900})
        return SINGLE / (time.perf_counter() - began)


def _member() -> bytes:
    return uuid.uuid4().hex.encode() + PLAIN

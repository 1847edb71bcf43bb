"""The Redis engine through the public API, with bodies of 100 bytes, on a server that shares the machine's cores with us.

Beside it, interleaved, a bare loop of redis-py that does what home-made delay queues do: one ZADD a message.
"""

import asyncio
import time
import uuid

import msgspec

from benchmarks.costs import Cost, figures, load
from benchmarks.measure import Figure, figure
from benchmarks.redis_meter import Meter
from benchmarks.throughput import BODY, drain, rates, send_from_coroutines, send_many, send_one_by_one, with_worker
from bide import Queue
from tests.servers.redis import RedisServer

MANY = 100_000
EACH = 100
ONE_BY_ONE = 5_000
SEND, ZADD = "send one by one, sync", "bare ZADD one by one, redis-py"


def run() -> list[Figure]:
    with RedisServer() as server:
        meter = Meter(server)
        return [*_rates(meter), load()]


def _rates(meter: Meter) -> list[Figure]:
    costs = rates(
        {
            "send_many": lambda: asyncio.run(send_many(meter, MANY)),
            "send from 1,000 coroutines": lambda: asyncio.run(send_from_coroutines(meter, EACH)),
            SEND: lambda: send_one_by_one(meter, ONE_BY_ONE),
            ZADD: lambda: _zadd(meter),
            "receive + ack in hundreds, async": lambda: asyncio.run(drain(meter, MANY)),
            "receive + ack in hundreds, sync": lambda: _drain_sync(meter),
            **with_worker(meter, MANY),
        }
    )
    bars = {
        "send_many": ">= 150,000",
        "send from 1,000 coroutines": ">= 80,000",
        "worker, async handlers": ">= 50,000",
    }
    ratios = [ours.rate / bare.rate for ours, bare in zip(costs[SEND], costs[ZADD], strict=True)]
    lines = [line for name, each in costs.items() for line in figures(name, each, bars.get(name, ""))]
    return [*lines, figure("send one by one, to a bare ZADD", "%", [100 * ratio for ratio in ratios], ">= 60")]


def _zadd(meter: Meter) -> Cost:
    meter.empty()
    plain = msgspec.json.encode(BODY)
    meter.start()
    for _ in range(ONE_BY_ONE):
        meter.client.zadd("bare", {uuid.uuid4().hex.encode() + plain: time.time() + 900})
    return meter.stop(ONE_BY_ONE)


def _drain_sync(meter: Meter) -> Cost:
    with Queue(meter.fresh()) as queue:
        queue.send_many("t", [BODY] * MANY)
        meter.start()
        while deliveries := queue.receive("t", limit=100):
            queue.ack_many(deliveries)
        return meter.stop(MANY)

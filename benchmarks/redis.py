"""The Redis engine through the public API, with bodies of 100 bytes, on a server that shares the machine's cores with us.

Beside it, interleaved, a bare loop of redis-py that does what home-made delay queues do: one ZADD a message.
"""

import asyncio
import time
import uuid
from collections.abc import Callable

import msgspec

from benchmarks.lateness import Loop, in_loop, loops
from benchmarks.measure import RUNS, Figure, figure
from benchmarks.redis_costs import Cost, Meter, body, figures, load
from bide import AsyncQueue, Queue, Worker
from tests.servers.redis import RedisServer

BODY = body()
MANY = 100_000
SENDERS, EACH = 1_000, 100
ONE_BY_ONE = 5_000
SEND, ZADD = "send one by one, sync", "bare ZADD one by one, redis-py"


def run() -> list[Figure]:
    with RedisServer() as server:
        meter = Meter(server)
        return [*_rates(meter), load()]


def _rates(meter: Meter) -> list[Figure]:
    work: dict[str, Callable[[], Cost]] = {
        "send_many": lambda: asyncio.run(_send_many(meter)),
        "send from 1,000 coroutines": lambda: asyncio.run(_coroutines(meter)),
        SEND: lambda: _one_by_one(meter),
        ZADD: lambda: _zadd(meter),
        "receive + ack in hundreds, async": lambda: asyncio.run(_drain(meter)),
        "receive + ack in hundreds, sync": lambda: _drain_sync(meter),
        **{f"worker, async handlers{name}": _work(meter, loop) for name, loop in loops().items()},
    }
    bars = {
        "send_many": ">= 150,000",
        "send from 1,000 coroutines": ">= 80,000",
        "worker, async handlers": ">= 50,000",
    }
    costs: dict[str, list[Cost]] = {name: [] for name in work}
    for _ in range(RUNS):
        for name, each in work.items():
            meter.empty()
            costs[name].append(each())
    ratios = [ours.rate / bare.rate for ours, bare in zip(costs[SEND], costs[ZADD], strict=True)]
    lines = [line for name, each in costs.items() for line in figures(name, each, bars.get(name, ""))]
    return [*lines, figure("send one by one, to a bare ZADD", "%", [100 * ratio for ratio in ratios], ">= 60")]


async def _send_many(meter: Meter) -> Cost:
    async with AsyncQueue(meter.url) as queue:
        items = [BODY] * MANY
        meter.start()
        await queue.send_many("t", items)
        return meter.stop(MANY)


async def _coroutines(meter: Meter) -> Cost:
    async with AsyncQueue(meter.url) as queue:

        async def sender() -> None:
            for _ in range(EACH):
                await queue.send("t", BODY, delay=900)

        meter.start()
        await asyncio.gather(*(sender() for _ in range(SENDERS)))
        return meter.stop(SENDERS * EACH)


def _one_by_one(meter: Meter) -> Cost:
    with Queue(meter.url) as queue:
        queue.send("t", BODY, delay=900)  # connected
        meter.start()
        for _ in range(ONE_BY_ONE):
            queue.send("t", BODY, delay=900)
        return meter.stop(ONE_BY_ONE)


def _zadd(meter: Meter) -> Cost:
    plain = msgspec.json.encode(BODY)
    meter.start()
    for _ in range(ONE_BY_ONE):
        meter.client.zadd("bare", {uuid.uuid4().hex.encode() + plain: time.time() + 900})
    return meter.stop(ONE_BY_ONE)


async def _drain(meter: Meter) -> Cost:
    async with AsyncQueue(meter.url) as queue:
        await queue.send_many("t", [BODY] * MANY)
        meter.start()
        while deliveries := await queue.receive("t", limit=100):
            await queue.ack_many(deliveries)
        return meter.stop(MANY)


def _drain_sync(meter: Meter) -> Cost:
    with Queue(meter.url) as queue:
        queue.send_many("t", [BODY] * MANY)
        meter.start()
        while deliveries := queue.receive("t", limit=100):
            queue.ack_many(deliveries)
        return meter.stop(MANY)


def _work(meter: Meter, loop: Loop) -> Callable[[], Cost]:
    def work() -> Cost:
        cost: Cost = in_loop(loop, _worker(meter))
        return cost

    return work


async def _worker(meter: Meter) -> Cost:
    queue = AsyncQueue(meter.url)
    left, all_done = MANY, asyncio.Event()

    @queue.task("t")
    async def handle(order: int, customer: str, note: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    async with queue:
        await queue.send_many("t", [BODY] * MANY)
        meter.start()
        async with Worker(queue) as worker:
            await all_done.wait()
            for _ in iter(lambda: worker.health().running, 0):  # until the engine has answered the last end
                await asyncio.sleep(0.001)
            cost = meter.stop(MANY)
            stats = await queue.stats("t")
            assert not stats.leased
            assert not stats.pending
    return cost

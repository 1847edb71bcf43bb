"""The PostgreSQL engine through the public API, with bodies of 100 bytes, on a server that shares the machine's cores with us.

The server syncs each commit. Beside it, by turns on the same server, Procrastinate's worker with messages that are due already.
"""

import asyncio

from benchmarks.lateness import Loop, in_loop, loops, of_sleep, of_worker, part
from benchmarks.measure import RUNS, Figure, figure
from benchmarks.postgres_meter import Meter
from benchmarks.postgres_rival import workers
from benchmarks.redis_costs import Cost, body, figures, load
from bide import AsyncQueue, Queue, Worker
from tests.servers.postgres import PostgresServer

BODY = body()
MANY = 100_000
SENDERS, EACH = 1_000, 30
ONE_BY_ONE = 2_000
WORKED = 30_000
LATE, RATE = 1_000, 100  # messages, and how many a second


def run() -> list[Figure]:
    with PostgresServer(fsync=True) as server:
        meter = Meter(server)
        return [*_rates(meter), *_lateness(meter), *workers(meter, WORKED), load()]


def _rates(meter: Meter) -> list[Figure]:
    work = {
        "send_many": lambda: asyncio.run(_send_many(meter)),
        "send from 1,000 coroutines": lambda: asyncio.run(_coroutines(meter)),
        "send one by one, sync": lambda: _one_by_one(meter),
        "receive + ack in hundreds, async": lambda: asyncio.run(_drain(meter)),
    }
    for name, loop in loops().items():
        work[f"worker, async handlers{name}"] = lambda loop=loop: _work(meter, loop)
    bars = {
        "send_many": ">= 30,000",
        "send from 1,000 coroutines": ">= 10,000",
        "worker, async handlers": ">= 5,000",
    }
    costs: dict[str, list[Cost]] = {name: [] for name in work}
    for _ in range(RUNS):
        for name, each in work.items():
            costs[name].append(each())
    return [line for name, each in costs.items() for line in figures(name, each, bars.get(name, ""))]


async def _send_many(meter: Meter) -> Cost:
    async with AsyncQueue(meter.fresh()) as queue:
        await queue.send_many("t", [BODY] * 1_000)  # connected
        items = [BODY] * MANY
        meter.start()
        await queue.send_many("t", items)
        return meter.stop(MANY)


async def _coroutines(meter: Meter) -> Cost:
    async with AsyncQueue(meter.fresh()) as queue:
        await queue.send("t", BODY, delay=900)

        async def sender() -> None:
            for _ in range(EACH):
                await queue.send("t", BODY, delay=900)

        meter.start()
        await asyncio.gather(*(sender() for _ in range(SENDERS)))
        return meter.stop(SENDERS * EACH)


def _one_by_one(meter: Meter) -> Cost:
    with Queue(meter.fresh()) as queue:
        queue.send("t", BODY, delay=900)
        meter.start()
        for _ in range(ONE_BY_ONE):
            queue.send("t", BODY, delay=900)
        return meter.stop(ONE_BY_ONE)


async def _drain(meter: Meter) -> Cost:
    async with AsyncQueue(meter.fresh()) as queue:
        await queue.send_many("t", [BODY] * WORKED)
        meter.start()
        while deliveries := await queue.receive("t", limit=100):
            await queue.ack_many(deliveries)
        return meter.stop(WORKED)


def _work(meter: Meter, loop: Loop) -> Cost:
    cost: Cost = in_loop(loop, _worker(meter))
    return cost


async def _worker(meter: Meter) -> Cost:
    queue = AsyncQueue(meter.fresh())
    left, all_done = WORKED, asyncio.Event()

    @queue.task("t")
    async def handle(order: int, customer: str, note: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    async with queue:
        await queue.send_many("t", [BODY] * WORKED)
        meter.start()
        async with Worker(queue) as worker:
            await all_done.wait()
            for _ in iter(lambda: worker.health().running, 0):  # until the engine has answered the last end
                await asyncio.sleep(0.001)
            cost = meter.stop(WORKED)
            stats = await queue.stats("t")
            assert not stats.leased
            assert not stats.pending
    return cost


def _lateness(meter: Meter) -> list[Figure]:
    sleeps: list[list[float]] = []
    lates: dict[str, list[list[float]]] = {name: [] for name in loops()}
    for _ in range(3):
        sleeps.append(of_sleep(LATE, RATE))
        for name, loop in loops().items():
            lates[name].append(in_loop(loop, of_worker(meter.fresh(), LATE, RATE)))
    named = {"time.sleep": sleeps, **{f"worker{name}": each for name, each in lates.items()}}
    return [
        figure(f"late at {RATE} a second, {name}, {what}", "ms", [part(each, share) for each in runs], bar)
        for name, runs in named.items()
        for what, share, bar in (("p50", 0.5, ""), ("p99", 0.99, "<= 10"), ("earliest", 0.0, ">= 0"))
    ]

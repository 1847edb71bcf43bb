"""The PostgreSQL engine through the public API, with bodies of 100 bytes, on a server that shares the machine's cores with us.

The server syncs each commit. Beside it, by turns on the same server, Procrastinate's worker with messages that are due already.
"""

import asyncio

from benchmarks.costs import figures, load
from benchmarks.lateness import in_loop, loops, of_sleep, of_worker, part
from benchmarks.measure import Figure, figure
from benchmarks.postgres_meter import Meter
from benchmarks.postgres_rival import workers
from benchmarks.throughput import drain, rates, send_from_coroutines, send_many, send_one_by_one, with_worker
from tests.servers.postgres import PostgresServer

MANY = 100_000
EACH = 30
ONE_BY_ONE = 2_000
WORKED = 30_000
LATE, RATE = 1_000, 100  # messages, and how many a second


def run() -> list[Figure]:
    with PostgresServer(fsync=True) as server:
        meter = Meter(server)
        return [*_rates(meter), *_lateness(meter), *workers(meter, WORKED), load()]


def _rates(meter: Meter) -> list[Figure]:
    costs = rates(
        {
            "send_many": lambda: asyncio.run(send_many(meter, MANY)),
            "send from 1,000 coroutines": lambda: asyncio.run(send_from_coroutines(meter, EACH)),
            "send one by one, sync": lambda: send_one_by_one(meter, ONE_BY_ONE),
            "receive + ack in hundreds, async": lambda: asyncio.run(drain(meter, WORKED)),
            **with_worker(meter, WORKED),
        }
    )
    bars = {
        "send_many": ">= 30,000",
        "send from 1,000 coroutines": ">= 10,000",
        "worker, async handlers": ">= 5,000",
    }
    return [line for name, each in costs.items() for line in figures(name, each, bars.get(name, ""))]


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

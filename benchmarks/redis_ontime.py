"""What a message costs the Redis server when workers keep up with what falls due: as real workers claim, in real time.

The messages are there before. What an idle worker costs the server in the same time is taken off its CPU, not off the calls.
"""

import asyncio
import random
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

from benchmarks.costs import body, load
from benchmarks.measure import Figure, figure
from benchmarks.redis_meter import Meter
from bide import AsyncQueue, Outgoing, Worker
from tests.servers.redis import RedisServer

RUNS = 3
RATES = (10, 100, 1_000)  # messages a second
SECONDS = 10.0
SETTLED = 3.0  # seconds from a worker's start until it has nothing to do
CLIENTS = {"evalsha", "eval", "blpop", "ping", "hello", "client", "script", "select", "info", "flushall", "memory"}
"""What clients send, but for this benchmark's own; the rest is called by scripts."""


class Kept(NamedTuple):
    server: float  # µs of its CPU a message, above idling
    calls: float  # of Redis, by scripts, a message
    scripts: float  # and scripts a message


def run() -> list[Figure]:
    with RedisServer() as server:
        meter = Meter(server)
        idle = [asyncio.run(_idling(meter)) for _ in range(RUNS)]
        seen: dict[int, list[Kept]] = {rate: [] for rate in RATES}
        for cpu in idle:
            for rate, each in seen.items():
                each.append(asyncio.run(_keeping_up(meter, rate, cpu)))
        lines = []
        for rate, each in seen.items():
            lines.append(figure(f"{rate:,}/s: claim + ack on time, server", "µs", [one.server for one in each]))
            lines.append(figure("… calls of Redis a message", "", [one.calls for one in each]))
            lines.append(figure("… scripts a message", "", [one.scripts for one in each]))
        return [*lines, figure("an idle worker, server", "µs/s", [1e6 * cpu for cpu in idle]), load()]


async def _idling(meter: Meter) -> float:
    """Seconds of the server's CPU a second."""
    queue, _ = await _queue(meter, 0, 1)
    async with queue, Worker(queue):
        await asyncio.sleep(SETTLED)
        before = meter.server()
        await asyncio.sleep(SECONDS)
        return (meter.server() - before) / SECONDS


async def _keeping_up(meter: Meter, rate: int, idle: float) -> Kept:
    many = int(rate * SECONDS)
    queue, all_done = await _queue(meter, many, rate)
    async with queue, Worker(queue) as worker:
        await asyncio.sleep(SETTLED)
        before, calls, begin = meter.server(), _calls(meter), time.monotonic()
        await all_done.wait()
        for _ in iter(lambda: worker.health().running, 0):  # until the engine has answered the last end
            await asyncio.sleep(0.001)
        spent = meter.server() - before - idle * (time.monotonic() - begin)
        after = _calls(meter)
    return Kept(1e6 * spent / many, (after[0] - calls[0]) / many, (after[1] - calls[1]) / many)


async def _queue(meter: Meter, many: int, rate: int) -> tuple[AsyncQueue, asyncio.Event]:
    """With messages at random times in the stretch that begins when a worker that starts now has settled."""
    meter.empty()
    queue = AsyncQueue(meter.url)
    left, all_done = many, asyncio.Event()

    @queue.task("t")
    async def handle(order: int = 0, customer: str = "", note: str = "") -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    chance, begin = random.Random(1), time.time() + SETTLED + 1
    dues = (datetime.fromtimestamp(begin + chance.random() * many / rate, UTC) for _ in range(many))
    await queue.send_many("t", [Outgoing(body(), at=due) for due in dues])
    await queue.send_many("t", [Outgoing(body(), delay="1h")] * 10_000)
    return queue, all_done


def _calls(meter: Meter) -> tuple[int, int]:
    """Calls of Redis by scripts, and scripts."""
    stats: dict[str, Any] = meter.client.info("commandstats")
    counts = {name.removeprefix("cmdstat_").partition("|")[0]: 0 for name in stats}
    for name, numbers in stats.items():
        counts[name.removeprefix("cmdstat_").partition("|")[0]] += numbers["calls"]
    return sum(count for name, count in counts.items() if name not in CLIENTS), counts.get("evalsha", 0)

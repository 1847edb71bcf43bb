"""A million messages that are due in the same second, on Redis, and 99 other topics with one message each in that second.

One worker serves them all. The others must not wait for the million, and no script may hold up the server.
"""

import asyncio
import math
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

from benchmarks.costs import Cost, body, figures, load
from benchmarks.measure import Figure, figure
from benchmarks.redis_meter import Meter
from bide import AsyncQueue, Outgoing, Worker, current
from tests.servers.redis import RedisServer

RUNS = 3
LOUD, QUIET = 1_000_000, 99
PART = 50_000
AHEAD = 20.0  # seconds from the first send to the due instant; twice as many when that was not enough


class Burst(NamedTuple):
    served: float  # ms after the second began, until the last of the quiet topics had its message
    cost: Cost  # from a moment before the second until all were delivered
    again: int  # deliveries beyond the first
    longest: float  # ms of a script
    usual: float  # ms that 99 of 100 scripts stay below


def run() -> list[Figure]:
    bursts = []
    for _ in range(RUNS):
        with RedisServer() as server:
            bursts.append(asyncio.run(_burst(Meter(server))))
    return [
        figure(
            f"{QUIET} topics beside {LOUD:,} of that second, all served", "ms", [each.served for each in bursts], "<= 1,000"
        ),
        *figures("messages of the burst delivered", [each.cost for each in bursts]),
        figure("messages delivered again", "", [each.again for each in bursts]),
        figure("longest script", "ms", [each.longest for each in bursts], "<= 10"),
        figure("script, p99", "ms", [each.usual for each in bursts]),
        load(),
    ]


async def _burst(meter: Meter) -> Burst:
    queue = AsyncQueue(meter.url)
    quiet = {f"quiet.{number}" for number in range(QUIET)}
    served: list[float] = []
    left, all_done = LOUD + QUIET, asyncio.Event()

    async def handle(order: int, customer: str, note: str) -> None:
        nonlocal left
        left -= 1
        if current().topic in quiet:
            served.append(time.time())
        if not left:
            all_done.set()

    queue.task("loud", aliases=sorted(quiet))(handle)
    async with queue:
        due = await _send(queue, meter, sorted(quiet))
        meter.client.config_set("slowlog-log-slower-than", 1_000)
        meter.client.config_set("slowlog-max-len", 1_000_000)
        meter.client.config_resetstat()
        meter.start()
        async with Worker(queue):
            await all_done.wait()
            cost = meter.stop(LOUD + QUIET)
            cost = cost._replace(rate=(LOUD + QUIET) / (time.time() - due))
            slow: list[Any] = meter.client.slowlog_get(1_000_000)
            for _ in range(100):  # the last acks are on their way
                stats = await queue.stats()
                if not stats.pending and not stats.leased:
                    break
                await asyncio.sleep(0.2)
            else:
                raise AssertionError(f"{stats.pending:,} are pending and {stats.leased:,} leased when all were delivered")
    scripts = [each["duration"] / 1_000 for each in slow if each["command"].startswith(b"EVALSHA")]
    usual: dict[str, Any] = meter.client.info("latencystats")
    return Burst(
        served=(max(served) - due) * 1_000,
        cost=cost,
        again=-left,
        longest=max(scripts, default=0.0),
        usual=float(usual["latency_percentiles_usec_evalsha"]["p99"]) / 1_000,
    )


async def _send(queue: AsyncQueue, meter: Meter, quiet: list[str]) -> int:
    """The second in which they are due. It begins when all have been sent."""
    ahead = AHEAD
    while True:
        due = math.ceil(time.time() + ahead)
        outgoing = Outgoing(body(), at=datetime.fromtimestamp(due, UTC))
        for _ in range(0, LOUD, PART):
            await queue.send_many("loud", [outgoing] * PART)
        for topic in quiet:
            await queue.send_many(topic, [outgoing])
        if time.time() < due - 2:
            return due
        meter.empty()
        ahead *= 2

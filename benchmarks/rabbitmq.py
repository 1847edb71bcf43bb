"""The RabbitMQ engine through the public API, with bodies of 100 bytes, on a broker that shares the machine's cores with us.

Beside it, by turns on the same broker: the driver aiormq without bide, on a quorum queue, with confirms and acknowledgements.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

from benchmarks.costs import HOUR, Cost, body, figures, load, spread
from benchmarks.lateness import part
from benchmarks.measure import Figure, figure
from benchmarks.rabbitmq_meter import Meter, bare
from benchmarks.throughput import rates, work_off
from bide import AsyncQueue
from tests.servers.rabbitmq import RabbitServer

MANY = 10_000
AT_ONCE = 1_000  # messages in one call of send_many
CLAIMED = 100  # messages that a worker, a receiver and the bare consumer have in hand
SINGLE = 1_000
PLAIN_SEND, PLAIN_CONSUME = "aiormq, publish with confirms", "aiormq, consume + ack"
SEND, LATER, RECEIVE, WORKER = "send_many", "send_many, delays of 1 to 24 hours", "receive + ack in hundreds", "worker"


def run() -> list[Figure]:
    with RabbitServer() as server:
        meter = Meter(server)
        return [*_rates(meter), *_single(meter), load()]


def _rates(meter: Meter) -> list[Figure]:
    backlog = _Backlog(meter)
    costs = rates(
        {
            SEND: lambda: asyncio.run(backlog.send()),
            PLAIN_SEND: lambda: asyncio.run(backlog.publish()),
            RECEIVE: lambda: asyncio.run(backlog.receive()),
            PLAIN_CONSUME: lambda: asyncio.run(backlog.consume()),
            WORKER: lambda: asyncio.run(backlog.work_off()),
            LATER: lambda: asyncio.run(_send_later(meter)),
        }
    )
    lines = [line for name, each in costs.items() for line in figures(name, each)]
    for name, plain in ((SEND, PLAIN_SEND), (LATER, PLAIN_SEND), (RECEIVE, PLAIN_CONSUME), (WORKER, PLAIN_CONSUME)):
        pairs = list(zip(costs[name], costs[plain], strict=True))
        lines.append(figure(f"{name}, to aiormq: rate", "%", [100 * ours.rate / its.rate for ours, its in pairs]))
        lines.append(figure("… client's CPU", "%", [100 * ours.client / its.client for ours, its in pairs]))
    return lines


class _Backlog:
    """Sends messages that are due at once, and has them worked off. Each part leaves what the next one needs."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._topic = self._queue = ""

    async def send(self) -> Cost:
        self._topic = self._meter.topic()
        async with AsyncQueue(self._meter.url) as queue:
            await _connected(queue, self._topic)
            return await self._measured(lambda: _send(queue, self._topic))

    async def publish(self) -> Cost:
        self._queue = self._meter.topic()
        async with bare(self._meter.url, self._queue) as channel:
            return await self._measured(lambda: channel.publish_many(MANY))

    async def receive(self) -> Cost:
        async with AsyncQueue(self._meter.url) as queue:
            return await self._measured(lambda: _receive(queue, self._topic))

    async def consume(self) -> Cost:
        async with bare(self._meter.url, self._queue) as channel:
            return await self._measured(lambda: channel.consume(MANY, CLAIMED))

    async def work_off(self) -> Cost:
        topic = self._meter.topic()
        async with AsyncQueue(self._meter.url) as queue:
            await _send(queue, topic)
            self._meter.start()
            return await work_off(queue, MANY, lambda: self._meter.stop(MANY), topic)

    async def _measured(self, work: Callable[[], Awaitable[None]]) -> Cost:
        self._meter.start()
        await work()
        return self._meter.stop(MANY)


async def _connected(queue: AsyncQueue, topic: str) -> None:
    await queue.send(topic, body())
    for delivery in await queue.receive(topic, wait="10s"):
        await delivery.ack()


async def _send(queue: AsyncQueue, topic: str) -> None:
    for _ in range(0, MANY, AT_ONCE):
        await queue.send_many(topic, [body()] * AT_ONCE)


async def _send_later(meter: Meter) -> Cost:
    topic = meter.topic()
    async with AsyncQueue(meter.url) as queue:
        await _connected(queue, topic)
        [messages] = spread(MANY, HOUR, 23 * HOUR, body())
        meter.start()
        for first in range(0, MANY, AT_ONCE):
            await queue.send_many(topic, messages[first : first + AT_ONCE])
        return meter.stop(MANY)


async def _receive(queue: AsyncQueue, topic: str) -> None:
    left = MANY
    while left:
        deliveries = await queue.receive(topic, limit=CLAIMED, wait="10s")
        await queue.ack_many(deliveries)
        left -= len(deliveries)


def _single(meter: Meter) -> list[Figure]:
    """One at a time: ours and the driver's by turns."""
    runs = [asyncio.run(_latencies(meter)) for _ in range(3)]
    return [
        figure(f"{name}, {what}", "ms", [part(each[place], share) for each in runs])
        for place, name in enumerate(("send", "send with a delay", "aiormq, publish and wait for the confirm"))
        for what, share in (("p50", 0.5), ("p99", 0.99))
    ]


async def _latencies(meter: Meter) -> list[list[float]]:
    topic = meter.topic()
    seen: list[list[float]] = [[], [], []]
    async with AsyncQueue(meter.url) as queue, bare(meter.url, meter.topic()) as channel:
        await _connected(queue, topic)
        await channel.publish()
        for _ in range(SINGLE):
            times = [time.perf_counter()]
            await queue.send(topic, body())
            times.append(time.perf_counter())
            await queue.send(topic, body(), delay=HOUR)
            times.append(time.perf_counter())
            await channel.publish()
            times.append(time.perf_counter())
            for place, (begin, end) in enumerate(itertools.pairwise(times)):
                seen[place].append(1000 * (end - begin))
    return [sorted(each) for each in seen]

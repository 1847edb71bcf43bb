"""Workers on RabbitMQ that have nothing to do: what they cost themselves and the broker, and what they ask of it."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pamqp.frame

from benchmarks.costs import body, load, own
from benchmarks.measure import Figure, figure
from benchmarks.rabbitmq_meter import Meter
from bide import AsyncQueue, Worker
from tests.servers.rabbitmq import RabbitServer

RUNS = 3
IDLE = 30.0  # seconds
SETTLED = 10.0  # seconds, until a worker that has handled its messages has found nothing to do
TOPICS = (1, 100)


def run() -> list[Figure]:
    with RabbitServer() as server:
        meter = Meter(server)
        asyncio.run(_made(meter))
        nobody = [_nobody(meter) for _ in range(RUNS)]
        lines = [figure("nobody connected: the broker's CPU", "percent", nobody)]
        for topics in TOPICS:
            runs = [asyncio.run(_idle(meter, topics)) for _ in range(RUNS)]
            name = f"an idle worker with {topics} topic{'s' if topics > 1 else ''}"
            lines.append(figure(f"{name}: frames to the broker", "a second", [sent.total() / IDLE for sent, _, _ in runs]))
            kinds = sorted({kind for sent, _, _ in runs for kind in sent})
            lines += [figure(f"    {kind}", "a second", [sent[kind] / IDLE for sent, _, _ in runs]) for kind in kinds]
            lines.append(figure("… its CPU", "percent", [mine for _, mine, _ in runs]))
            lines.append(figure("… the broker's CPU", "percent", [its for _, _, its in runs]))
        return [*lines, load()]


async def _made(meter: Meter) -> None:
    async with AsyncQueue(meter.url) as queue:
        await queue.send("other", body())


def _nobody(meter: Meter) -> float:
    time.sleep(SETTLED)
    before = meter.server()
    time.sleep(IDLE)
    return 100 * (meter.server() - before) / IDLE


async def _idle(meter: Meter, topics: int) -> tuple[Counter[str], float, float]:
    """Frames that were sent, and percent of a core: the worker's and the broker's."""
    queue = AsyncQueue(meter.url)
    names = [f"idle{number}" for number in range(topics)]
    left, all_done = topics, asyncio.Event()

    async def handle() -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    for name in names:
        queue.task(name)(handle)
    async with queue, Worker(queue):
        for name in names:
            await queue.send(name)
        await all_done.wait()  # it receives all of them now
        await asyncio.sleep(SETTLED)
        cpu, brokers = own(), meter.server()
        with _counted() as sent:
            await asyncio.sleep(IDLE)
        return sent, 100 * (own() - cpu) / IDLE, 100 * (meter.server() - brokers) / IDLE


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    """Counts what the driver puts into frames, by their kind."""
    sent: Counter[str] = Counter()
    marshal = pamqp.frame.marshal

    def counting(frame: Any, channel: int) -> bytes:
        sent[frame.name] += 1
        return marshal(frame, channel)

    pamqp.frame.marshal = counting
    try:
        yield sent
    finally:
        pamqp.frame.marshal = marshal

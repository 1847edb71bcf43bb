"""How late messages come on RabbitMQ: delays of 1 to 60 seconds, sent steadily, and one behind others that are due much later.

`python -m benchmarks.rabbitmq_late URL COUNT` is a receiver: it prints, in ms, how late each message was, and when it is ready.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.costs import HOUR, body, load
from benchmarks.lateness import of_sleep, part
from benchmarks.measure import Figure, figure
from benchmarks.rabbitmq_meter import Meter
from bide import AsyncQueue, Outgoing, Worker, current
from bide.engines.rabbitmq.ladder import routing_key
from tests.servers.rabbitmq import RabbitServer

MANY, RATE = 10_000, 250  # messages, and how many of them a second
SHORTEST, LONGEST = 1.0, 60.0  # seconds
RUNS = 3  # of one message behind others
FAR = 100
BEHIND = 2.0  # seconds
LOOK = 0.02  # seconds between two looks at the disk
SHARES = (("earliest", 0.0, ">= 0"), ("p50", 0.5, ""), ("p99", 0.99, "<= 104"), ("p99.9", 0.999, ""))


def run() -> list[Figure]:
    with RabbitServer() as server:
        meter = Meter(server)
        behind = [asyncio.run(_behind(meter)) for _ in range(RUNS)]
        with _disk() as syncs:
            lates, steps, spent = _spread(meter)
        sleeps = of_sleep(MANY // 10, RATE)
        return [
            *(figure(f"late, delays of 1 to 60 s, {what}", "ms", [part(lates, share)], bar) for what, share, bar in SHARES),
            figure("… latest", "ms", [lates[-1]]),
            figure("… steps of the ladder", "", [steps]),
            figure("… the broker's CPU", "s", [spent]),
            figure(f"late, {BEHIND:.0f} s behind {FAR} messages of an hour", "ms", behind, ">= 0"),
            *(figure(f"late, time.sleep, {what}", "ms", [part(sleeps, share)]) for what, share, _ in SHARES[1:]),
            *(figure(f"fdatasync meanwhile, {what}", "ms", [part(sorted(syncs), share)]) for what, share, _ in SHARES[1:]),
            load(),
        ]


def _spread(meter: Meter) -> tuple[Sequence[float], float, float]:
    """Sorted, how late they came to a worker in a process of its own; how many steps one took; and the broker's CPU."""
    command = [sys.executable, "-m", "benchmarks.rabbitmq_late", meter.url, str(MANY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        receiver.stdout.readline()
        before = meter.server()
        steps = asyncio.run(_send(meter.url))
        lates = json.loads(receiver.stdout.readline())
        return sorted(lates), steps, meter.server() - before


@contextmanager
def _disk() -> Iterator[list[float]]:
    """How long the disk of temporary files, on which the broker is, takes to sync one block: its hops wait for that. In ms."""
    found: list[float] = []
    over = threading.Event()

    def look() -> None:
        with tempfile.TemporaryFile(buffering=0) as file:
            while not over.wait(LOOK):
                file.write(bytes(4096))
                begin = time.perf_counter()
                os.fdatasync(file.fileno())
                found.append(1000 * (time.perf_counter() - begin))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        over.set()
        looking.join()


async def _send(url: str) -> float:
    chance = random.Random(1)
    delays = [chance.uniform(SHORTEST, LONGEST) for _ in range(MANY)]
    async with AsyncQueue(url) as queue, asyncio.TaskGroup() as group:
        begin = time.monotonic()
        for number, delay in enumerate(delays):
            await asyncio.sleep(begin + number / RATE - time.monotonic())
            group.create_task(queue.send("t", body(), delay=delay))
    return sum(_steps(delay) for delay in delays) / MANY


def _steps(delay: float) -> int:
    """How many queues of the ladder a message with this delay passes through."""
    words = routing_key(round(delay * 1000), "t").split(".")
    return sum(word[0] in "sab" for word in words[: words.index("@")])


async def _behind(meter: Meter) -> float:
    topic = meter.topic()
    async with AsyncQueue(meter.url) as queue:
        await queue.send_many(topic, [Outgoing(body(), delay=HOUR)] * FAR)
        await queue.send(topic, body(), delay=BEHIND)
        [delivery] = await queue.receive(topic, wait=10 * BEHIND)
        late = time.time() * 1000 - delivery.due
        await delivery.ack()
    return late


async def _receive(url: str, many: int) -> None:
    queue = AsyncQueue(url)
    lates: list[float] = []
    all_done = asyncio.Event()

    @queue.task("t")
    async def handle(order: int, customer: str, note: str) -> None:
        lates.append(time.time() * 1000 - current().due)
        if len(lates) == many:
            all_done.set()

    async with queue, Worker(queue):
        await queue.send("warm", body())
        print("ready", flush=True)
        await all_done.wait()
    print(json.dumps(lates), flush=True)


if __name__ == "__main__":
    asyncio.run(_receive(sys.argv[1], int(sys.argv[2])))

"""What a queue on a server sends, receives and works off a second through the public API, with bodies of 100 bytes."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from benchmarks.costs import Cost, Meter, body
from benchmarks.lateness import Loop, in_loop, loops
from benchmarks.measure import RUNS
from bide import AsyncQueue, Queue, Worker

BODY = body()
SENDERS = 1_000
T = TypeVar("T")


def rates(work: Mapping[str, Callable[[], Cost]]) -> dict[str, list[Cost]]:
    """What is compared takes turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in work}
    for _ in range(RUNS):
        for name, each in work.items():
            costs[name].append(each())
    return costs


def with_worker(meter: Meter, many: int) -> dict[str, Callable[[], Cost]]:
    """A worker, by each event loop that is installed."""

    def by(loop: Loop) -> Cost:
        cost: Cost = in_loop(loop, _worker(meter, many))
        return cost

    return {f"worker, async handlers{name}": lambda loop=loop: by(loop) for name, loop in loops().items()}  # type: ignore[misc]


async def send_many(meter: Meter, many: int) -> Cost:
    async with AsyncQueue(meter.fresh()) as queue:
        await queue.send_many("t", [BODY] * 1_000)  # connected
        items = [BODY] * many
        meter.start()
        await queue.send_many("t", items)
        return meter.stop(many)


async def send_from_coroutines(meter: Meter, each: int) -> Cost:
    async with AsyncQueue(meter.fresh()) as queue:
        await queue.send("t", BODY, delay=900)

        async def sender() -> None:
            for _ in range(each):
                await queue.send("t", BODY, delay=900)

        meter.start()
        await asyncio.gather(*(sender() for _ in range(SENDERS)))
        return meter.stop(SENDERS * each)


def send_one_by_one(meter: Meter, many: int) -> Cost:
    with Queue(meter.fresh()) as queue:
        queue.send("t", BODY, delay=900)
        meter.start()
        for _ in range(many):
            queue.send("t", BODY, delay=900)
        return meter.stop(many)


async def drain(meter: Meter, many: int) -> Cost:
    async with AsyncQueue(meter.fresh()) as queue:
        await queue.send_many("t", [BODY] * many)
        meter.start()
        while deliveries := await queue.receive("t", limit=100):
            await queue.ack_many(deliveries)
        return meter.stop(many)


async def _worker(meter: Meter, many: int) -> Cost:
    async with AsyncQueue(meter.fresh()) as queue:
        await queue.send_many("t", [BODY] * many)
        meter.start()
        cost = await work_off(queue, many, lambda: meter.stop(many))
        stats = await queue.stats("t")
        assert not stats.leased
        assert not stats.pending
    return cost


async def work_off(queue: AsyncQueue, many: int, stop: Callable[[], T], topic: str = "t") -> T:
    """Have a worker handle so many messages that wait, and `stop` measuring when the engine has answered the last end."""
    left, all_done = many, asyncio.Event()

    @queue.task(topic)
    async def handle(order: int, customer: str, note: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    async with Worker(queue) as worker:
        await all_done.wait()
        for _ in iter(lambda: worker.health().running, 0):
            await asyncio.sleep(0.001)
        return stop()


class Drained(NamedTuple):
    """What a worker process did: messages a second, and µs of its CPU a message."""

    rate: float
    cpu: float


def worker_process(url: str, many: int, concurrency: int) -> Drained:
    """Have one `bide worker` process, with a handler that does nothing, handle so many messages that wait."""
    command = [sys.executable, "-m", "bide", "worker", "benchmarks.drained:queue", "--concurrency", str(concurrency)]
    told = {"BIDE_BENCH_URL": url, "BIDE_BENCH_MANY": str(many)}
    with subprocess.Popen(
        command, env=os.environ | told, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as worker:
        assert worker.stdout is not None
        line = next(line for line in worker.stdout if line.startswith("{"))
        worker.terminate()
    said = json.loads(line)
    return Drained(many / said["seconds"], 1e6 * said["cpu"] / many)

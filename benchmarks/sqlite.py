"""The SQLite engine through the public API, with bodies of about 100 bytes, on the disk that holds the temporary folder."""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import RUNS, Figure, clock, figure, rates
from bide import AsyncQueue, Outgoing, Queue

BODY = {"order": 42, "customer": "c-1234567", "note": "x" * 50}
MANY = 20_000
SENDERS, EACH = 1_000, 20
PENDING = 1_000_000


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bide-bench-") as folder:
        count = iter(range(10**6))

        def fresh() -> str:
            return f"{folder}/{next(count)}.db"

        work: dict[str, Callable[[], int]] = {
            "send_many": lambda: asyncio.run(_send_many(fresh())),
            "send from 1,000 coroutines": lambda: asyncio.run(_coroutines(fresh())),
            "receive + ack in hundreds, async": lambda: asyncio.run(_drain(fresh())),
            "receive + ack in hundreds, sync": lambda: _drain_sync(fresh()),
            "send one by one, sync": lambda: _one_by_one(fresh()),
        }
        bars = {
            "send_many": ">= 100,000",
            "send from 1,000 coroutines": ">= 20,000",
            "receive + ack in hundreds, async": ">= 30,000",
            "receive + ack in hundreds, sync": ">= 30,000",
        }
        return [*rates(work, bars), *_growth(Path(folder)), *_lateness(fresh())]


async def _send_many(path: str) -> int:
    async with AsyncQueue(f"sqlite:///{path}") as queue:
        items = [BODY] * (5 * MANY)
        clock.start()
        await queue.send_many("t", items)
        clock.stop()
    return 5 * MANY


async def _coroutines(path: str) -> int:
    async with AsyncQueue(f"sqlite:///{path}") as queue:

        async def sender() -> None:
            for _ in range(EACH):
                await queue.send("t", BODY, delay=900)

        clock.start()
        await asyncio.gather(*(sender() for _ in range(SENDERS)))
        clock.stop()
    return SENDERS * EACH


async def _drain(path: str) -> int:
    async with AsyncQueue(f"sqlite:///{path}") as queue:
        await queue.send_many("t", [BODY] * MANY)
        clock.start()
        while deliveries := await queue.receive("t", limit=100):
            await queue.ack_many(deliveries)
        clock.stop()
    return MANY


def _drain_sync(path: str) -> int:
    with Queue(f"sqlite:///{path}") as queue:
        queue.send_many("t", [BODY] * MANY)
        clock.start()
        while deliveries := queue.receive("t", limit=100):
            queue.ack_many(deliveries)
        clock.stop()
    return MANY


def _one_by_one(path: str) -> int:
    with Queue(f"sqlite:///{path}") as queue:
        clock.start()
        for _ in range(1_000):
            queue.send("t", BODY, delay=900)
        clock.stop()
    return 1_000


def _growth(folder: Path) -> list[Figure]:
    """A claim of 100 with 10,000 pending and with a million, in turns; and the bytes that a pending message takes."""
    queues = {pending: Queue(f"sqlite:///{folder}/{pending}.db") for pending in (10_000, PENDING)}
    for pending, queue in queues.items():
        for first in range(0, pending, 100_000):
            spread = range(first, min(pending, first + 100_000))
            queue.send_many("t", [Outgoing(BODY, delay=3_600 + place % 86_400) for place in spread])
        queue.send_many("t", [BODY] * 100 * 10 * RUNS)
    times: dict[int, list[float]] = {pending: [] for pending in queues}
    for _ in range(10 * RUNS):
        for pending, queue in queues.items():
            begin = time.perf_counter()
            deliveries = queue.receive("t", limit=100)
            times[pending].append((time.perf_counter() - begin) * 1000)
            queue.ack_many(deliveries)
    for queue in queues.values():
        queue.close()
    size = os.path.getsize(folder / f"{PENDING}.db") / PENDING
    ratio = statistics.median(times[PENDING]) / statistics.median(times[10_000])
    return [
        *(figure(f"receive 100 of {pending:,} pending", "ms", values) for pending, values in times.items()),
        figure("… the ratio", "x", [ratio], "<= 1.5"),
        figure("file a pending message, body of 82 bytes", "bytes", [size]),
    ]


def _lateness(path: str) -> list[Figure]:
    lates = sorted(asyncio.run(_late(path)))
    half, most = lates[len(lates) // 2], lates[len(lates) * 99 // 100]
    return [
        figure("lateness at 100 a second, p50", "ms", [half], "<= 1.5"),
        figure("lateness at 100 a second, p99", "ms", [most], "<= 5"),
        figure("lateness at 100 a second, earliest", "ms", [lates[0]], ">= 0"),
    ]


async def _late(path: str, count: int = 1_000) -> list[float]:
    lates: list[float] = []
    async with AsyncQueue(f"sqlite:///{path}") as queue:

        async def produce() -> None:
            begin = time.monotonic()
            for number in range(count):
                await queue.send("t", number, delay=0.2)
                await asyncio.sleep(max(0.0, begin + number * 0.01 - time.monotonic()))

        producing = asyncio.create_task(produce())
        async for delivery in queue.listen("t"):
            lates.append(time.time() * 1000 - delivery.due)
            async with delivery:
                pass
            if len(lates) == count:
                break
        await producing
    return lates

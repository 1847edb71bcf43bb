"""The worker, end to end: messages that are due are claimed, their handler is called, and the last ack is stored.

The bodies are those of the other benchmarks, about 100 bytes, and become the handler's arguments. uvloop has lines of its
own when it is installed. SQLite is on the disk that holds the temporary folder.
"""

import asyncio
import itertools
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from benchmarks import worker_memory
from benchmarks.lateness import Loop, in_loop, loops, of_sleep, of_worker, part
from benchmarks.measure import RUNS, Figure, clock, figure, rates
from bide import AsyncQueue, Outgoing, current
from bide.worker import Worker

BODY = {"order": 42, "customer": "c-1234567", "note": "x" * 50}
MEMORY, FILE = "memory", "SQLite"
MANY = {MEMORY: 100_000, FILE: 20_000}
BARS = {
    f"{MEMORY}, async handlers": ">= 80,000",
    f"{FILE}, async handlers": ">= 10,000",
    f"{FILE}, sync handlers": ">= 5,000",
}
LATE = 300  # messages in one run
RATE = 100  # a second
LOUD, QUIET = 100_000, 99
SLOW = 60.0  # seconds that a slow handler takes: more than anybody waits here
IDLE = 6.0  # seconds: more than a sweep

Fresh: TypeAlias = Callable[[str], str]
"""Gives the URL of an empty place on that engine."""


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bide-bench-") as folder:
        count = itertools.count()

        def fresh(engine: str) -> str:
            return "memory://" if engine == MEMORY else f"sqlite:///{folder}/{next(count)}.db"

        return [
            *_drains(fresh),
            *_lateness(fresh),
            *_topics(fresh),
            *_idle(fresh),
            *worker_memory.run(),
        ]


def _drains(fresh: Fresh) -> list[Figure]:
    def work(engine: str, sync: bool, loop: Loop) -> Callable[[], int]:
        return lambda: int(in_loop(loop, _drain(fresh(engine), MANY[engine] // (2 if sync else 1), sync)))

    kinds = itertools.product((MEMORY, FILE), (False, True), loops().items())
    return rates(
        {
            f"{engine}, {'sync' if sync else 'async'} handlers{name}": work(engine, sync, loop)
            for engine, sync, (name, loop) in kinds
        },
        BARS,
    )


async def _drain(url: str, many: int, sync: bool) -> int:
    queue = AsyncQueue(url)
    done = itertools.count(1)
    loop, all_done = asyncio.get_running_loop(), asyncio.Event()
    if sync:

        @queue.task("t")
        def handle(order: int, customer: str, note: str) -> None:
            if next(done) == many:
                loop.call_soon_threadsafe(all_done.set)
    else:

        @queue.task("t")
        async def ahandle(order: int, customer: str, note: str) -> None:
            if next(done) == many:
                all_done.set()

    async with queue:
        await queue.send_many("t", [BODY] * many)
        clock.start()
        async with Worker(queue) as worker:
            await all_done.wait()
            for _ in iter(lambda: worker.health().running, 0):  # until the engine has answered the last end
                await asyncio.sleep(0.001)
            clock.stop()
            left = await queue.stats("t")
            assert not left.leased
            assert not left.pending
    return many


# lateness


def _lateness(fresh: Fresh) -> list[Figure]:
    lates: dict[str, list[list[float]]] = {}
    for _ in range(RUNS):
        lates.setdefault("time.sleep", []).append(of_sleep(LATE, RATE))
        for name, loop in loops().items():
            for engine in (MEMORY, FILE):
                lates.setdefault(f"{engine}{name}", []).append(in_loop(loop, of_worker(fresh(engine), LATE, RATE)))
    return [
        figure(
            f"late at {RATE} a second, {name}, {what}", "ms", [part(each, share) for each in runs], ">= 0" if not share else ""
        )
        for name, runs in lates.items()
        for what, share in (("p50", 0.5), ("p99", 0.99), ("earliest", 0.0))
    ]


# topics beside each other


def _topics(fresh: Fresh) -> list[Figure]:
    loud: dict[str, list[float]] = {}
    slow: dict[str, list[float]] = {}
    for _ in range(RUNS):
        for engine in (MEMORY, FILE):
            loud.setdefault(engine, []).append(asyncio.run(_beside_a_loud_one(fresh(engine))))
            slow.setdefault(engine, []).append(asyncio.run(_beside_a_slow_one(fresh(engine), sync=False)))
            slow.setdefault(f"{engine}, in threads", []).append(asyncio.run(_beside_a_slow_one(fresh(engine), sync=True)))
    return [
        *(
            figure(f"{QUIET} topics beside one with {LOUD:,}, {name}", "ms", values, "<= 1,000")
            for name, values in loud.items()
        ),
        *(figure(f"a topic beside slow handlers, {name}", "ms", values, "<= 5,000") for name, values in slow.items()),
    ]


async def _beside_a_loud_one(url: str) -> float:
    """Until the one message of each quiet topic is handled; the loud one's were due before them."""
    queue = AsyncQueue(url)
    left = {f"quiet.{number}" for number in range(QUIET)}
    all_done = asyncio.Event()

    async def handle() -> None:
        left.discard(current().topic)
        if not left:
            all_done.set()

    queue.task("loud", aliases=sorted(left))(handle)
    async with queue:
        await queue.send_many("loud", [None] * LOUD)
        for topic in sorted(left):
            await queue.send(topic)
        begin = time.perf_counter()
        async with Worker(queue, grace=0):
            await all_done.wait()
            return (time.perf_counter() - begin) * 1000


async def _beside_a_slow_one(url: str, *, sync: bool) -> float:
    """From a send until its handler is called, while another topic has taken all the places, or threads, that it can get."""
    queue = AsyncQueue(url)
    loop, busy, called, over = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event(), threading.Event()
    begun = itertools.count(1)

    def count(most: int) -> None:
        if next(begun) == most:
            loop.call_soon_threadsafe(busy.set)

    if sync:

        @queue.task("slow")
        def slow() -> None:
            count(28)  # nine tenths of 32 threads
            over.wait(SLOW)

        @queue.task("quick")
        def quick() -> None:
            loop.call_soon_threadsafe(called.set)
    else:

        @queue.task("slow")
        async def slow_in_loop() -> None:
            count(90)  # nine tenths of 100 places
            await asyncio.sleep(SLOW)

        @queue.task("quick")
        async def quick_in_loop() -> None:
            called.set()

    async with queue:
        await queue.send_many("slow", [None] * 100)
        async with Worker(queue, grace=0):
            await busy.wait()
            begin = time.perf_counter()
            await queue.send("quick")
            await called.wait()
            took = time.perf_counter() - begin
            over.set()
    return took * 1000


# doing nothing


def _idle(fresh: Fresh) -> list[Figure]:
    percent: dict[str, list[float]] = {}
    for _ in range(RUNS):
        for name, loop in loops().items():
            for engine in (MEMORY, FILE):
                percent.setdefault(f"{engine}{name}", []).append(in_loop(loop, _idling(fresh(engine))))
    return [figure(f"CPU of an idle worker, {name}", "percent", values) for name, values in percent.items()]


async def _idling(url: str) -> float:
    queue = AsyncQueue(url)

    @queue.task("t")
    async def handle() -> None:
        pass

    async with queue:
        await queue.send_many("t", [Outgoing(delay=3_600)] * 10_000)
        async with Worker(queue):
            await asyncio.sleep(0.5)
            before, begin = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
            await asyncio.sleep(IDLE)
            after, seconds = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - begin
    return 100 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / seconds

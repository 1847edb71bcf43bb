"""What the worker processes of benchmarks/fair_shares.py run: handlers that compute, and note who had a message when."""

import os
import time

from bide import AsyncQueue

queue: AsyncQueue = AsyncQueue(os.environ["BIDE_BENCH_URL"])
notes: int = os.open(os.environ["BIDE_BENCH_NOTES"], os.O_WRONLY | os.O_APPEND)


def note() -> None:
    os.write(notes, b"%d %f\n" % (os.getpid(), time.time()))


@queue.task("hello")
async def hello() -> None:
    note()


@queue.task("computes")
async def computes(work: float) -> None:
    end = time.perf_counter() + work
    while time.perf_counter() < end:
        pass
    note()

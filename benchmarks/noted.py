"""What the worker processes of benchmarks/redis_killed.py run: a handler that works for a while, and notes its end."""

import os
import time

from bide import AsyncQueue

WORK = 0.001  # seconds

queue: AsyncQueue = AsyncQueue(os.environ["BIDE_BENCH_URL"])
notes: int = os.open(os.environ["BIDE_BENCH_NOTES"], os.O_WRONLY | os.O_APPEND)


@queue.task("t")
async def handle(number: int) -> None:
    end = time.perf_counter() + WORK
    while time.perf_counter() < end:
        pass
    os.write(notes, b"%d\n" % number)

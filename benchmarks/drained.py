"""What the workers of redis_bare.py and postgres_bare.py run: a handler that does nothing, and tells when all is done."""

import asyncio
import itertools
import json
import os
import time

from bide import AsyncQueue

LOOK = 0.005  # seconds between two looks whether all have ended
MANY = int(os.environ["BIDE_BENCH_MANY"])

queue: AsyncQueue = AsyncQueue(os.environ["BIDE_BENCH_URL"])
calls = itertools.count(1)
began: list[float] = []
telling: list[asyncio.Task[None]] = []


@queue.task("t")
async def handle(order: int, customer: str, note: str) -> None:
    call = next(calls)
    if call == 1:
        began[:] = time.perf_counter(), time.process_time()
    elif call == MANY:
        telling.append(asyncio.create_task(tell()))


async def tell() -> None:
    while (counts := await queue.stats("t")).leased or counts.pending:  # noqa: ASYNC110  (the engine sets it)
        await asyncio.sleep(LOOK)
    seconds, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    print(json.dumps({"seconds": seconds, "cpu": cpu}), flush=True)

"""What `bide worker --processes 2` runs for benchmarks.at_worst.crew: it tells of each message, and holds it at first."""

import asyncio
import json
import os
import time

from bide import AsyncQueue, current

HOLD = 3_600.0  # seconds
queue = AsyncQueue(os.environ["AT_WORST_URL"])


@queue.task(os.environ["AT_WORST_TOPIC"], timeout="2h", max_attempts=9)
async def handle(number: int) -> None:
    print(json.dumps([time.time(), os.getpid(), number]), flush=True)
    if number >= 0 and current().attempt == 1:
        await asyncio.sleep(HOLD)

"""SAQ on Redis. Its times are whole seconds, which this rounds up."""

import math
import sys
from typing import Any

import uvloop
from saq import Queue, Worker
from workload import URL, handle_in_loop, main_in_loop, send_at_once


async def work(context: Any, *, payload: str) -> None:
    await handle_in_loop(payload)


async def sending() -> None:
    queue = Queue.from_url(URL)
    await queue.connect()

    async def send(payload: str, due: float | None) -> None:
        if due is None:
            await queue.enqueue("work", payload=payload)
        else:
            await queue.enqueue("work", payload=payload, scheduled=math.ceil(due))

    await main_in_loop(send, send_at_once(send))


async def working() -> None:
    queue = Queue.from_url(URL)
    await queue.connect()
    await Worker(queue, functions=[work]).start()


if __name__ == "__main__":
    uvloop.run(sending() if sys.argv[1] == "send" else working())

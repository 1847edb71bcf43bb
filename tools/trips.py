"""How far a message travels through the code: Python frames of bide for each message, and files of bide that it meets.

python -m tools.trips [URL]

Without the URL of a Redis server it starts one of its own. It uses the namespace `trips`. Each path is gone 2,000 times; a
coroutine that is resumed counts again, as Python does the work again. Files are those that run at least once for each batch: a
timer that goes off meanwhile is on nobody's way.
"""

import argparse
import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import bide
from bide import AsyncQueue, Worker
from bide.worker import slices

MESSAGES = 2_000
BATCH = 100  # how many a worker and a listener hold at most, so that each run claims in batches of the same size
ROOT = os.path.join(os.path.dirname(bide.__file__), "")


# Of a slow machine slices and claims would be smaller, so that more calls ask the engine, and tell it what has ended.
slices.FIRST, slices.LONGEST, slices.SOON, slices.LATE = BATCH, 1e5, 1e6, 1e9


class Trip(NamedTuple):
    frames: float  # for each message
    files: int


class Watch:
    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()  # frames by file

    def _saw(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            self._seen[frame.f_code.co_filename] += 1

    @contextmanager
    def on(self) -> Iterator[None]:
        threading.setprofile(self._saw)
        sys.setprofile(self._saw)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def trip(self) -> Trip:
        return Trip(self._seen.total() / MESSAGES, sum(count >= MESSAGES // BATCH for count in self._seen.values()))


async def send(queue: AsyncQueue, watch: Watch) -> None:
    with watch.on():
        for number in range(MESSAGES):
            await queue.send("sent", {"number": number}, delay="1h", key=f"key {number}")


async def send_gathered(queue: AsyncQueue, watch: Watch) -> None:
    for _ in range(MESSAGES // BATCH):
        with watch.on():
            await asyncio.gather(*(queue.send("gathered", {"number": number}, delay="1h") for number in range(BATCH)))


async def cancel(queue: AsyncQueue, watch: Watch) -> None:
    for number in range(MESSAGES):
        await queue.send("cancelled", {"number": number}, delay="1h", key=f"key {number}")
    with watch.on():
        for number in range(MESSAGES):
            await queue.cancel(topic="cancelled", key=f"key {number}")


async def send_task(queue: AsyncQueue, watch: Watch) -> None:
    @queue.task("task")
    async def handle(number: int) -> None: ...

    with watch.on():
        for number in range(MESSAGES):
            await handle.after("1h").send(number)


async def worker(queue: AsyncQueue, watch: Watch) -> None:
    warm, done, count = asyncio.Event(), asyncio.Event(), 0

    @queue.task("worked")
    async def handle(number: int) -> None:
        nonlocal count
        count += 1
        if count == MESSAGES:
            done.set()
        elif not number:
            warm.set()

    async with Worker(queue, concurrency=BATCH):
        await handle.send(0)
        await warm.wait()  # it has looked around by then, which is no part of the way
        await queue.pause("worked")
        await queue.send_many("worked", [{"number": number} for number in range(1, MESSAGES)])
        with watch.on():
            await queue.resume("worked")
            await done.wait()


async def listen(queue: AsyncQueue, watch: Watch) -> None:
    await queue.send_many("heard", [{"number": number} for number in range(MESSAGES)])
    count = 0
    with watch.on():
        async for delivery in queue.listen("heard"):
            await delivery.ack()
            count += 1
            if count == MESSAGES:
                break


PATHS: dict[str, Callable[[AsyncQueue, Watch], Awaitable[None]]] = {
    "send with a delay and a key": send,
    f"send, {BATCH} gathered": send_gathered,
    "cancel by its key": cancel,
    "send of a task": send_task,
    "worker, plain task": worker,
    "listen and ack": listen,
}


async def trips(url: str) -> dict[str, Trip]:
    found = {}
    for name, path in PATHS.items():
        async with AsyncQueue(url, namespace="trips") as queue:
            await queue.send("warm", 1, delay="1h")  # what is made once is made then
            watch = Watch()
            await path(queue, watch)
            found[name] = watch.trip()
    return found


def measured(url: str | None = None) -> dict[str, Trip]:
    if url is not None:
        return asyncio.run(trips(url))
    from tests.servers.redis import RedisServer  # noqa: PLC0415  (not needed with a URL)

    with RedisServer() as server:
        return asyncio.run(trips(server.url))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.trips", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", metavar="URL", nargs="?", help="a Redis server, such as redis://127.0.0.1:6379/0")
    for name, trip in measured(parser.parse_args(arguments).url).items():
        print(f"{name:28} {trip.frames:6.1f} frames a message, {trip.files:3} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

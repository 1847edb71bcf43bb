"""How far a message travels through the code: frames of bide, files of bide, and how often a call leaves a file for another.

python tools/trips.py redis://127.0.0.1:6379/0

It uses the namespace `trips` of that server. A coroutine counts once, however often it is resumed.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import bide
from bide import AsyncQueue, Queue, Worker

ROOT = str(Path(bide.__file__).parent)


class Trip:
    def __init__(self) -> None:
        self._frames: dict[int, FrameType] = {}  # kept, so that no other frame gets the id of one that has gone
        self._files: dict[int, list[str]] = {}  # by thread, in the order of the calls

    def saw(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(ROOT) and id(frame) not in self._frames:
            self._frames[id(frame)] = frame
            self._files.setdefault(threading.get_ident(), []).append(file)

    @contextmanager
    def watched(self) -> Iterator[None]:
        threading.setprofile(self.saw)
        sys.setprofile(self.saw)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def __str__(self) -> str:
        files = {file for seen in self._files.values() for file in seen}
        changes = sum(one != other for seen in self._files.values() for one, other in pairwise(seen))
        return f"{len(self._frames)} frames, {len(files)} files, {changes} changes of file"


async def sent(url: str) -> Trip:
    """An async task is sent with a delay."""
    trip = Trip()
    async with AsyncQueue(url, namespace="trips") as queue:

        @queue.task("trip")
        async def handle(number: int) -> None: ...

        for number in range(3):  # what is made once is made then
            await handle.after("15m").send(number)
        with trip.watched():
            await handle.after("15m").send(3)
    return trip


async def worked(url: str) -> Trip:
    """A worker sleeps, is woken by a message from another thread, calls the handler, and acks."""
    trip, acked = Trip(), asyncio.Event()
    queue = AsyncQueue(url, namespace="trips")

    @queue.task("work")
    async def handle(number: int) -> None: ...

    async def handled(worker: Worker, count: int) -> None:
        while worker.health().done < count:  # noqa: ASYNC110  (it tells nobody)
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)  # and it sleeps again

    with Queue(url, namespace="trips") as sender:
        async with Worker(queue) as worker:
            await asyncio.to_thread(sender.send, "work", {"number": 1})
            await handled(worker, 1)
            with trip.watched():
                sent = asyncio.get_running_loop().run_in_executor(None, _unwatched, sender.send, "work", {"number": 2})
                asyncio.get_running_loop().call_later(0.4, acked.set)  # far longer than the trip, and shorter than a sweep
                await acked.wait()
            await sent
    await queue.close()
    return trip


def _unwatched(call: Callable[..., object], *args: object) -> None:
    sys.setprofile(None)
    call(*args)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    print("send:  ", asyncio.run(sent(arguments[0])))
    print("worker:", asyncio.run(worked(arguments[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

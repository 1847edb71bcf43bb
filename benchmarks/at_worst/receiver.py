"""A worker that tells when it begins each message: a process that can be killed, or a thread for the memory of this process.

`python -m benchmarks.at_worst.receiver URL TOPIC HOLD SLOTS` is that process. It works HOLD seconds on each message.
"""

import asyncio
import json
import logging
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bide import AsyncQueue, Queue, Worker, current

PATIENCE = 400.0  # seconds: RabbitMQ may hold messages for three minutes after a restart


class Begun(NamedTuple):
    """Seconds since the epoch: when a handler was called, and when its message was due."""

    at: float
    due: float
    number: int


class Receiver:
    def __init__(self, begun: "queue.SimpleQueue[Begun | None]", kill: Callable[[], None]) -> None:
        self._begun = begun
        self.kill: Callable[[], None] = kill

    def next(self) -> Begun:
        """What it begins next. It waits for that."""
        found = self._begun.get(timeout=PATIENCE)
        if found is None:
            raise RuntimeError("the receiver has ended")
        return found

    def all(self, count: int) -> list[Begun]:
        """The first time that it begins each of so many messages. It may begin one twice."""
        seen: dict[int, Begun] = {}
        while len(seen) < count:
            each = self.next()
            seen.setdefault(each.number, each)
        return list(seen.values())


@contextmanager
def receiving(where: str | Queue, topic: str, *, hold: float = 0.0, slots: int = 100) -> Iterator[Receiver]:
    """A worker in a process of its own, for a URL; or a thread with a worker, for a queue of this process."""
    if isinstance(where, Queue):
        with _thread(where, topic, hold, slots) as receiver:
            yield receiver
        return
    command = [sys.executable, "-m", "benchmarks.at_worst.receiver", where, topic, str(hold), str(slots)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        begun: queue.SimpleQueue[Begun | None] = queue.SimpleQueue()

        def read() -> None:
            for line in process.stdout or ():
                begun.put(Begun(*json.loads(line)))
            begun.put(None)

        threading.Thread(target=read, daemon=True).start()
        try:
            yield Receiver(begun, process.kill)
        finally:
            process.kill()


@contextmanager
def _thread(shared: Queue, topic: str, hold: float, slots: int) -> Iterator[Receiver]:
    begun: queue.SimpleQueue[Begun | None] = queue.SimpleQueue()
    stop = threading.Event()

    def run() -> None:
        try:
            asyncio.run(_receive(shared.aio, topic, hold, slots, begun.put, stop))
        finally:
            begun.put(None)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield Receiver(begun, lambda: None)
    finally:
        stop.set()
        thread.join()


async def _receive(
    receiver: AsyncQueue, topic: str, hold: float, slots: int, tell: Callable[[Begun], None], stop: threading.Event
) -> None:
    logging.getLogger("bide").setLevel(logging.ERROR)  # it is not the one for what receivers that were killed had begun

    @receiver.task(topic, timeout="1h")
    async def handle(number: int) -> None:
        tell(Begun(time.time(), current().due / 1000, number))
        await asyncio.sleep(hold)

    async with Worker(receiver, concurrency=slots):
        await asyncio.to_thread(stop.wait)


if __name__ == "__main__":
    _url, _topic, _hold, _slots = sys.argv[1:]

    def _tell(begun: Begun) -> None:
        print(json.dumps(begun), flush=True)

    asyncio.run(_receive(AsyncQueue(_url), _topic, float(_hold), int(_slots), _tell, threading.Event()))

"""A receiver that must go on by itself, a Worker or a sync `listen`, with senders; it tells where its messages are from."""

import asyncio
import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from bide import AsyncQueue, EngineError, Queue, current
from bide.engines.redis.protocol.encoding import name_of
from bide.worker import Worker

PACE = 0.01  # seconds between two sends of one sender
KEYS = 64  # enough for each shard
PATIENCE = 120.0


class Crew:
    def __init__(self, url: str) -> None:
        self._url = url
        self.stop = threading.Event()
        self.handled = Counter[int]()  # by shard
        self.ended: list[str] = []  # who ended before `stop`, and why
        self._progress = threading.Condition()

    def handle(self, id: str) -> None:
        with self._progress:
            self.handled[name_of(id).shard] += 1
            self._progress.notify_all()

    def wait_for(self, shards: Collection[int], many: int = 3) -> None:
        """Until so many more messages of each have been handled."""
        with self._progress:
            wanted = {shard: self.handled[shard] + many for shard in shards}
            self._progress.wait_for(lambda: self.ended or all(self.handled[each] >= wanted[each] for each in shards), PATIENCE)
            assert not self.ended
            assert all(self.handled[shard] >= wanted[shard] for shard in shards), f"{wanted} expected, {self.handled} came"

    def send(self) -> None:
        with Queue(self._url) as queue:
            threads = [threading.Thread(target=self._send, args=[queue, keyed]) for keyed in (False, False, False, True)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _send(self, queue: Queue, keyed: bool) -> None:
        """What has a key of a shard that is away waits for it, and so does what was under way."""
        for turn in itertools.count():
            with contextlib.suppress(EngineError):
                queue.send("t", key=f"k{turn % KEYS}" if keyed else None, max_attempts=50)
            if self.stop.wait(PACE):
                return

    def listen(self) -> None:
        with Queue(self._url) as queue:
            for delivery in queue.listen("t"):
                with contextlib.suppress(EngineError), delivery:  # the ack of what a dead master has may fail
                    self.handle(delivery.id)
                if self.stop.is_set():
                    return

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with AsyncQueue(self._url) as queue:

            @queue.task("t")
            async def handle() -> None:
                delivery = current()
                assert delivery is not None
                self.handle(delivery.id)

            worker = Worker(queue)
            running = asyncio.ensure_future(worker.run())
            stopping = asyncio.ensure_future(asyncio.to_thread(self.stop.wait))
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await worker.stop()
            await running

    def run(self, what: Callable[[], None]) -> None:
        try:
            what()
        except BaseException as error:
            self._tell(f"{what.__name__} raised {error!r}")
            raise
        if not self.stop.is_set():
            self._tell(f"{what.__name__} has ended")

    def _tell(self, what: str) -> None:
        with self._progress:
            self.ended.append(what)
            self._progress.notify_all()


@contextlib.contextmanager
def at_work(receiver: str, url: str) -> Iterator[Crew]:
    crew = Crew(url)
    receive = {"worker": crew.work, "sync listen": crew.listen}[receiver]
    threads = [threading.Thread(target=crew.run, args=[each]) for each in (receive, crew.send)]
    for thread in threads:
        thread.start()
    try:
        yield crew
    finally:
        crew.stop.set()
        with contextlib.suppress(EngineError), Queue(url) as queue:
            queue.send("t")  # who has handled all waits for one more, and sees then that it is over
        for thread in threads:
            thread.join(PATIENCE)
    assert not crew.ended


def rate(crew: Crew, shards: Collection[int], begun: float, before: Counter[int]) -> float:
    """Messages a second that came from these since then."""
    return sum(crew.handled[shard] - before[shard] for shard in shards) / (time.monotonic() - begun)

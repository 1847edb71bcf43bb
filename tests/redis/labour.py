"""A worker with tasks of each kind, and those who send to them. Each message and each gate is in a part that is known."""

import asyncio
import functools
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from bide import AsyncQueue, current
from bide.engines.redis.protocol.encoding import name_of
from bide.queue.tasks.limits import lock_gate
from bide.worker import Worker
from tests.redis.book import Book, Entry
from tests.redis.hands import PARTS, Here, Ledger, Names
from tests.redis.users import LEASE, Deed

FEED = 0.2  # seconds between two messages of a part
LATER = 0.2
KEPT, BATCHED, LONG, STOPPED = "kept", "batched", "long", "stopped"
GATED: dict[str, Callable[[str], str]] = {  # by topic: the gate that a value of its messages has
    "locked": lock_gate,
    "capped": "at once capped {}".format,
    "rated": "rate rated {}".format,
    STOPPED: lock_gate,  # for a worker that is told to end
}


class Labour:
    """The worker, in an event loop of its own."""

    def __init__(self, url: str, names: Names, book: Book, ledger: Ledger, release: threading.Event, slots: int) -> None:
        self._slots = slots
        self._book, self._ledger, self._release = book, ledger, release
        self._queue = AsyncQueue(url)
        self._schedules = {names.schedule(part): part for part in PARTS for _ in range(2)}
        self._ticks: dict[str, Entry] = {}
        self._begun = set[str]()  # of those that take long
        self.over = threading.Event()
        self._long_ones = threading.Semaphore(0)

    def run(self) -> None:
        asyncio.run(self._run())

    def expected(self) -> list[tuple[str, frozenset[int]]]:
        plain = [(f"task {topic}", frozenset([part])) for topic in ("plain", KEPT, BATCHED, "tick") for part in PARTS]
        gated = ("locked", "capped", "rated")
        return plain + [(f"task {topic}", frozenset(both)) for topic in gated for both in itertools.product(PARTS, PARTS)]

    def wait_for_long_ones(self, patience: float) -> None:
        for _ in range(len(PARTS) ** 2):
            assert self._long_ones.acquire(timeout=patience), "not all that take long have begun"

    async def _run(self) -> None:
        self._declare()
        async with self._queue:
            worker = Worker(self._queue, concurrency=self._slots, lease=LEASE)
            running = asyncio.create_task(worker.run())
            over = asyncio.create_task(asyncio.to_thread(self.over.wait))
            await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
            await worker.stop()
            await running
        for entry in self._ticks.values():
            self._book.end(entry)

    def _declare(self) -> None:
        task, queue = self._queue.task, self._queue

        @task("plain")
        async def plain() -> None:
            self._handled("plain")

        @task("locked", lock="{gate}")
        async def locked(gate: str, at: int) -> None:
            self._handled("locked", at)

        @task("capped", concurrency=2, per="{gate}")
        async def capped(gate: str, at: int) -> None:
            self._handled("capped", at)

        @task("rated", rate="5/s", per="{gate}")
        async def rated(gate: str, at: int) -> None:
            self._handled("rated", at)

        @task(KEPT, keep="10m")
        async def kept() -> int:
            self._handled(KEPT)
            return 1

        @task(BATCHED, batch=10, linger="50ms")
        async def batched(items: list[dict[str, Any]]) -> None:
            for each in items:
                self._book.note(f"task {BATCHED}", [each["part"]], each["mono"])

        @task(LONG, lock="{gate}")
        async def long(gate: str, at: int) -> None:
            await self._take_long(at)

        for name in self._schedules:

            @queue.every("1s", name=name, topic=name)
            async def tick() -> None:
                self._tick()

    def _handled(self, topic: str, *gates: int) -> None:
        delivery = current()
        assert delivery is not None
        self._ledger.handed_out(delivery.id, delivery.due, gates=gates)
        late = max(0.0, time.time() - delivery.due / 1000)
        self._book.note(f"task {topic}", [name_of(delivery.id).shard, *gates], time.monotonic() - late)

    async def _take_long(self, at: int) -> None:
        delivery = current()
        assert delivery is not None
        parts = [name_of(delivery.id).shard, at]
        self._ledger.handed_out(delivery.id, delivery.due, gates=[at])
        if delivery.id in self._begun:
            self._book.accuse("a handler was begun again while it ran", parts)
        self._begun.add(delivery.id)
        self._long_ones.release()
        try:
            while not self._release.is_set():  # noqa: ASYNC110  # another thread sets it
                await asyncio.sleep(LATER)
        except asyncio.CancelledError:
            if not self.over.is_set():
                self._book.accuse("a handler was cancelled", parts)
            raise

    def _tick(self) -> None:
        """From one to the next."""
        delivery = current()
        assert delivery is not None
        name = delivery.topic
        if name in self._ticks:
            self._book.end(self._ticks[name])
        self._ticks[name] = self._book.begin("task tick", [self._schedules[name]])


class Feeding:
    """Sends to the tasks, and asks for results. By sync queues, each part by a thread, so that one waits for no other."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._queue = here.hand.queue

    def deeds(self) -> list[Deed]:
        return [functools.partial(deed, part) for deed in (self._feed, self._ask) for part in PARTS]

    def expected(self) -> list[tuple[str, frozenset[int]]]:
        return [(self._here.named(what), frozenset([part])) for what in ("send to tasks", "result") for part in PARTS]

    async def begin_long_ones(self) -> None:
        for part, at in itertools.product(PARTS, PARTS):
            await self._send(LONG, part, {"gate": self._here.names.value(at), "at": at})

    async def _feed(self, part: int) -> None:
        turns = itertools.cycle([*itertools.product(GATED, PARTS), ("plain", 0), ("plain", 0), (BATCHED, 0), (BATCHED, 0)])
        while not self._here.quiet.is_set():
            topic, at = next(turns)
            body: Any = {}
            if topic in GATED:
                body = {"gate": self._here.names.value(at, GATED[topic]), "at": at}
            elif topic == BATCHED:
                body = {"part": part, "mono": time.monotonic()}
            await self._send(topic, part, body)
            await self._here.hand.pause(FEED)

    async def _send(self, topic: str, part: int, body: Any) -> Any:
        send = functools.partial(self._queue.send, topic, body, key=self._here.names.key(topic, part))
        sent = await self._here.do("send to tasks", [part], send)
        if sent is not None and topic not in (BATCHED, STOPPED):
            self._here.ledger.accepted(sent)
        return sent

    async def _ask(self, part: int) -> None:
        while not self._here.quiet.is_set():
            sent = await self._send(KEPT, part, {})
            if sent is not None:
                await self._here.do("result", [part], functools.partial(self._queue.result, sent, timeout=60))
            await self._here.hand.pause()

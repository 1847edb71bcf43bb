"""Processes that use one SQLite file or a server until they are told to stop, or are killed; each writes its own history.

    python -m tests.sqlite.chaos_actors ROLE NAME FOLDER SEED RATE

They end when their standard input does, and so with whoever started them. Faults come from outside alone; but some
hold a message for longer than its lease by themselves.
"""

import asyncio
import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from bide import AsyncQueue, Queue
from bide.errors import EngineError, LeaseLost
from bide.prove import AsyncRecorded, AsyncRecordedDelivery, History, Recorded, RecordedDelivery
from bide.prove.workload import IF_EXISTS, KEYS, TOPICS, Producer, ReceivingActor, Stage
from tests.sqlite.chaos_clock import follow

LEASE = 1.0  # seconds
WAIT = 0.2
BATCH = 40
FILE = "chaos.db"
NOTE = "url"


def url_of(folder: Path) -> str:
    """Where the messages are: a file in the folder, unless it has a note that names another place."""
    note = folder / NOTE
    return note.read_text(encoding="utf-8") if note.exists() else file_of(folder)


def note_url(folder: Path, url: str) -> None:
    (folder / NOTE).write_text(url, encoding="utf-8")


def file_of(folder: Path) -> str:
    return f"sqlite:///{folder / FILE}"


class Pace:
    """So many a second, on average; 0: as many as can be."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._done = 0

    def ahead(self, more: int) -> float:
        """Seconds to rest, so many having been done since."""
        self._done += more
        return max(0.0, self._began + self._done / self._rate - time.monotonic()) if self._rate else 0.0


def ack_all(queue: Recorded, held: Sequence[RecordedDelivery]) -> None:
    """By one call, each for itself in the history."""
    ops = [queue.history.ending("ack", each.plain) for each in held]
    try:
        acked = queue.plain.ack_many([each.plain for each in held])
    except EngineError as error:
        for op in ops:
            op.end_by(error)
        return
    for op, mine in zip(ops, acked, strict=True):
        if mine:
            op.ok()
        else:
            op.end("fail", outcome=LeaseLost.__name__)


class Sender(Producer):
    """Sends in all the ways that producers have, and many at once."""

    rate = 0.0

    def work(self) -> None:
        pace = Pace(self.rate)
        self.left = 2**60
        while not self.stage.stop.is_set():
            before = self.left
            with contextlib.suppress(EngineError):  # its history says so
                if self.chance.random() < 0.2:
                    self.left -= BATCH
                    self.queue.send_many(self.chance.choice(TOPICS), [{"n": n} for n in range(BATCH)])
                else:
                    self.left -= 1
                    self._send()
            self.stage.sent.clear()
            self.stage.stop.wait(pace.ahead(before - self.left))


class Taker(ReceivingActor):
    """Takes some, works on them for a moment, and ends most of them by one call, the others in one of all ways."""

    def work(self) -> None:
        while not self.stage.stop.is_set():
            topics = self.chance.sample(TOPICS, self.chance.randint(1, len(TOPICS)))
            found: list[RecordedDelivery] = []
            with contextlib.suppress(EngineError):
                found = self.queue.receive(*topics, limit=self.chance.randint(1, 2 * BATCH), wait=WAIT, lease=LEASE)
            if found:
                late = self.chance.random() < 0.005
                time.sleep(1.2 * LEASE if late else self.chance.randrange(30) / 1000)
                some = self.chance.randrange(1 + len(found) // 4)
                ack_all(self.queue, found[some:])
                self.end(found[:some])


class Meddler(Producer):
    """Cancels and reschedules what others have sent, by id or by key."""

    def work(self) -> None:
        while not self.stage.stop.is_set():
            topic = self.chance.choice(TOPICS)
            with contextlib.suppress(EngineError):
                there = self.queue.plain.messages(topic, limit=200)
                for info in self.chance.sample(there, min(len(there), 8)):
                    self._change(info.id)
                self._change_by_key(topic)
            self.stage.stop.wait(self.chance.randrange(60) / 1000)

    def _change(self, id: str) -> None:
        if self.chance.random() < 0.5:
            self.queue.cancel(id)
        else:
            self.queue.reschedule(id, delay=self.chance.randrange(300) / 1000)

    def _change_by_key(self, topic: str) -> None:
        key = f"{topic}:{self.chance.randrange(KEYS)}"
        if self.chance.random() < 0.5:
            self.queue.cancel(topic=topic, key=key)
        else:
            self.queue.reschedule(topic=topic, key=key, delay=0.05)


class Writer(Producer):
    """Writes as fast as it can, one message to a transaction: sends, takes and acks."""

    def work(self) -> None:
        self.left = 2**60
        while not self.stage.stop.is_set():
            with contextlib.suppress(EngineError):
                self.queue.send(self.chance.choice(TOPICS), {"n": 1})
                for each in self.queue.receive(*TOPICS, limit=2, lease="30s"):
                    with contextlib.suppress(LeaseLost):
                        each.ack()


class AsyncActor:
    def __init__(self, stop: threading.Event, queue: AsyncRecorded, chance: random.Random, rate: float) -> None:
        self.stop = stop
        self.queue = queue
        self.chance = chance
        self.rate = rate

    async def work(self) -> None:
        raise NotImplementedError

    async def all(self, *calls: Coroutine[Any, Any, object]) -> None:
        """At once; what became of each is in the history."""
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, BaseException) and not isinstance(answer, LeaseLost | EngineError):
                raise answer


class AsyncSender(AsyncActor):
    async def work(self) -> None:
        pace = Pace(self.rate)
        while not self.stop.is_set():
            await self.all(*(self._send() for _ in range(16)))
            await asyncio.sleep(pace.ahead(16))

    async def _send(self) -> None:
        topic, delay = self.chance.choice(TOPICS), self.chance.randrange(300) / 1000
        if self.chance.random() < 0.1:
            key = f"{topic}:{self.chance.randrange(KEYS)}"
            await self.queue.send(topic, 1, delay=delay, key=key, if_exists=self.chance.choice(IF_EXISTS))
        else:
            await self.queue.send(topic, 1, delay=delay, max_attempts=self.chance.choice((2, 9)))


class AsyncTaker(AsyncActor):
    async def work(self) -> None:
        while not self.stop.is_set():
            found: list[AsyncRecordedDelivery] = []
            with contextlib.suppress(EngineError):
                found = await self.queue.receive(*TOPICS, limit=BATCH, wait=WAIT, lease=LEASE)
            if found:
                await asyncio.sleep(self.chance.randrange(30) / 1000)
                await self.all(*map(self._end, found))

    async def _end(self, delivery: AsyncRecordedDelivery) -> None:
        chance = self.chance.random()
        if chance < 0.05:
            await delivery.retry(0.02, error="it was asked to fail")
        elif chance < 0.1:
            await delivery.release()
        else:
            await delivery.ack()


ROLES: dict[str, type[Sender | Taker | Meddler | Writer]] = {
    "sender": Sender,
    "taker": Taker,
    "meddler": Meddler,
    "writer": Writer,
}
ASYNC_ROLES: dict[str, type[AsyncActor]] = {"async-sender": AsyncSender, "async-taker": AsyncTaker}


def main(role: str, name: str, folder: Path, seed: int, rate: float) -> None:
    stage = Stage(lambda: Queue(url_of(folder)), folder, seed, 0)
    threading.Thread(target=_listen_for_the_end, args=[stage.stop], daemon=True).start()
    follow(folder)
    with stage.history(name) as history:
        if role in ASYNC_ROLES:
            asyncio.run(_act(ASYNC_ROLES[role], stage, history, name, rate))
            return
        with stage.make_queue() as queue:
            actor = ROLES[role](stage, Recorded(queue, history), name)
            if isinstance(actor, Sender):
                actor.rate = rate
            actor.work()


async def _act(role: type[AsyncActor], stage: Stage, history: History, name: str, rate: float) -> None:
    async with AsyncQueue(url_of(stage.folder)) as queue:
        await role(stage.stop, AsyncRecorded(queue, history), random.Random(f"{stage.seed} {name}"), rate).work()


def _listen_for_the_end(stop: threading.Event) -> None:
    os.read(0, 1)
    stop.set()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))

"""Workers whose handlers do all that handlers may do, and write down what they did; other faults come from outside.

    CHAOS=… bide worker tests.worker.chaos_actors:queue [OPTIONS]
    CHAOS=… python -m tests.worker.chaos_actors          a worker in code, in asyncio's own loop, with a middleware

`Stage` is what $CHAOS holds. Each process writes a history of its own, a supervisor as well as its worker processes.
"""

import asyncio
import itertools
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from bide import AsyncDelivery, AsyncQueue, Bury, Delivery, Retry, Snooze, Worker, current, steps
from bide.prove import History, record_engine
from bide.prove.workload import TOPICS
from tests.sqlite.chaos_actors import url_of
from tests.sqlite.chaos_clock import follow, is_set
from tests.worker.chaos_mishaps import CUT_OFF, LastLogs, Mishaps, fill_the_executor
from tests.worker.chaos_plants import PLANTS
from tests.worker.faults import Faults

LEASE = 1.5  # seconds
CALM_LEASE = 4.5  # seconds, where no lease may be lost: a busy machine is late too
GRACE = 2.0
TIMEOUT = 0.6  # of the tasks of the first topic
CRASHED = 77  # the exit code of a process that a handler has ended

WAYS = {
    "done": 740,
    "fails": 60,
    "asks to be tried again": 40,
    "snoozes": 40,
    "buries": 20,
    "exits": 5,
    "acks by hand": 15,
    "retries by hand": 15,
    "releases by hand": 15,
    "buries by hand": 10,
    "extends": 15,
    "takes long": 20,
    "outlives its lease": 6,
    "heeds nothing": 0.3,
    "blocks": 0.5,
    "crashes": 0.3,
    "fills the executor": 4,
    "ends its coroutine": 4,
}
"""What a handler may do, and how often."""

QUICK_WAYS = {
    "done": 990,
    "fails": 3,
    "asks to be tried again": 2,
    "snoozes": 1,
    "buries": 1,
    "ends its coroutine": 1,
    "acks by hand": 0.2,
    "takes long": 0.2,
    "crashes": 0.05,
}
"""Of handlers that end at once, so that messages are claimed ahead of them: hardly ever does one wait for anything."""

ONCE_IN_LOOP: frozenset[str] = frozenset({"blocks", "fills the executor"})  # only a handler in the event loop can
ONCE_IN_THREAD: frozenset[str] = frozenset({"heeds nothing"})  # an async one that is cancelled may go on, but who does that


class Stage(msgspec.Struct, frozen=True):
    folder: str
    name: str
    seed: int
    lease: float = LEASE
    threads: tuple[str, ...] = ()  # topics whose handlers are sync
    quick: bool = False  # all handlers are async, have no timeout, and most end at once
    plant: str = ""  # a fault of the engine or the worker, for the checker to find
    only: tuple[str, ...] | None = None  # mishaps, and its handlers cause none that costs a lease; None: all there are


class Hands:
    """What handlers do: most of them their work, and the others all else."""

    def __init__(self, stage: Stage, history: History) -> None:
        self._history = history
        self._chance = random.Random(f"{stage.seed} {stage.name} {os.getpid()}")
        self._lease = stage.lease
        self._quick = stage.quick
        self._ways: dict[str, float] = dict(QUICK_WAYS if stage.quick else WAYS)
        if stage.only is not None:  # who blocks the loop needs a heartbeat
            self._ways |= {"crashes": 0, "outlives its lease": 12, "blocks": 0 if CUT_OFF in stage.only else 1.5}

    def choose(self, never: frozenset[str]) -> str:
        [way] = self._chance.choices(list(self._ways), list(self._ways.values()))
        return "done" if way in never else way

    async def work(self, delivery: AsyncDelivery) -> None:
        way = self.choose(ONCE_IN_THREAD)
        if not self._quick or way == "takes long":
            await asyncio.sleep(self.seconds(way))
        match way:
            case "acks by hand":
                await delivery.ack()
            case "retries by hand":
                await delivery.retry(0.03)
            case "releases by hand":
                await delivery.release(self._chance.choice((0, 0.05)))
            case "buries by hand":
                await delivery.bury("it was asked to")
            case "extends":
                await delivery.extend(2 * self._lease)
            case "ends its coroutine" if self._chance.random() < 0.5:
                await asyncio.create_task(_end_coroutines())
            case "fills the executor":
                fill_the_executor(self._history)
            case "blocks":
                time.sleep(1.2 * self._lease)  # noqa: ASYNC251  (that is the fault)
                with self._history.fault("block the event loop for longer than a lease") as fault:
                    fault.landed(f"{1.2 * self._lease:.1f} s")
            case _:
                self._raise(way)

    def work_in_a_thread(self, delivery: Delivery) -> None:
        way = self.choose(ONCE_IN_LOOP)
        until = time.monotonic() + self.seconds(way)
        while time.monotonic() < until and not (delivery.expired and way != "heeds nothing"):
            time.sleep(min(0.02, max(0.0, until - time.monotonic())))
        match way:
            case "acks by hand":
                delivery.ack()
            case "retries by hand":
                delivery.retry(0.03)
            case "releases by hand":
                delivery.release(self._chance.choice((0, 0.05)))
            case "buries by hand":
                delivery.bury("it was asked to")
            case "extends":
                delivery.extend(2 * self._lease)
            case _:
                self._raise(way)
        if delivery.expired:
            raise TimeoutError("it was told to stop")

    def seconds(self, way: str) -> float:
        longer = {"takes long": TIMEOUT * 1.5, "outlives its lease": 1.5 * self._lease, "heeds nothing": TIMEOUT + 7.0}
        return longer.get(way, self._chance.randrange(25) / 1000)

    def _raise(self, way: str) -> None:
        """What handlers say by raising; nothing, if the work is done."""
        match way:
            case "fails":
                raise ValueError("it was asked to fail")
            case "asks to be tried again":
                raise Retry(self._chance.choice((None, 0, "40ms")))
            case "snoozes":
                raise Snooze("50ms", max_wait=self._chance.choice((None, None, "1s")))
            case "buries":
                raise Bury("it was asked to be buried")
            case "exits":
                raise SystemExit(3)
            case "ends its coroutine":
                raise GeneratorExit
            case "crashes":
                with self._history.fault("crash in a handler") as fault:
                    fault.landed("about to end the process")
                os._exit(CRASHED)


async def _end_coroutines() -> None:
    """Whoever waits for this is closed, with all coroutines that wait for him."""
    raise GeneratorExit


def make(stage: Stage) -> AsyncQueue:
    """A queue with a task for each topic, recorded."""
    follow(Path(stage.folder))
    queue = AsyncQueue(url_of(Path(stage.folder)))
    process = f"{stage.name}.{os.getpid()}"
    history = History(Path(stage.folder) / f"{process}.jsonl", process)
    if stage.plant:
        PLANTS[stage.plant](queue)
    record_engine(queue, history)
    faults = Faults(queue)
    hands = Hands(stage, history)
    Mishaps(history, f"{stage.seed} {process} mishaps", faults, clock=is_set(Path(stage.folder)), only=stage.only).start()
    logging.getLogger("bide").addHandler(LastLogs(Path(stage.folder) / f"{stage.name}.logs"))
    for topic in TOPICS:
        _add_task(queue, topic, hands, history, stage)
    return queue


def _add_task(queue: AsyncQueue, topic: str, hands: Hands, history: History, stage: Stage) -> None:
    options: dict[str, Any] = {"backoff": steps("20ms", "60ms", "150ms")}
    if topic == TOPICS[0] and not stage.quick:
        options["timeout"] = TIMEOUT
    if topic in stage.threads:

        @queue.task(topic, **options)
        def handle(tag: str, body: object = None) -> None:
            with history.handling(current()) as op:
                hands.work_in_a_thread(current())
                op.ok()
    else:

        @queue.task(topic, **options)
        async def handle_in_loop(tag: str, body: object = None) -> None:
            with history.handling(current()) as op:
                await hands.work(current())
                op.ok()


def __getattr__(name: str) -> AsyncQueue:
    """`queue`, made when it is first asked for, from what $CHAOS holds."""
    if name != "queue":
        raise AttributeError(name)
    made = make(msgspec.json.decode(os.environ["CHAOS"], type=Stage))
    globals()[name] = made
    return made


async def _work() -> None:
    calls = itertools.count()

    async def counted(delivery: AsyncDelivery, handle: Callable[[], Awaitable[None]]) -> None:
        next(calls)
        await handle()

    lease = msgspec.json.decode(os.environ["CHAOS"], type=Stage).lease
    await Worker(__getattr__("queue"), concurrency=15, lease=lease, grace=GRACE, middleware=[counted]).run()


if __name__ == "__main__":
    asyncio.run(_work())

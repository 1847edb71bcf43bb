"""The last words of a worker: what is still on its way when it stops, and what does not want to end."""

import asyncio
import selectors
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bide import AsyncQueue, Queue
from bide.engines.base import End
from bide.worker import Worker
from bide.worker.finish import Settler
from bide.worker.service import AT_ONCE
from bide.worker.stop import CLOSING, LAST_WORDS, OVERTIME, StopWaits
from tests.worker.faults import Faults
from tests.worker.test_stopping import begun, end_by_stop


async def test_a_file_that_somebody_else_has_locked_does_not_hold_the_stop_up(tmp_path: Path) -> None:
    """SQLite's lock is waited for half a minute: by the claim that is under way, and by the heartbeat."""
    queue = Queue(f"sqlite:///{tmp_path}/bide.db")
    began = threading.Event()

    @queue.task("order.pack")
    async def pack(order: int) -> None:
        began.set()
        await asyncio.Event().wait()

    queue.send("order.pack", {"order": 42})
    worker = Worker(queue, lease="150ms", grace="50ms")
    running = asyncio.create_task(worker.run(signals=False))
    await asyncio.to_thread(began.wait, 20)
    locked = await asyncio.to_thread(sqlite3.connect, tmp_path / "bide.db", isolation_level=None, check_same_thread=False)
    try:
        await asyncio.to_thread(locked.execute, "begin immediate")
        async with asyncio.timeout(20):  # the lock is held until the worker has ended
            await worker.stop()
            await running
    finally:
        locked.close()
        queue.close()


async def test_a_handler_that_ignores_its_timeout_and_the_stop_too_has_failed(queue: AsyncQueue, until: Any) -> None:
    """Or its message would come back for ever, as if nothing had been tried."""
    over = asyncio.Event()
    told: list[bool] = []

    @queue.task("a", timeout="20ms", max_attempts=1)
    async def deaf() -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                told.append(True)

    await deaf.send()
    worker = Worker(queue, grace="0s")
    async with begun(worker) as running:
        await until(lambda: told)
        await end_by_stop(worker, running)

    over.set()
    [dead] = await queue.messages("a", state="dead")
    assert "took longer than its timeout" in str(dead.last_error)


async def test_work_that_is_done_is_acked_as_long_as_there_is_grace(queue: AsyncQueue, until: Any, faults: Faults) -> None:
    settling = asyncio.Event()

    @queue.task("a", max_attempts=1)
    async def handle() -> None: ...

    async def slow(call: Any, asked: Any) -> Any:
        settling.set()
        await asyncio.sleep(2 * LAST_WORDS)  # longer than the last words, shorter than grace
        return await call()

    faults.around["settle"] = slow
    await handle.send()
    worker = Worker(queue, grace="20s")
    async with begun(worker) as running:
        await settling.wait()
        await end_by_stop(worker, running)

    counts = await queue.stats("a")
    assert (counts.ready, counts.leased, counts.dead) == (0, 0, 0)


async def test_a_handler_may_ask_its_own_worker_to_stop(queue: AsyncQueue, until: Any) -> None:
    @queue.task("a")
    async def last() -> None:
        await worker.stop()

    worker = Worker(queue)
    await last.send()
    async with asyncio.timeout(20):
        await worker.run(signals=False)

    assert (await queue.stats("a")).pending == 0


async def test_messages_go_back_while_other_handlers_have_yet_to_be_told(memory: AsyncQueue, until: Any) -> None:
    """Or a worker with thousands of handlers is still busy with their ends when its time is over, and gives nothing back."""
    faults, seen = await Faults.of(memory), Counter[str]()
    cancelled_before: list[int] = []

    @memory.task("a")
    async def handle() -> None:
        seen["begun"] += 1
        try:
            await asyncio.Event().wait()
        finally:
            seen["cancelled"] += 1

    async def look(call: Any, asked: Any) -> Any:
        cancelled_before.append(seen["cancelled"])
        return await call()

    faults.around["settle"] = look
    count = 3 * AT_ONCE
    await memory.send_many("a", [{}] * count)
    worker = Worker(memory, grace=0, concurrency=count)
    async with begun(worker) as running:
        await until(lambda: seen["begun"] == count)
        await end_by_stop(worker, running)

    assert cancelled_before[0] < count == cancelled_before[-1]
    assert (await memory.stats("a")).ready == count


class LeapingSelector(selectors.DefaultSelector):
    """Passes the time for which a loop would sleep at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


class LeapingLoop(asyncio.SelectorEventLoop):
    """On it only what sleeps takes time."""

    def __init__(self) -> None:
        self._leaping = LeapingSelector()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.now


def given_by_the_clock(part: Callable[[], Coroutine[Any, Any, int]]) -> tuple[int, float]:
    """What a part of a stop gives, and how long it takes."""
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        return runner.run(part()), runner.get_loop().time()


class SlowEngine:
    """Takes so many seconds for each call, whatever is asked."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def part_of(self, item: Any) -> None:
        """It has one part."""

    async def settle(self, ends: Sequence[End]) -> list[str]:
        await asyncio.sleep(self._seconds)
        return ["release"] * len(ends)


async def drained(engine: Any, count: int) -> int:
    """A stop without grace: how many ends the engine was not told."""
    settling = Settler(engine, lambda handlings: None, lambda batch, answers: None)
    for number in range(count):
        settling.put(mock.Mock(end=End("a", str(number), "1", "release")))
    left = await settling.drain(StopWaits(asyncio.get_running_loop().time()))
    settling.drop()
    return left


def test_ten_thousand_messages_go_back_as_long_as_the_stop_has_time() -> None:
    left, seconds = given_by_the_clock(lambda: drained(SlowEngine(0.07), 10_000))
    assert left == 0
    assert seconds < OVERTIME


def test_an_engine_that_takes_nothing_leaves_time_to_close_it() -> None:
    left, seconds = given_by_the_clock(lambda: drained(SlowEngine(3_600), 10_000))
    assert left == 10_000
    assert seconds == pytest.approx(OVERTIME - CLOSING)

"""The last words of a worker: what is still on its way when it stops, and what does not want to end."""

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

from bide import AsyncQueue, Queue
from bide.worker import Worker
from bide.worker.ending import LAST_WORDS
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

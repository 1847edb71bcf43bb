"""What is cancelled while it waits for the file's lock never happens; and what is cancelled in a user's transaction."""

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, CancelResult, RescheduleResult
from bide.engines.guard.aio import AsyncGuard
from bide.engines.sqlite.aio import AsyncSqlite


async def test_a_claim_that_is_cancelled_while_the_file_is_locked_takes_nothing(tmp_path: Path) -> None:
    async with AsyncQueue(f"sqlite:///{tmp_path}/bide.db") as queue:
        await queue.send("order.pack", 42)
        guard = await queue.session.engine()
        assert isinstance(guard, AsyncGuard)
        engine = guard._engine
        assert isinstance(engine, AsyncSqlite)
        other = sqlite3.connect(tmp_path / "bide.db", isolation_level=None)
        other.execute("begin immediate")

        claiming = asyncio.create_task(engine.claim(["order.pack"], 1, 60_000))
        await _taken_up(engine)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        other.execute("rollback")
        other.close()

        [delivery] = await queue.receive("order.pack")
        assert delivery.attempt == 1
        await delivery.ack()


async def _taken_up(engine: AsyncSqlite) -> None:
    """Until the thread that writes has begun with the job, and waits for the lock."""
    assert engine._executor is not None
    writer = engine._executor.database.writer
    while writer._waiting or not _held(writer._lock):  # noqa: ASYNC110  (a thread has no event to tell us)
        await asyncio.sleep(0.001)


def _held(lock: threading.RLock) -> bool:
    """Whether another thread has it."""
    if not lock.acquire(blocking=False):
        return True
    lock.release()
    return False


async def test_what_holds_a_lease_that_is_over_is_cancelled_and_moved(queue: Any, path: Path) -> None:
    last = await queue.send("t", "last", max_attempts=1)
    first, second = await queue.send("t", 1, key="1"), await queue.send("t", 2, key="2")
    dead, *_ = await queue.receive("t", limit=3, lease=0.01)  # and its receiver is gone
    assert dead.id == last.id
    while time.time() < max([(await queue.get(each)).lease_until / 1000 for each in (last, first, second)]):
        pass
    with closing(sqlite3.connect(path)) as own:
        for end in (own.rollback, own.commit):
            assert await queue.cancel(first, connection=own) is CancelResult.CANCELLED
            assert await queue.reschedule(topic="t", key="2", delay="1h", connection=own) is RescheduleResult.MOVED
            assert await queue.cancel(last, connection=own) is CancelResult.DEAD
            end()
    assert (await queue.get(first), (await queue.get(second)).state, (await queue.get(last)).state) == (
        None,
        "scheduled",
        "dead",
    )
    stats = await queue.stats("t")
    assert (stats.scheduled, stats.ready, stats.leased, stats.dead) == (1, 0, 0, 1)

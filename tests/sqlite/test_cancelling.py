"""What is cancelled while it waits for the file's lock never happens."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from bide import AsyncQueue
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

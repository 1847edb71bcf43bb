"""queue.lock: one holder at a time, told when it was lost."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncLock, AsyncQueue, Call, Hook, Locked, LockLost, Queue, Unavailable
from bide.engines.gates import Entry
from bide.queue.tasks.limits import lock_gate
from tests.worker.conftest import LONG, once


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.server)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        found: str = request.getfixturevalue("redis_url")
        return found
    return "memory://locks" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db"


class Entries(Hook):
    """Knows who has asked for a place, and was answered."""

    def __init__(self) -> None:
        self.holders: set[str] = set()

    def after(self, call: Call) -> None:
        if call.verb == "enter":
            self.holders.update(entry.holder for entry in call.asked)


@pytest.fixture
def entries() -> Entries:
    return Entries()


@pytest.fixture
async def queue(url: str, entries: Entries) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(url, hooks=[entries]) as made:
        yield made


async def asked(entries: Entries, lock: AsyncLock) -> None:
    """Until somebody has asked for this lock."""
    await once(lambda: lock._holder in entries.holders)


async def test_one_holds_a_lock_and_another_is_told_so(queue: AsyncQueue, url: str) -> None:
    async with AsyncQueue(url) as other:
        async with queue.lock("order:42"):
            with pytest.raises(Locked, match="The lock order:42 is taken: wait for it with wait=") as refused:
                await other.lock("order:42").__aenter__()
            locked = refused.value
            assert (locked.name, locked.retry_after) == ("order:42", 5)
            assert locked.remaining is not None
            assert 0 < locked.remaining <= 30
            with pytest.raises(Locked) as refused:
                await other.lock("order:42", wait=0.01).__aenter__()
            assert refused.value.remaining is not None
            async with other.lock("order:43"):
                pass
        async with other.lock("order:42"):
            pass


async def test_tokens_rise_from_holder_to_holder(queue: AsyncQueue) -> None:
    tokens = []
    for _ in range(5):
        async with queue.lock("order:42") as lock:
            assert not lock.lost
            lock.check()
            tokens.append(lock.token)
    assert tokens == sorted(set(tokens))
    with pytest.raises(LockLost, match="inside of the with block"):
        _ = lock.token


async def test_who_waits_gets_the_lock_in_turn(queue: AsyncQueue, entries: Entries) -> None:
    got: list[int] = []

    async def hold(lock: AsyncLock, n: int) -> None:
        async with lock:
            got.append(n)

    async with queue.lock("order:42"):
        waiting = []
        for n in range(4):
            lock = queue.lock("order:42", wait=LONG)
            waiting.append(asyncio.create_task(hold(lock, n)))
            await asked(entries, lock)
    await asyncio.gather(*waiting)
    assert got == [0, 1, 2, 3]


async def test_waiting_ends(queue: AsyncQueue) -> None:
    async with queue.lock("order:42"):
        with pytest.raises(Locked, match=r"The lock order:42 is taken, and was for 0.05 s\."):
            await queue.lock("order:42", wait=0.05).__aenter__()
    async with queue.lock("order:42"):  # nobody is called who has gone
        pass


async def test_who_is_cancelled_while_waiting_leaves_the_line(queue: AsyncQueue, entries: Entries) -> None:
    async with queue.lock("order:42"):
        lock = queue.lock("order:42", wait=LONG)
        waiting = asyncio.create_task(lock.__aenter__())
        await asked(entries, lock)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
    async with queue.lock("order:42"):
        pass


async def test_a_lock_is_renewed_while_it_is_held(queue: AsyncQueue, url: str) -> None:
    async with AsyncQueue(url) as other, queue.lock("order:42", ttl="300ms") as lock:
        with pytest.raises(Locked):
            await other.lock("order:42", wait=1).__aenter__()
        assert not lock.lost


async def test_a_holder_that_died_frees_its_lock(queue: AsyncQueue) -> None:
    gates = (await queue.session.engine()).gates
    [entered] = await gates.enter([Entry(lock_gate("order:42"), "somebody who dies", 200)])
    assert entered.token is not None
    async with queue.lock("order:42", wait=LONG) as lock:
        assert lock.token > entered.token


async def test_a_lock_that_was_lost_is_told(queue: AsyncQueue) -> None:
    gates = (await queue.session.engine()).gates
    lock = queue.lock("order:42", ttl="300ms")
    await lock.__aenter__()
    await gates.leave([lock._held])
    await once(lambda: lock.lost)
    with pytest.raises(LockLost, match="could not be renewed"):
        lock.check()
    with pytest.raises(LockLost, match="was lost before the block ended"):
        await lock.__aexit__(None, None, None)


async def test_an_error_in_the_block_comes_before_the_loss(queue: AsyncQueue) -> None:
    lock = queue.lock("order:42", ttl="1ms")
    await lock.__aenter__()
    await once(lambda: lock.lost)
    error = ZeroDivisionError()
    await lock.__aexit__(ZeroDivisionError, error, None)  # it goes on by itself


async def test_a_closed_queue_refuses_a_lock(queue: AsyncQueue) -> None:
    await queue.close()
    with pytest.raises(Unavailable, match="closed"):
        await queue.lock("order:42").__aenter__()


def test_threads_hold_a_lock_one_at_a_time(url: str) -> None:
    inside, most, done = 0, 0, 0
    queue = Queue(url)

    def work() -> None:
        nonlocal inside, most, done
        for _ in range(5):
            with queue.lock("order:42", wait=LONG):
                inside += 1
                most = max(most, inside)
                done += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    queue.close()
    assert (most, done) == (1, 30)


@pytest.mark.parametrize("options", [{"name": ""}, {"name": 1}, {"name": "x", "ttl": 0}, {"name": "x", "wait": -1}])
async def test_what_can_not_be_is_refused(options: dict[str, Any]) -> None:
    queue = AsyncQueue("memory://")
    with pytest.raises(ValueError, match=r"name|ttl|wait"):
        queue.lock(**options)

"""What a worker makes of what a batch handler answers, or raises, without standing still for it."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bide import AsyncQueue, Bury, Failed
from bide.queue import deliveries
from tests.worker.conftest import Working

LONG = "1h"  # nobody waits for it


async def left(queue: AsyncQueue) -> int:
    stats = await queue.stats()
    return stats.scheduled + stats.ready + stats.leased


async def test_a_generator_that_a_sync_handler_returns_goes_on_in_its_thread(
    memory: AsyncQueue, working: Working, until: Any
) -> None:
    threads: list[str] = []

    def answer(likes: list[int]) -> Iterator[Failed]:
        threads.append(threading.current_thread().name)
        yield Failed(likes[0], Bury("odd"))

    @memory.task("likes", batch=2, linger=LONG)
    def write(likes: list[int]) -> Iterator[Failed]:
        threads.append(threading.current_thread().name)
        return answer(likes)

    await write.send_many(range(2))
    async with working(memory):

        async def ended() -> bool:
            return (await memory.stats("likes")).dead == 1 and await left(memory) == 0

        await until(ended)
    assert threads[0] == threads[1] != threading.current_thread().name


async def test_the_traceback_of_a_batch_is_written_once(
    memory: AsyncQueue, working: Working, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[BaseException] = []
    plain = deliveries.traceback_text

    def text(raised: BaseException) -> str | None:
        written.append(raised)
        return plain(raised)

    monkeypatch.setattr(deliveries, "traceback_text", text)

    @memory.task("likes", batch=100, linger=LONG, max_attempts=1)
    async def write(likes: list[int]) -> None:
        raise OSError("the database is away")

    sent = await write.send_many(range(100))
    async with working(memory):

        async def ended() -> bool:
            return (await memory.stats("likes")).dead == 100

        await until(ended)
    assert len(written) == 1
    infos = [await memory.get(each) for each in sent]
    told = {info.attempts[0].traceback for info in infos if info is not None}
    assert len(told) == 1
    assert "the database is away" in str(told)

"""A worker on an engine that tells nothing of what is pending, and keeps no results, limits or records."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bide import AsyncQueue, Bury, Retry, Snooze, Unsupported, Worker
from bide.engines.memory.aio import AsyncMemory
from tests.modest import LONGEST
from tests.worker.conftest import Working

Soon = Callable[[Any], Any]


@pytest.fixture
async def queue(modest_url: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(modest_url) as queue:
        yield queue


async def test_tasks_are_handled_tried_again_and_buried(queue: AsyncQueue, working: Working, soon: Soon) -> None:
    calls: list[tuple[int, int]] = []
    done = asyncio.Event()

    async def told(reason: str) -> None:
        if len(calls) == 4:
            done.set()

    @queue.task("t", on_dead=lambda delivery, reason: told(reason), max_attempts=2)
    async def handle(n: int) -> None:
        attempt = sum(each == n for each, _ in calls) + 1
        calls.append((n, attempt))
        if n == 2 and attempt == 1:
            raise Retry(0)
        if n == 2:
            raise Bury("no use")
        if len(calls) == 4:
            done.set()
        if n == 3:
            raise Bury("at once")

    async with working(queue):
        await handle.send_many([{"n": n} for n in (1, 2, 3)])
        await soon(done.wait())
    assert sorted(calls) == [(1, 1), (2, 1), (2, 2), (3, 1)]
    assert sorted(each.last_error or "" for each in await queue.messages("t", state="dead")) == ["at once", "no use"]


async def test_a_worker_does_not_ask_what_waits(
    queue: AsyncQueue, working: Working, soon: Soon, caplog: pytest.LogCaptureFixture
) -> None:
    done = asyncio.Event()

    @queue.task("t")
    async def handle() -> None:
        done.set()

    await handle.send()
    with caplog.at_level("DEBUG", "bide.worker"):
        async with working(queue):
            await soon(done.wait())
    assert "without a handler" not in caplog.text


async def test_batches_are_handled(queue: AsyncQueue, working: Working, soon: Soon) -> None:
    got: list[int] = []
    done = asyncio.Event()

    @queue.task("t", batch=10, linger="10ms")
    async def handle(each: list[int]) -> None:
        got.extend(each)
        if len(got) == 5:
            done.set()

    await handle.send_many(range(5))
    async with working(queue):
        await soon(done.wait())
    assert sorted(got) == [0, 1, 2, 3, 4]


async def test_a_handler_that_asks_for_too_long_a_wait_gets_the_longest(
    queue: AsyncQueue, working: Working, soon: Soon, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    settle = AsyncMemory.settle

    async def seen(self: AsyncMemory, ends: Any, **options: Any) -> Any:
        ended.set_result(ends[0].delay)
        return await settle(self, ends, **options)

    monkeypatch.setattr(AsyncMemory, "settle", seen)

    @queue.task("t")
    async def handle() -> None:
        raise Snooze("30000d")

    await handle.send()
    async with working(queue):
        assert await soon(ended) == LONGEST


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"keep": "1h"}, "keeps no results: leave out keep= of "),
        ({"concurrency": 2}, "keeps no limits: leave out concurrency=, rate= and lock= of "),
        ({"rate": "10/s"}, "keeps no limits: leave out concurrency=, rate= and lock= of "),
        ({"catch_up": "latest"}, "can't sort out overdue messages: leave out catch_up= of "),
        ({"catch_up": "10/s"}, "can't sort out overdue messages: leave out catch_up= of "),
    ],
)
async def test_a_worker_refuses_what_its_engine_can_not_do(queue: AsyncQueue, options: dict[str, Any], refused: str) -> None:
    @queue.task("t", **options)
    async def handle() -> None: ...

    with pytest.raises(Unsupported) as error:
        await Worker(queue).run(signals=False)
    assert str(error.value).startswith(f"modest:// {refused}")
    assert "These engines can: sqlite://, redis://, postgres:// and memory://." in str(error.value)


async def test_a_worker_refuses_schedules(queue: AsyncQueue) -> None:
    @queue.every("5m")
    async def handle() -> None: ...

    with pytest.raises(Unsupported, match=r"modest:// can't keep schedules: leave out @queue\.every\. These engines can: "):
        await Worker(queue).run(signals=False)

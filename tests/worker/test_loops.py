"""An AsyncQueue whose event loop is over is at home in the next one."""

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bide import AsyncQueue, Worker
from tests.worker.conftest import once

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # the first loop was closed over its connections
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What the first loop left open is found here, where nobody minds."""
    yield
    gc.collect()
    gc.collect()


def ours() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("bide-")]


def counts(worker: Worker) -> tuple[int, int, int]:
    health = worker.health()
    return health.running, health.done, health.failed


def test_a_queue_opens_anew_when_its_event_loop_was_closed(url: str) -> None:
    queue = AsyncQueue(url)
    handled: list[str] = []

    @queue.task("a")
    async def handle() -> None:
        handled.append((await queue.send("x", 1)).outcome)

    async def seed() -> None:
        await handle.send()

    async def work() -> None:
        async with queue, Worker(queue):
            await once(lambda: handled)

    for _ in range(3):
        asyncio.run(seed())
    asyncio.run(work())
    assert handled[0] == "created"


def test_nothing_of_the_closed_loop_goes_on(url: str) -> None:
    queue = AsyncQueue(url)
    before = ours()

    async def hold() -> Any:
        await queue.send("a", 1)
        assert await queue.receive("b", wait="50ms") == []
        listening = queue.listen("a", lease="200ms")
        return await anext(listening), listening  # and the loop ends over it

    async def take() -> None:
        async def came() -> bool:
            found = await queue.receive("a")
            for each in found:
                assert each.attempt == 2
                await each.ack()
            return bool(found)

        await once(came)  # its lease is not renewed any more
        await queue.close()

    held = asyncio.run(hold())
    asyncio.run(take())
    assert asyncio.run(wait_for_end(before))
    del held


async def wait_for_end(before: list[str]) -> bool:
    await once(lambda: len(ours()) <= len(before))
    return True


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio has no eager tasks before Python 3.12")
def test_a_loop_that_begins_tasks_before_it_gives_them_serves_a_worker(url: str) -> None:
    queue, handled = AsyncQueue(url), list[int]()

    @queue.task("a")
    async def quick(number: int) -> None:
        handled.append(number)

    @queue.task("b")
    async def slow(number: int) -> None:
        await asyncio.sleep(0)
        handled.append(number)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined, unused-ignore]
        async with Worker(queue, concurrency=5):
            for number in range(20):
                await quick.send(number)
            await slow.send_many({"number": number} for number in range(20, 40))
            await once(lambda: len(handled) == 40)
        await queue.close()

    asyncio.run(main())
    assert sorted(handled) == list(range(40))


async def test_what_ends_at_once_and_what_does_not_leave_no_place_taken(queue: AsyncQueue, until: Any) -> None:
    open_gate = asyncio.Event()

    @queue.task("a", max_attempts=1)
    async def handle(number: int) -> None:
        if number % 4 == 1:
            await asyncio.sleep(0)
        if number % 4 == 2:
            await open_gate.wait()
        if number % 4 == 3:
            raise ValueError("no tape")

    await queue.send_many("a", [{"number": number} for number in range(40)])
    async with Worker(queue, concurrency=11) as worker:
        await until(lambda: counts(worker) == (10, 20, 10))
        open_gate.set()
        await until(lambda: counts(worker) == (0, 30, 10))
    assert (await queue.stats("a")).dead == 10

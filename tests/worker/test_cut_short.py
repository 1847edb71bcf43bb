"""A stop that is cancelled itself, at every instant it can be; and one that meets an executor which is full."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bide import AsyncQueue
from bide.worker import Worker
from tests.worker.conftest import once
from tests.worker.faults import Faults


class Cut:
    """Cancels a kind of task when it has come to its n-th await since the stop began."""

    def __init__(self, kind: str, at: int, *, all_at_once: bool) -> None:
        self.kind = kind
        self.left = at
        self.done = False
        self._armed = False
        self._watched: list[asyncio.Task[Any]] = []
        self._all = all_at_once
        self._spared = asyncio.current_task()

    def __enter__(self) -> "Cut":
        asyncio.get_running_loop().set_task_factory(self._make)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.get_running_loop().set_task_factory(None)

    def begin(self) -> None:
        """The stop begins: where a task stands now is its first await."""
        self._armed = True
        for task in self._watched:
            if not task.done():
                self._stands(task)

    def _make(self, loop: asyncio.AbstractEventLoop, inner: Any, **how: Any) -> "asyncio.Task[Any]":
        if getattr(inner, "__qualname__", "") != self.kind:
            return asyncio.Task(inner, loop=loop, **how)
        watched = Watched(inner, self._stands)
        watched.task = asyncio.Task(watched, loop=loop, **how)
        self._watched.append(watched.task)
        return watched.task

    def _stands(self, task: "asyncio.Task[Any]") -> None:
        if not self._armed or self.done:
            return
        self.left -= 1
        if not self.left:
            self.done = True
            hit = asyncio.all_tasks() - {self._spared} if self._all else {task}
            for each in hit:
                asyncio.get_running_loop().call_soon(each.cancel)


class Watched(Coroutine[Any, Any, Any]):
    """A coroutine that tells whenever it comes to an await."""

    task: "asyncio.Task[Any]"

    def __init__(self, inner: Coroutine[Any, Any, Any], stands: Callable[["asyncio.Task[Any]"], None]) -> None:
        self._inner = inner
        self._stands = stands

    def send(self, value: Any) -> Any:
        awaited = self._inner.send(value)
        self._stands(self.task)
        return awaited

    def throw(self, *error: Any) -> Any:
        awaited = self._inner.throw(*error)
        self._stands(self.task)
        return awaited

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()


async def stopped(queue: AsyncQueue, cut: Cut) -> None:
    """One worker from its beginning to its end; nothing of it may be left."""
    begun: list[str] = []
    let_go = threading.Event()

    @queue.task("quick")
    async def quick() -> None:
        begun.append("quick")

    @queue.task("endless", max_attempts=1)
    async def endless() -> None:
        begun.append("endless")
        await asyncio.Event().wait()

    @queue.task("thread", max_attempts=1)
    def thread() -> None:
        begun.append("thread")
        let_go.wait(20)

    before = asyncio.all_tasks()
    worker = Worker(queue, grace="30ms", lease="1m")
    with cut:
        for task in (quick, endless, thread):
            await task.send()
        running = asyncio.create_task(worker.run(signals=False))
        await once(lambda: set(begun) == {"quick", "endless", "thread"})
        assert worker._service is not None
        cut.begin()
        worker._service.stop()
        await asyncio.wait({running}, timeout=20)
    assert running.done(), f"a stop that was cancelled does not end: {running}"
    let_go.set()
    await once(lambda: asyncio.all_tasks() <= before)
    await once(lambda: not [each.name for each in threading.enumerate() if each.name.startswith(("bide-hand", "bide-heart"))])


async def purge(queue: AsyncQueue) -> None:
    for topic in ("endless", "thread"):
        await queue.purge(topic, state="ready")


@pytest.mark.parametrize("kind", ["Worker.run", "Service.run", "Settling._work", "Claiming.run"])
async def test_a_stop_that_is_cancelled_at_any_await_ends_and_gives_back(queue: AsyncQueue, kind: str) -> None:
    for number in range(1, 100):
        cut = Cut(kind, number, all_at_once=False)
        await stopped(queue, cut)
        stats = await queue.stats()
        assert (stats.leased, stats.dead, stats.ready) == (0, 0, 2), f"cancelled at await {number} of {kind}"
        await purge(queue)
        if not cut.done:
            break
    assert not cut.done
    assert number > 1 or kind in ("Settling._work", "Claiming.run")  # in memory they come to no await there


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)  # a server's connections can't be closed any more then
async def test_a_stop_ends_when_the_loop_cancels_all_its_tasks_at_any_await(queue: AsyncQueue) -> None:
    """As asyncio.run does at its end."""
    for number in range(1, 100):
        cut = Cut("Service.run", number, all_at_once=True)
        await stopped(queue, cut)
        stats = await queue.stats()
        assert (stats.leased, stats.dead, stats.ready) == (0, 0, 2), f"cancelled at await {number}"
        await purge(queue)
        if not cut.done:
            break
    assert number > 1
    assert not cut.done


async def test_a_stop_does_not_need_the_executor_of_the_loop(queue: AsyncQueue, soon: Any) -> None:
    let_go = threading.Event()
    full = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(full)
    begun = asyncio.Event()

    @queue.task("a", max_attempts=1)
    async def handle() -> None:
        begun.set()
        await asyncio.to_thread(let_go.wait, 60)

    try:
        await handle.send()
        async with Worker(queue, grace="30ms"):
            await soon(begun.wait())
            assert (await soon(queue.stats("a"))).leased == 1
        [message] = await soon(queue.messages("a"))
        assert (message.state, message.attempt) == ("ready", 0)
        assert not let_go.is_set()
    finally:
        let_go.set()
        full.shutdown()


async def test_a_stop_does_not_wait_for_an_engine_that_does_not_open(queue: AsyncQueue, soon: Any, faults: Faults) -> None:
    asked_for = asyncio.Event()

    async def hang(call: Any, asked: Any) -> Any:
        asked_for.set()
        await asyncio.Event().wait()

    @queue.task("a")
    async def handle() -> None:
        """It is never called."""

    faults.around["open"] = hang
    worker = Worker(queue, grace="30ms")
    running = asyncio.create_task(worker.run(signals=False))
    await soon(asked_for.wait())
    await soon(worker.stop())
    await soon(running)

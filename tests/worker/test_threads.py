"""Threads for sync handlers: so many and no more, begun when they are needed, and gone when the worker is."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bide import AsyncQueue
from bide.queue.run import threads as threads_
from bide.queue.run.threads import Threads
from tests.worker.faults import no_threads
from tests.worker.test_running import ended


@pytest.fixture
async def three() -> Any:
    threads = Threads(3, asyncio.get_running_loop())
    yield threads
    threads.close()


def handlers() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("bide-handler")]


async def test_a_thread_is_begun_when_one_is_needed_and_used_again(three: Threads, until: Any) -> None:
    seen = set()
    await until(lambda: not handlers())  # those of other tests have ended

    for _ in range(10):
        await three.run(lambda: seen.add(threading.get_ident()))

    assert len(seen) == 1
    assert len(handlers()) == 1


async def test_no_more_are_begun_than_were_asked_for(three: Threads, until: Any, soon: Any) -> None:
    here = threading.Barrier(3)
    seen = set()
    await until(lambda: not handlers())

    def work() -> None:
        here.wait(10)
        seen.add(threading.get_ident())

    await soon(asyncio.gather(*(three.run(work) for _ in range(12))))

    assert len(seen) == 3
    assert len(handlers()) == 3


async def test_an_error_goes_to_whoever_waits(three: Threads, soon: Any) -> None:
    async def run(error: BaseException) -> BaseException | None:
        def work() -> None:
            raise error

        try:
            await soon(three.run(work))
        except BaseException as raised:
            return raised
        return None

    for error in (ValueError("x"), SystemExit(2), asyncio.CancelledError("x"), BaseExceptionGroup("x", [SystemExit(1)])):
        assert type(await run(error)) is type(error)
    stopped = await run(StopIteration("over"))
    assert isinstance(stopped, RuntimeError)
    assert "over" in str(stopped)
    for stop in (KeyboardInterrupt(), GeneratorExit()):  # they would end the event loop
        assert isinstance(await run(stop), RuntimeError)


async def test_work_runs_in_a_copy_of_the_callers_context(three: Threads) -> None:
    mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark")
    seen: list[str] = []

    def work() -> None:
        seen.append(mark.get())
        mark.set("inside")

    mark.set("outside")
    await three.run(work)
    await three.run(work)

    assert seen == ["outside", "outside"]
    assert mark.get() == "outside"


async def test_many_that_end_together_are_all_heard(soon: Any) -> None:
    threads = Threads(8, asyncio.get_running_loop())
    count = 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal count
        with lock:
            count += 1

    for _ in range(20):
        await soon(asyncio.gather(*(threads.run(work) for _ in range(100))))
    threads.close()

    assert count == 2_000


async def test_whoever_no_longer_waits_is_not_told(three: Threads, until: Any) -> None:
    begun, go_on, ended_ = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(10)
        ended_.set()

    waiting = three.run(work)
    await until(begun.is_set)
    waiting.cancel()
    go_on.set()
    await until(ended_.is_set)

    await three.run(lambda: None)  # and the threads go on as they should


def test_a_thread_that_ends_after_its_loop_says_nothing() -> None:
    go_on, over = threading.Event(), threading.Event()

    async def main() -> None:
        threads = Threads(1, asyncio.get_running_loop())

        def work() -> None:
            go_on.wait(10)

        threads.run(work).cancel()
        threads.close()

    asyncio.run(main())
    for thread in _watched(over):
        go_on.set()
        thread.join(10)

    assert over.is_set()


def _watched(over: threading.Event) -> Iterator[threading.Thread]:
    for each in threading.enumerate():
        if each.name.startswith("bide-handler"):
            yield each
    over.set()


async def test_the_threads_end_with_the_worker(memory: AsyncQueue, working: Any, until: Any) -> None:
    await until(lambda: not handlers())

    @memory.task("s")
    def handle() -> None:
        pass

    await memory.send_many("s", [{}] * 50)
    async with working(memory, threads=5):
        await until(lambda: ended(memory))
        assert 1 <= len(handlers()) <= 5

    await until(lambda: not handlers())


async def test_a_worker_without_sync_tasks_begins_no_thread_for_them(memory: AsyncQueue, working: Any, until: Any) -> None:
    await until(lambda: not handlers())

    @memory.task("a")
    async def handle() -> None:
        pass

    await memory.send_many("a", [{}] * 50)
    async with working(memory):
        await until(lambda: ended(memory))
        assert not handlers()


async def test_a_blocked_thread_does_not_hold_up_the_loop_or_other_threads(
    memory: AsyncQueue, working: Any, until: Any
) -> None:
    let_go = threading.Event()
    handled: list[int] = []

    @memory.task("stuck")
    def stuck() -> None:
        let_go.wait(10)

    @memory.task("s")
    def quick() -> None:
        handled.append(1)

    @memory.task("a")
    async def in_loop() -> None:
        handled.append(2)

    await memory.send_many("stuck", [{}] * 50)
    await memory.send_many("s", [{}] * 50)
    await memory.send_many("a", [{}] * 50)
    async with working(memory, threads=10):
        await until(lambda: len(handled) == 100)
        assert (await memory.stats("stuck")).leased == 9
        let_go.set()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that could not be started is tried again very soon."""
    monkeypatch.setattr(threads_, "AGAIN", 0.01)


@pytest.mark.usefixtures("at_once")
async def test_while_no_thread_can_be_started_sync_messages_stay_and_cost_no_attempt(
    queue: AsyncQueue, working: Any, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[tuple[str, int]] = []

    @queue.task("s", max_attempts=1)
    def in_thread(number: int) -> None:
        handled.append(("s", number))

    @queue.task("a")
    async def in_loop(number: int) -> None:
        handled.append(("a", number))

    await until(lambda: not handlers())  # those of other tests have ended
    async with working(queue, threads=4) as worker:
        with no_threads("bide-handler") as refused:
            for number in range(10):
                await in_thread.send(number)
                await in_loop.send(number)
            await until(lambda: len(refused) > 10)
            await until(lambda: len(handled) == 10)
            await until(lambda: worker.health().running == 0)
            assert (await queue.stats("s")).ready == 10
        await until(lambda: ended(queue))

    assert sorted(handled) == [(topic, number) for topic in "as" for number in range(10)]
    assert worker.health().failed == 0
    assert caplog.text.count("A thread for sync handlers can't be started") == 1
    assert caplog.text.count("Threads for sync handlers can be started again") == 1


@pytest.mark.usefixtures("at_once")
async def test_the_threads_that_are_there_do_the_work_of_those_that_could_not_be_started(until: Any, soon: Any) -> None:
    threads = Threads(3, asyncio.get_running_loop())
    here = threading.Barrier(3)
    await until(lambda: not handlers())
    assert threads.ready()
    with no_threads("bide-handler") as refused:
        await soon(asyncio.gather(*(threads.run(lambda: None) for _ in range(9))))
        assert len(handlers()) == 1
        assert refused
        waiting = asyncio.gather(*(threads.run(lambda: here.wait(10)) for _ in range(3)))
    await soon(waiting)  # all three are there at once

    assert len(handlers()) == 3
    threads.close()


@pytest.mark.usefixtures("at_once")
async def test_a_worker_that_stops_while_no_thread_can_be_started_ends(queue: AsyncQueue, working: Any, until: Any) -> None:
    @queue.task("s", max_attempts=1)
    def in_thread() -> None:
        """It never runs."""

    await in_thread.send()
    with no_threads("bide") as refused:
        async with working(queue):
            await until(lambda: refused)
    [message] = await queue.messages("s")
    assert (message.state, message.attempt) == ("ready", 0)


async def test_leases_are_renewed_as_soon_as_a_thread_for_that_can_be_started(
    queue: AsyncQueue, working: Any, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @queue.task("a", max_attempts=1)
    async def handle() -> None:
        begun.set()
        await go_on.wait()

    await handle.send()
    async with AsyncExitStack() as stack:
        with no_threads("bide-heartbeat") as refused:
            worker = await stack.enter_async_context(working(queue, lease="1m", grace="20s"))
            await begun.wait()
            await until(lambda: len(refused) > 1)
        await until(lambda: any(each.name == "bide-heartbeat" for each in threading.enumerate()))
        go_on.set()
        await until(lambda: worker.health().done == 1)

    assert caplog.text.count("No thread can be started to renew leases") == 1

"""How a worker ends: it takes nothing more, gives back what has not begun, and waits for the rest no longer than `grace`."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bide import AsyncQueue, ConfigError, Queue, current
from bide.worker import Worker
from tests.worker.conftest import once
from tests.worker.faults import Faults


@asynccontextmanager
async def begun(worker: Worker) -> AsyncIterator["asyncio.Task[None]"]:
    """A worker at work; a test that leaves it at work kills it."""
    running = asyncio.create_task(worker.run(signals=False))
    await once(lambda: worker._service is not None and worker._service.begun.is_set())
    try:
        yield running
    finally:
        while not running.done():
            running.cancel()
            await asyncio.wait({running}, timeout=0.1)


async def end_by_stop(worker: Worker, running: "asyncio.Task[None]") -> None:
    await worker.stop()
    await running


async def end_by_cancelling(worker: Worker, running: "asyncio.Task[None]") -> None:
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


ENDS = pytest.mark.parametrize("end", [end_by_stop, end_by_cancelling])


@ENDS
async def test_handlers_get_grace_and_nothing_more_is_claimed(queue: AsyncQueue, until: Any, soon: Any, end: Any) -> None:
    began: list[int] = []
    let_go = asyncio.Event()

    @queue.task("a")
    async def handle(number: int) -> None:
        began.append(number)
        await let_go.wait()

    await queue.send_many("a", [{"number": number} for number in range(5)])
    worker = Worker(queue, concurrency=2)
    async with begun(worker) as running:
        await until(lambda: len(began) == 2)
        ending = asyncio.create_task(end(worker, running))
        await until(lambda: worker._service is None or worker._service._stopping.is_set())
        await queue.send("a", {"number": 9})
        assert not ending.done()
        let_go.set()
        await soon(ending)

    assert len(began) == 2
    stats = await queue.stats("a")
    assert (stats.ready, stats.leased) == (4, 0)


async def test_leaving_the_block_is_a_stop(queue: AsyncQueue, until: Any) -> None:
    ended: list[int] = []

    @queue.task("a")
    async def handle() -> None:
        ended.append(0)
        await asyncio.sleep(0.05)
        ended.append(1)

    await handle.send()
    async with Worker(queue):
        await until(lambda: ended == [0])

    assert ended == [0, 1]
    assert (await queue.stats("a")).leased == 0
    assert (await queue.stats("a")).ready == 0


@ENDS
async def test_after_grace_a_handler_is_cancelled_and_its_message_given_back_uncounted(
    queue: AsyncQueue, until: Any, soon: Any, end: Any
) -> None:
    order: list[str] = []

    @queue.task("a", max_attempts=1)
    async def handle() -> None:
        order.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            order.append(f"cancelled, expired: {current().expired}")

    await handle.send()
    worker = Worker(queue, grace="50ms")
    async with begun(worker) as running:
        await until(lambda: order)
        await soon(end(worker, running))

    assert order == ["begun", "cancelled, expired: True"]
    [message] = await queue.messages("a")
    assert message.state == "ready"
    assert message.attempt == 0


@ENDS
async def test_after_grace_a_sync_handler_is_told_and_its_message_given_back_uncounted(
    queue: AsyncQueue, until: Any, soon: Any, end: Any
) -> None:
    began, let_go, ended = threading.Event(), threading.Event(), threading.Event()
    expired: list[bool] = []

    @queue.task("s", max_attempts=1)
    def handle() -> None:
        delivery = current()
        began.set()
        let_go.wait(10)
        expired.append(delivery.expired)
        ended.set()

    await handle.send()
    worker = Worker(queue, grace="50ms")
    async with begun(worker) as running:
        await until(began.is_set)
        await soon(end(worker, running))
        assert not ended.is_set()  # nobody waits for the thread
        [message] = await queue.messages("s")
        assert message.state == "ready"
        assert message.attempt == 0
        let_go.set()
        await until(ended.is_set)

    assert expired == [True]
    [message] = await queue.messages("s")
    assert (message.state, message.attempt) == ("ready", 0)


async def test_what_a_handler_says_while_it_is_cancelled_is_heard(queue: AsyncQueue, until: Any) -> None:
    began: list[str] = []

    @queue.task("a", max_attempts=2)
    async def handle(what: str) -> None:
        began.append(what)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if what == "fails":
                raise ValueError("while tidying up") from None
            if what == "retries":
                await current().retry("1h")

    for what in ("done", "fails", "retries"):
        await handle.send(what)
    worker = Worker(queue, grace=0)
    async with begun(worker):
        await until(lambda: len(began) == 3)
        await worker.stop()

    left = {each.body["what"]: each for each in await queue.messages("a")}
    assert set(left) == {"fails", "retries"}
    assert left["fails"].last_error == "ValueError: while tidying up"
    assert left["fails"].attempt == 1
    assert left["retries"].state == "scheduled"


async def test_a_handler_that_ignores_its_cancellation_does_not_hold_the_stop_up(
    queue: AsyncQueue, until: Any, soon: Any
) -> None:
    began, let_go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @queue.task("a", max_attempts=1)
    async def handle() -> None:
        began.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    await handle.send()
    worker = Worker(queue, grace="50ms")
    async with begun(worker) as running:
        await soon(began.wait())
        start = time.monotonic()
        try:
            await worker.stop()
            await running
            assert time.monotonic() - start < 0.05 + 1 + 3  # seconds for a busy machine
            assert not ended.is_set()
            [message] = await queue.messages("a")
            assert (message.state, message.attempt) == ("ready", 0)
        finally:
            let_go.set()  # or the loop would wait for it after a failure, too
        await soon(ended.wait())

    [message] = await queue.messages("a")
    assert (message.state, message.attempt) == ("ready", 0)


async def test_a_claim_that_is_under_way_is_given_back_unstarted_at_once(
    queue: AsyncQueue, until: Any, soon: Any, faults: Faults
) -> None:
    claimed, let_go = asyncio.Event(), asyncio.Event()
    began: list[str] = []

    async def slow(call: Any, asked: Any) -> Any:
        answer = await call()
        if answer.messages and "a" in asked[0]:
            claimed.set()
            await let_go.wait()
        return answer

    @queue.task("slow")
    async def slow_one() -> None:
        began.append("slow")
        await asyncio.Event().wait()

    @queue.task("a")
    async def handle() -> None:
        began.append("a")

    await slow_one.send()
    worker = Worker(queue, grace="10s")
    async with begun(worker):
        await until(lambda: began == ["slow"])
        faults.around["claim"] = slow
        await queue.send_many("a", [{}] * 3)
        await soon(claimed.wait())
        stopping = asyncio.create_task(worker.stop())
        await until(lambda: worker._service is not None and worker._service._stopping.is_set())
        assert (await queue.stats("a")).leased == 3
        let_go.set()
        await until(lambda: all_ready(queue, 3))  # while the slow one has its grace
        assert not stopping.done()
        stopping.cancel()

    assert began == ["slow"]
    assert {each.attempt for each in await queue.messages("a")} == {0}


async def all_ready(queue: AsyncQueue, number: int) -> bool:
    return (await queue.stats("a")).ready == number


async def test_being_cancelled_twice_ends_at_once(queue: AsyncQueue, until: Any, soon: Any) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    @queue.task("a", max_attempts=1)
    async def handle() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await handle.send()
    worker = Worker(queue, grace="1h")
    async with begun(worker) as running:
        await soon(began.wait())
        running.cancel()
        await until(lambda: worker._service is not None and worker._service._stopping.is_set())
        await asyncio.sleep(0)
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(running)

    assert cancelled.is_set()
    [message] = await queue.messages("a")
    assert (message.state, message.attempt) == ("ready", 0)


async def test_being_cancelled_twice_in_a_row_ends_at_once_too(queue: AsyncQueue, until: Any, soon: Any) -> None:
    began = asyncio.Event()

    @queue.task("a")
    async def handle() -> None:
        began.set()
        await asyncio.Event().wait()

    await handle.send()
    worker = Worker(queue, grace="1h")
    async with begun(worker) as running:
        await soon(began.wait())
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(running)

    assert await all_ready(queue, 1)


@pytest.mark.parametrize("apart", [0, 1, 2, 3])
async def test_two_cancels_in_a_row_leave_nothing_behind(queue: AsyncQueue, until: Any, soon: Any, apart: int) -> None:
    @queue.task("a")
    async def handle() -> None:
        pass

    before = asyncio.all_tasks()
    worker = Worker(queue, grace="1h", lease="100ms")
    async with begun(worker) as running:
        await handle.send()
        running.cancel()
        for _ in range(apart):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(running)

    await until(lambda: asyncio.all_tasks() <= before)
    await until(lambda: handled_or_back(queue))  # a claim that was cut off comes back when its lease ends


async def handled_or_back(queue: AsyncQueue) -> bool:
    for delivery in await queue.receive("a"):
        await delivery.ack()
    stats = await queue.stats("a")
    return not (stats.leased or stats.ready)


async def test_a_loop_that_shuts_down_gives_back_what_runs(url: str) -> None:
    """As at the end of asyncio.run: all tasks are cancelled at once, in no order."""

    with Queue(url) as queue:
        began = 0

        @queue.task("a", max_attempts=1)
        async def handle() -> None:
            nonlocal began
            began += 1
            await asyncio.Event().wait()

        async def main() -> None:
            running = asyncio.create_task(Worker(queue).run(signals=False))
            await once(lambda: began == 3)
            assert not running.done()

        queue.send_many("a", [{}] * 3)
        await asyncio.to_thread(asyncio.run, main())

        assert [(each.state, each.attempt) for each in queue.messages("a")] == [("ready", 0)] * 3


async def test_an_engine_that_fails_during_the_stop_does_not_hold_it_up(
    queue: AsyncQueue, until: Any, soon: Any, faults: Faults, caplog: Any
) -> None:
    began = asyncio.Event()

    @queue.task("a")
    async def handle() -> None:
        began.set()
        await asyncio.Event().wait()

    await handle.send()
    worker = Worker(queue, grace=0, lease="200ms")
    async with begun(worker) as running:
        await soon(began.wait())
        for verb in ("settle", "claim", "tend", "wait", "stats"):
            faults.fail(verb)
        await soon(worker.stop())
        await running

    assert "could not be told how 1 message ended" in caplog.text
    del faults.around["settle"]
    await until(lambda: comes_back(queue))


async def comes_back(queue: AsyncQueue) -> bool:
    return bool(await queue.receive("a"))


async def test_ends_that_the_engine_takes_during_the_stop_are_not_lost(
    queue: AsyncQueue, until: Any, soon: Any, faults: Faults
) -> None:
    began = asyncio.Event()

    @queue.task("a")
    async def handle() -> None:
        began.set()
        await asyncio.Event().wait()

    await handle.send()
    worker = Worker(queue, grace=0)
    async with begun(worker) as running:
        await soon(began.wait())
        failures = faults.fail("settle", times=2)
        await soon(worker.stop())
        await running

    assert len(failures) == 2
    assert await all_ready(queue, 1)


async def test_a_stop_before_the_worker_runs_changes_nothing(memory: AsyncQueue, until: Any) -> None:
    handled: list[int] = []

    @memory.task("a")
    async def handle() -> None:
        handled.append(1)

    worker = Worker(memory)
    await worker.stop()
    await handle.send()
    async with worker:
        await until(lambda: handled == [1])


async def test_a_stop_before_the_engine_was_reached_ends_the_worker(queue: AsyncQueue, soon: Any, faults: Faults) -> None:
    @queue.task("a")
    async def handle() -> None:
        pass

    failures = faults.fail("open")
    worker = Worker(queue)
    running = asyncio.create_task(worker.run(signals=False))
    await once(lambda: bool(failures))
    await soon(worker.stop())
    await soon(running)


async def test_stopping_again_waits_for_the_same_end(memory: AsyncQueue, soon: Any) -> None:
    @memory.task("a")
    async def handle() -> None:
        pass

    worker = Worker(memory)
    async with begun(worker) as running:
        await soon(asyncio.gather(worker.stop(), worker.stop()))
        await worker.stop()
        await soon(running)
    await worker.stop()


async def test_a_worker_that_runs_is_not_run_again(memory: AsyncQueue, until: Any) -> None:
    handled: list[int] = []

    @memory.task("a")
    async def handle() -> None:
        handled.append(1)

    worker = Worker(memory)
    async with worker:
        with pytest.raises(ConfigError, match="running already"):
            await worker.run(signals=False)
        with pytest.raises(ConfigError, match="running already"):
            await worker.__aenter__()
        await handle.send()
        await until(lambda: handled == [1])


def test_a_worker_can_be_run_again_also_in_another_loop(url: str) -> None:

    handled: list[int] = []
    with Queue(url) as queue:

        @queue.task("a")
        async def handle(number: int) -> None:
            handled.append(number)

        worker = Worker(queue)

        async def twice(first: int) -> None:
            for number in (first, first + 1):
                queue.send("a", {"number": number})
                async with worker:
                    await once(lambda: handled[-1:] == [number])  # noqa: B023

        asyncio.run(twice(0))
        asyncio.run(twice(2))

    assert handled == [0, 1, 2, 3]


async def test_no_task_of_a_worker_outlives_it(queue: AsyncQueue, until: Any, soon: Any, faults: Faults) -> None:
    handled: list[int] = []

    @queue.task("a", timeout="10s")
    def handle() -> None:
        handled.append(1)

    before = asyncio.all_tasks()
    async with Worker(queue):
        await queue.send_many("a", [{}] * 10)
        await until(lambda: len(handled) == 10)

    assert asyncio.all_tasks() <= before
    assert not [each.name for each in threading.enumerate() if "heartbeat" in each.name]
    await until(lambda: not [each.name for each in threading.enumerate() if "handler" in each.name])


async def test_an_engine_that_never_answers_a_claim_does_not_hold_the_stop_up_for_ever(
    queue: AsyncQueue, until: Any, soon: Any, faults: Faults
) -> None:
    asked_for = asyncio.Event()

    async def hang(call: Any, asked: Any) -> Any:
        asked_for.set()
        await asyncio.Event().wait()

    @queue.task("a")
    async def handle() -> None:
        pass

    worker = Worker(queue, grace="50ms")
    async with begun(worker) as running:
        faults.around["claim"] = hang
        await handle.send()
        await soon(asked_for.wait())
        await soon(worker.stop())
        await soon(running)

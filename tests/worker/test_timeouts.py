"""A task's timeout: the handler is told to stop, and what it makes of that is heard."""

import asyncio
import threading
import time
from typing import Any

import pytest

from bide import AsyncDelivery, AsyncQueue, current, current_batch, steps
from bide.queue.run import timeout
from tests.worker.test_running import ended

NOW = steps("0ms")
SHORT = "50ms"


async def test_an_async_handler_is_cancelled_and_retried(queue: AsyncQueue, working: Any, until: Any, caplog: Any) -> None:
    attempts: list[int] = []

    @queue.task("a", timeout=SHORT, max_attempts=2, backoff=NOW)
    async def handle() -> None:
        attempts.append(current().attempt)
        await asyncio.Event().wait()

    await handle.send()
    async with working(queue) as worker:
        await until(lambda: ended(queue))
        await until(lambda: worker.health().failed == 2)

    assert attempts == [1, 2]
    [dead] = await queue.messages("a", state="dead")
    assert dead.last_error == "TimeoutError: took longer than its timeout of 0.05 s"
    assert "has reached its timeout of 0.05 s" in caplog.text


async def test_a_handler_that_swallows_its_timeout_and_returns_has_failed_all_the_same(
    queue: AsyncQueue, working: Any, until: Any
) -> None:
    expired: list[bool] = []

    @queue.task("a", timeout=SHORT, max_attempts=1)
    async def handle() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            expired.append(current().expired)

    await handle.send()
    async with working(queue):
        await until(lambda: ended(queue))

    assert expired == [True]
    [dead] = await queue.messages("a", state="dead")
    assert dead.last_error == "TimeoutError: took longer than its timeout of 0.05 s"


async def test_what_a_handler_raises_in_place_of_its_timeout_is_kept(queue: AsyncQueue, working: Any, until: Any) -> None:
    @queue.task("a", timeout=SHORT, max_attempts=1)
    async def handle() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("while tidying up") from None

    await handle.send()
    async with working(queue):
        await until(lambda: ended(queue))

    [dead] = await queue.messages("a", state="dead")
    assert dead.last_error == "ValueError: while tidying up"


async def test_a_sync_handler_can_see_that_its_time_is_up_and_has_failed_although_it_returns(
    queue: AsyncQueue, working: Any, until: Any
) -> None:
    attempts: list[int] = []

    @queue.task("s", timeout=SHORT, max_attempts=2, backoff=NOW)
    def handle() -> None:
        attempts.append(current().attempt)
        while not current().expired:
            time.sleep(0.005)

    await handle.send()
    async with working(queue):
        await until(lambda: ended(queue))

    assert attempts == [1, 2]
    [dead] = await queue.messages("s", state="dead")
    assert "took longer than its timeout" in str(dead.last_error)


async def test_a_handler_that_is_late_and_has_done_its_work_can_say_so(queue: AsyncQueue, working: Any, until: Any) -> None:
    @queue.task("s", timeout=SHORT, max_attempts=1)
    def handle() -> None:
        while not current().expired:
            time.sleep(0.005)
        current().ack()

    await handle.send()
    async with working(queue) as worker:
        await until(lambda: ended(queue))
        await until(lambda: worker.health().done == 1)

    assert (await queue.stats("s")).dead == 0


async def test_a_sync_handler_that_has_not_asked_yet_sees_that_its_time_is_up(
    memory: AsyncQueue, working: Any, until: Any, caplog: Any
) -> None:
    seen: list[bool] = []
    told = threading.Event()

    @memory.task("s", timeout=SHORT, max_attempts=1)
    def handle() -> None:
        told.wait(20)
        seen.append(current().expired)

    await handle.send()
    async with working(memory):
        await until(lambda: "has reached its timeout" in caplog.text)
        told.set()
        await until(lambda: ended(memory))

    assert seen == [True]


async def test_a_sync_handler_that_raises_when_its_time_is_up_is_retried(queue: AsyncQueue, working: Any, until: Any) -> None:
    attempts: list[int] = []

    @queue.task("s", timeout=SHORT, max_attempts=2, backoff=NOW)
    def handle() -> None:
        attempts.append(current().attempt)
        while not current().expired:
            time.sleep(0.005)
        raise TimeoutError("gave up")

    await handle.send()
    async with working(queue):
        await until(lambda: ended(queue))

    assert attempts == [1, 2]
    [dead] = await queue.messages("s", state="dead")
    assert dead.last_error == "TimeoutError: gave up"


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_handler_that_does_not_heed_its_timeout_is_told_of_in_the_log_and_keeps_its_place(
    memory: AsyncQueue, working: Any, until: Any, caplog: Any, monkeypatch: Any, colour: str
) -> None:
    monkeypatch.setattr(timeout, "HEED", 0.05)
    let_go = threading.Event()
    attempts: list[int] = []

    if colour == "async":

        @memory.task("a", timeout=SHORT, max_attempts=1)
        async def stubborn() -> None:
            attempts.append(current().attempt)
            while not let_go.is_set():
                try:
                    await asyncio.sleep(0.005)
                except asyncio.CancelledError:
                    continue

    else:

        @memory.task("a", timeout=SHORT, max_attempts=1)
        def deaf() -> None:
            attempts.append(current().attempt)
            let_go.wait(10)

    await memory.send_many("a", [{}, {}])
    async with working(memory, concurrency=1, grace="5s") as worker:
        await until(lambda: "goes on although its timeout is long over: it keeps its place" in caplog.text)
        assert worker.health().running == 1
        assert attempts == [1]
        let_go.set()
        await until(lambda: ended(memory))
        assert not worker.stuck

    assert attempts == [1, 1]


async def test_a_handler_that_ends_in_time_is_not_told(memory: AsyncQueue, working: Any, until: Any, caplog: Any) -> None:
    @memory.task("a", timeout="100ms")
    async def handle(number: int) -> None:
        if number == 0:
            await asyncio.Event().wait()

    await memory.send_many("a", [{"number": number} for number in (1, 2, 3, 0)])
    async with working(memory) as worker:
        await until(lambda: worker.health().failed == 1)  # by then the time of the others would be up too
        assert worker.health().done == 3

    assert caplog.text.count("has reached its timeout") == 1


async def test_a_timeout_holds_for_what_is_around_the_handler_too(memory: AsyncQueue, working: Any, until: Any) -> None:
    async def slow(delivery: Any, handle: Any) -> None:
        await asyncio.Event().wait()

    @memory.task("a", timeout=SHORT, max_attempts=1)
    async def handle() -> None:
        pass

    await handle.send()
    async with working(memory, middleware=[slow]):
        await until(lambda: ended(memory))

    [dead] = await memory.messages("a", state="dead")
    assert "timeout of 0.05 s" in str(dead.last_error)


@pytest.mark.parametrize("runs", ["in the loop", "in a thread"])
async def test_a_timeout_holds_for_what_comes_after_the_handler_too(
    memory: AsyncQueue, working: Any, until: Any, runs: str
) -> None:
    async def slow(delivery: AsyncDelivery, call: Any) -> None:
        await call()
        await until(lambda: delivery.expired)

    @memory.task("a", timeout=SHORT, max_attempts=1)
    def handle() -> None: ...

    @memory.task("b", timeout=SHORT, max_attempts=1)
    async def handle_in_loop() -> None: ...

    topic = "a" if runs == "in a thread" else "b"
    await memory.send(topic, {})
    async with working(memory, middleware=[slow]) as worker:
        await until(lambda: worker.health().failed == 1)

    [dead] = await memory.messages(topic, state="dead")
    assert "timeout of 0.05 s" in str(dead.last_error)


async def test_a_timeout_within_the_handler_is_its_own_affair(memory: AsyncQueue, working: Any, until: Any) -> None:
    @memory.task("a", timeout="20s", max_attempts=1)
    async def handle() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    await handle.send()
    async with working(memory):
        await until(lambda: ended(memory))

    [dead] = await memory.messages("a", state="dead")
    assert str(dead.last_error).startswith("TimeoutError")
    assert "20" not in str(dead.last_error)


BLOCKED = 0.3  # seconds, for which the event loop is blocked: far longer than the timeout


@pytest.mark.parametrize("kind", ["plain", "goes on", "batch", "middleware", "swallows"])
async def test_a_handler_that_blocks_the_loop_beyond_its_timeout_has_failed_although_it_returns(
    memory: AsyncQueue, working: Any, until: Any, kind: str
) -> None:
    expired: list[bool] = []

    async def work() -> None:
        time.sleep(BLOCKED)  # noqa: ASYNC251  (that is what this is about)
        expired.append(all(each.expired for each in current_batch()))
        if kind in ("goes on", "swallows"):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if kind == "goes on":
                    raise

    if kind == "batch":

        @memory.task("a", timeout=SHORT, max_attempts=1, batch=2)
        async def handle_both(items: list[int]) -> None:
            await work()
    else:

        @memory.task("a", timeout=SHORT, max_attempts=1)
        async def handle(n: int) -> None:
            await work()

    async def around(delivery: AsyncDelivery, call: Any) -> None:
        await call()

    await memory.send_many("a", [1, 2] if kind == "batch" else [{"n": 1}, {"n": 2}])
    async with working(memory, middleware=[around] if kind == "middleware" else []):
        await until(lambda: ended(memory))

    dead = await memory.messages("a", state="dead")
    assert [each.last_error for each in dead] == ["TimeoutError: took longer than its timeout of 0.05 s"] * 2
    assert all(expired)


@pytest.mark.parametrize("around", [False, True], ids=["bare", "middleware"])
@pytest.mark.parametrize("late", [True, False])
async def test_a_sync_handler_is_judged_by_when_it_ended_although_the_loop_is_blocked(
    memory: AsyncQueue, working: Any, until: Any, late: bool, around: bool
) -> None:
    begun, blocked, free = threading.Event(), threading.Event(), threading.Event()
    seen: list[tuple[bool, bool]] = []

    @memory.task("s", timeout="200ms", max_attempts=1)
    def handle() -> None:
        delivery = current()
        begun.set()
        blocked.wait()
        before = delivery.expired
        if late:
            time.sleep(BLOCKED)
        seen.append((before, delivery.expired))
        free.set()

    @memory.task("b")
    async def block() -> None:
        begun.wait()
        blocked.set()
        free.wait()
        time.sleep(BLOCKED)  # noqa: ASYNC251  (now the alarm has to ring)

    async def middleware(delivery: AsyncDelivery, call: Any) -> None:
        await call()

    await handle.send()
    async with working(memory, middleware=[middleware] if around else []) as worker:
        await until(begun.is_set)
        await block.send()
        await until(lambda: ended(memory))
        assert worker.health().failed == late
    assert seen == [(False, late)]

"""Exceptions that can't be looked at are failed attempts like any other, whoever calls the handler: the worker lives on."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from bide import AsyncQueue, Bury, Failed, ManualClock, Queue, Snooze, steps
from tests.tasks.misbehaving import MISBEHAVING, NoAttributes, NoTraceback
from tests.worker.test_running import ended

misbehaving = pytest.mark.parametrize("make", MISBEHAVING.values(), ids=MISBEHAVING)
ATTEMPTS = 2


def _asks(make: Callable[[], BaseException]) -> bool:
    return isinstance(make, type) and issubclass(make, Bury | Snooze)


def _attempts(make: Callable[[], BaseException]) -> int:
    return 1 if isinstance(make, type) and issubclass(make, Bury) else ATTEMPTS


@misbehaving
@pytest.mark.parametrize("middleware", [False, True], ids=["bare", "in middleware"])
async def test_each_is_a_failed_attempt_of_a_worker(
    memory: AsyncQueue,
    working: Any,
    until: Any,
    coloured: Any,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[], BaseException],
    middleware: bool,
) -> None:
    attempts: list[int] = []

    async def through(delivery: Any, handle: Any) -> None:
        await handle()

    @memory.task("a", max_attempts=ATTEMPTS, backoff=steps("0ms"))
    @coloured
    def handle() -> None:
        attempts.append(1)
        raise make()

    @memory.task("b")
    @coloured
    def well() -> None: ...

    await handle.send()
    async with working(memory, middleware=[through] if middleware else []) as worker:
        await until(lambda: ended(memory))
        await well.send()
        await until(lambda: worker.health().done == 1)

    [dead] = await memory.messages("a", state="dead")
    assert len(attempts) == dead.attempt == _attempts(make)
    assert dead.last_error
    found = await memory.get(dead.id)
    assert found is not None
    assert len(found.attempts) == _attempts(make)
    told = [record for record in caplog.records if record.name == "bide.worker" and record.levelno >= logging.WARNING]
    assert len(told) == _attempts(make) or (_asks(make) and not told[1:])


@misbehaving
async def test_each_is_a_failed_attempt_of_a_batch(
    memory: AsyncQueue, working: Any, until: Any, coloured: Any, make: Callable[[], BaseException]
) -> None:
    @memory.task("a", max_attempts=ATTEMPTS, backoff=steps("0ms"), batch=3)
    @coloured
    def handle(items: list[int]) -> None:
        raise make()

    await handle.send_many([1, 2, 3])
    async with working(memory):
        await until(lambda: ended(memory))

    dead = await memory.messages("a", state="dead")
    assert [each.attempt for each in dead] == 3 * [_attempts(make)]


@misbehaving
@pytest.mark.parametrize("kind", [AsyncQueue, Queue])
def test_each_is_a_failed_attempt_of_time_travel(coloured: Any, kind: type[Any], make: Callable[[], BaseException]) -> None:
    queue = kind("memory://", clock=ManualClock())
    travel = queue.testing

    @queue.task("a", max_attempts=ATTEMPTS)
    @coloured
    def handle() -> None:
        raise make()

    if kind is Queue:
        handle.send()
        handled = travel.advance("1h", raise_errors=False)
        handle.send()
        raised = None
        try:
            travel.advance("1h")
        except BaseException as error:
            raised = error
        assert (raised is None) == _asks(make)
        stats = queue.stats("a")
        queue.close()
    else:

        async def go() -> Any:
            await handle.send()
            handled = await travel.advance("1h", raise_errors=False)
            stats = await queue.stats("a")
            await queue.close()
            return handled, stats

        handled, stats = asyncio.run(go())

    assert [each.outcome for each in handled] == ["retry", "dead"][-_attempts(make) :]
    assert stats.dead


@misbehaving
async def test_each_ends_a_delivery_of_listen(memory: AsyncQueue, make: Callable[[], BaseException]) -> None:
    await memory.send("a", 1, max_attempts=1)
    [delivery] = await memory.receive("a")
    stops = issubclass(type(make()), GeneratorExit | asyncio.CancelledError)
    passed: BaseException | None = None
    try:
        async with delivery:
            raise make()
    except BaseException as error:
        passed = error
    assert not issubclass(type(passed), Exception)
    stats = await memory.stats("a")
    assert (stats.ready, stats.dead) == ((1, 0) if stops else (0, 1))


async def test_on_dead_and_an_answer_of_a_batch_may_hold_them_too(memory: AsyncQueue, working: Any, until: Any) -> None:
    def on_dead(delivery: Any, reason: str) -> None:
        raise NoAttributes

    @memory.task("a", max_attempts=1, batch=2, on_dead=on_dead)
    async def handle(items: list[int]) -> list[Failed]:
        return [Failed(each, NoTraceback("bad")) for each in items]

    await handle.send_many([1, 2])
    async with working(memory):
        await until(lambda: ended(memory))

    dead = await memory.messages("a", state="dead")
    assert [each.last_error for each in dead] == 2 * ["NoTraceback: bad"]


async def test_retry_for_sees_the_class_of_an_error_whatever_its_attributes(
    memory: AsyncQueue, working: Any, until: Any, coloured: Any
) -> None:
    @memory.task("a", max_attempts=2, backoff=steps("0ms"), retry_for=ValueError)
    @coloured
    def handle() -> None:
        raise NoTraceback("bad")

    @memory.task("b", max_attempts=2, backoff=steps("0ms"), no_retry_for=NoAttributes)
    @coloured
    def other() -> None:
        raise NoAttributes

    await handle.send()
    await other.send()
    async with working(memory):
        await until(lambda: ended(memory))

    [dead] = await memory.messages("a", state="dead")
    [other_dead] = await memory.messages("b", state="dead")
    assert (dead.attempt, other_dead.attempt) == (2, 1)
    found = await memory.get(dead.id)
    assert found is not None
    assert 'raise NoTraceback("bad")' in str(found.attempts[0].traceback)

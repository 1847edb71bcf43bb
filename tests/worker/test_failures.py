"""An engine that fails: the worker goes on trying, says so once, and loses nothing."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from bide import AsyncDelivery, AsyncQueue, EngineError, OutcomeUnknown, current
from bide.worker import Worker
from bide.worker.engine_trouble import EngineTrouble
from tests.worker.faults import Faults, deaf
from tests.worker.test_running import ended


async def test_claims_that_fail_are_tried_again_and_said_once(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, caplog: Any
) -> None:
    handled: list[int] = []

    @queue.task("a")
    async def handle(number: int) -> None:
        handled.append(number)

    failures = faults.fail("claim", times=4)
    await handle.send(1)
    async with working(queue) as worker:
        await until(lambda: failures)
        await until(lambda: worker.health().failing_since > 0)
        assert worker.health().failing_since <= time.monotonic()
        await until(lambda: handled == [1])
        await until(lambda: worker.health().failing_since == 0)

    assert caplog.text.count("The worker can't take messages and goes on trying") == 1
    assert caplog.text.count("The worker can take messages again, after 4 failures") == 1


@pytest.mark.parametrize("verb", ["wait", "tend", "stats"])
async def test_upkeep_that_fails_stops_nothing(queue: AsyncQueue, working: Any, until: Any, faults: Faults, verb: str) -> None:
    handled: list[int] = []

    @queue.task("a")
    async def handle(number: int) -> None:
        handled.append(number)

    failures = faults.fail(verb, times=2)
    async with working(queue):
        await until(lambda: failures)
        await handle.send(1)
        await until(lambda: handled == [1])


async def test_ends_that_fail_are_brought_again_while_their_leases_are_renewed(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, caplog: Any
) -> None:
    handled = Counter[int]()

    @queue.task("a")
    async def handle(number: int) -> None:
        handled[number] += 1

    failures = faults.fail("settle")
    await queue.send_many("a", [{"number": number} for number in range(20)])
    async with working(queue, lease="200ms", concurrency=5):
        await until(lambda: len(failures) >= 4)  # 50, 100 and 200 ms lie between: more than a lease
        stats = await queue.stats("a")
        assert (stats.leased, stats.ready) == (20, 0)
        del faults.around["settle"]
        faults.fail("settle", times=0)
        await until(lambda: ended(queue))

    assert set(handled.values()) == {1}
    assert len(handled) == 20
    assert caplog.text.count("The worker can't end deliveries and goes on trying") == 1


async def test_a_claim_whose_answer_is_lost_is_asked_for_again_by_its_name(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults
) -> None:
    """The engine has handed the message out: without asking it would come back when its lease ends, and be an attempt less."""
    attempts: list[int] = []

    @queue.task("a", max_attempts=1)
    async def handle() -> None:
        attempts.append(current().attempt)

    lost: list[int] = []

    async def answer_is_lost(call: Any, asked: Any) -> Any:
        claim = await call()
        if claim.messages and not lost:
            lost.append(len(claim.messages))
            raise OutcomeUnknown("the answer did not come")
        return claim

    faults.around["claim"] = answer_is_lost
    await handle.send()
    async with working(queue, lease="1h"):
        await until(lambda: attempts == [1])

    assert lost == [1]


async def test_what_a_claim_without_an_answer_holds_is_given_back_at_the_stop(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults
) -> None:
    @queue.task("a", max_attempts=1)
    async def handle() -> None: ...

    claimed = asyncio.Event()

    async def never_answers(call: Any, asked: Any) -> Any:
        claim = await call()
        if claim.messages and not claimed.is_set():
            claimed.set()
            await asyncio.Event().wait()
        return claim

    faults.around["claim"] = never_answers
    await handle.send()
    async with working(queue, lease="1h", grace="0s"):
        await claimed.wait()

    counts = await queue.stats("a")
    assert (counts.ready, counts.leased, counts.dead) == (1, 0, 0)
    [message] = await queue.messages("a")
    assert message.attempt == 0


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "in parts"])
async def test_an_end_that_the_engine_refuses_holds_up_no_other(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the pause before it is tried again."""
    others_are_done = asyncio.Event()

    async def pause(self: EngineTrouble, error: Exception, part: object = None) -> None:
        await others_are_done.wait()

    monkeypatch.setattr(EngineTrouble, "lose", pause)

    @queue.task("bad")
    async def bad() -> None: ...

    @queue.task("good")
    async def good(number: int) -> None: ...

    refused: list[int] = []

    async def around(call: Any, asked: Any) -> Any:
        [ends] = asked
        if all(end.topic != "bad" for end in ends):
            return await call()
        refused.append(len(ends))
        error = EngineError("One of these has no form. Nothing was changed.")
        if in_parts and len(ends) > 1:
            raise OutcomeUnknown("Others of the batch were done.") from error
        raise error

    faults.around["settle"] = around
    await bad.send()
    await queue.send_many("good", [{"number": number} for number in range(20)])
    async with working(queue) as worker:
        await until(lambda: worker.health().done == 20)
        await queue.send_many("good", [{"number": number} for number in range(20)])
        await until(lambda: worker.health().done == 40)
        await until(lambda: 1 in refused)
        assert (await queue.stats("bad")).leased == 1
        others_are_done.set()
        faults.fail("settle", times=0)
        await until(lambda: worker.health().done == 41)
        assert await ended(queue)


class Unspeakable(Exception):
    """Its text can't be had."""

    def __str__(self) -> str:
        raise SystemExit("no text")


WHATEVER = [ValueError("x"), GeneratorExit(), SystemExit(3), asyncio.CancelledError(), Unspeakable(), BaseException("x")]


@pytest.mark.parametrize("by_filter", [False, True], ids=["handler", "filter"])
@pytest.mark.parametrize("error", [*WHATEVER, None], ids=lambda error: type(error).__name__)
async def test_a_log_that_fails_costs_no_place_whatever_a_handler_does(
    memory: AsyncQueue, working: Any, until: Any, error: BaseException | None, by_filter: bool, capsys: Any
) -> None:
    """None: it reaches its timeout."""
    handled: list[int] = []

    @memory.task("a", max_attempts=2, backoff=lambda attempt: 0, timeout="20s" if error else "10ms")
    async def in_loop() -> None:
        if error is None:
            await asyncio.Event().wait()
        else:
            raise error

    @memory.task("s", max_attempts=2, backoff=lambda attempt: 0)
    def in_thread() -> None:
        if error is not None:
            raise error

    @memory.task("good")
    async def good() -> None:
        handled.append(1)

    for _ in range(4):
        await in_loop.send()
        await in_thread.send()
    with deaf(by_filter=by_filter):
        async with working(memory, concurrency=4, threads=2) as worker:
            await until(lambda: ended(memory))
            for _ in range(8):
                await good.send()
            await until(lambda: len(handled) == 8)
            await until(lambda: worker.health().running == 0)

    stats = await memory.stats()
    assert stats.leased == 0
    assert stats.dead == (8 if error is not None else 4)
    assert capsys.readouterr().err.count("More of this is not told") <= 1


@pytest.mark.parametrize("inside", [False, True], ids=["plain", "in middleware"])
async def test_a_generator_exit_that_comes_through_an_await_is_a_failed_attempt(
    memory: AsyncQueue, working: Any, until: Any, caplog: Any, inside: bool
) -> None:
    """It closes the handler's coroutine and all that wait for it, so that what they return is not heard."""
    attempts: list[int] = []

    async def child() -> None:
        raise GeneratorExit

    async def around(delivery: AsyncDelivery, handle: Any) -> None:
        await handle()

    @memory.task("a", max_attempts=2, backoff=lambda attempt: 0)
    async def handle() -> None:
        attempts.append(current().attempt)
        await asyncio.create_task(child())

    await handle.send()
    async with working(memory, middleware=[around] * inside):
        await until(lambda: ended(memory))

    assert attempts == [1, 2]
    [dead] = await memory.messages("a", state="dead")
    assert "GeneratorExit" in str(dead.last_error)
    assert caplog.text.count("failed in attempt") == 2


async def test_a_handler_that_is_closed_with_its_loop_tells_nobody(memory: AsyncQueue, soon: Any) -> None:
    """A handler's own GeneratorExit is an error like any other; that of a loop which has gone is not."""
    begun = asyncio.Event()

    @memory.task("a")
    async def handle() -> None:
        begun.set()
        await asyncio.Event().wait()

    await handle.send()
    async with Worker(memory, grace=0) as worker:
        await soon(begun.wait())
        assert worker._service is not None
        [under_way] = worker._service._under_way
        assert under_way.runner is not None
        coroutine: Any = under_way.runner.get_coro()
        coroutine.close()
        assert not under_way.told

    assert (await memory.stats("a")).ready == 1


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_attempt_that_failed_is_told_from_its_handler_on(
    queue: AsyncQueue, working: Any, until: Any, is_async: bool
) -> None:
    def fail() -> None:
        raise ValueError("no such order")

    async def fail_in_loop() -> None:
        fail()

    sent = await queue.task("a", max_attempts=1)(fail_in_loop if is_async else fail).send()

    async def attempts() -> Any:
        info = await queue.get(sent)
        return info is not None and info.attempts

    async with working(queue):
        await until(attempts)
    [attempt] = await attempts()
    assert (attempt.number, attempt.error) == (1, "ValueError: no such order")
    head, *lines, error = attempt.traceback.splitlines()
    assert (head, error) == ("Traceback (most recent call last):", "ValueError: no such order")
    frames = [line.rpartition(" in ")[2] for line in lines if line.startswith("  File")]
    assert frames == (["fail_in_loop", "fail"] if is_async else ["fail"])

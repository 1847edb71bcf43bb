"""An engine that fails: the worker goes on trying, says so once, and loses nothing."""

import asyncio
import logging
import time
from collections import Counter
from typing import Any

import pytest

from bide import AsyncQueue, OutcomeUnknown, SchemaMismatch, Unavailable, steps
from bide.worker import Worker
from tests.worker.faults import Faults
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


async def test_a_claim_whose_answer_is_lost_comes_back_when_its_lease_ends(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults
) -> None:
    handled: list[int] = []
    lost: list[int] = []

    async def swallow(call: Any, asked: Any) -> Any:
        answer = await call()
        if answer.messages and not lost:
            lost.append(len(answer.messages))
            raise OutcomeUnknown("The answer was lost on its way.")
        return answer

    @queue.task("a")
    async def handle(number: int) -> None:
        handled.append(number)

    faults.around["claim"] = swallow
    await queue.send_many("a", [{"number": number} for number in range(5)])
    async with working(queue, lease="200ms"):
        while len(handled) < 5:
            await (await queue._engine()).tend()
            await asyncio.sleep(0.02)
        await until(lambda: ended(queue))

    assert lost == [5]
    assert sorted(handled) == list(range(5))


async def test_an_engine_that_comes_and_goes_loses_nothing(queue: AsyncQueue, working: Any, until: Any, faults: Faults) -> None:
    handled = Counter[int]()
    calls = Counter[str]()

    def every_third(verb: str) -> None:
        async def around(call: Any, asked: Any) -> Any:
            calls[verb] += 1
            if calls[verb] % 3 == 0:
                raise OutcomeUnknown(f"{verb}: who knows.") if verb == "wait" else Unavailable(verb)
            return await call()

        faults.around[verb] = around

    for verb in ("claim", "settle", "tend", "wait"):
        every_third(verb)

    @queue.task("a")
    async def handle(number: int) -> None:
        handled[number] += 1

    async with working(queue, concurrency=10):
        for first in range(0, 100, 10):
            await queue.send_many("a", [{"number": first + number} for number in range(10)])
        await until(lambda: ended(queue))

    assert handled == dict.fromkeys(range(100), 1)


async def test_an_engine_that_is_not_there_at_the_start_is_waited_for(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, caplog: Any
) -> None:
    handled: list[int] = []

    @queue.task("a")
    async def handle(number: int) -> None:
        handled.append(number)

    faults.fail("open", times=3)
    await handle.send(1)
    async with working(queue):
        await until(lambda: handled == [1])

    assert caplog.text.count("The worker can't reach the engine and goes on trying") == 1


async def test_a_start_that_is_cancelled_leaves_no_worker_behind(queue: AsyncQueue, until: Any, faults: Faults) -> None:
    @queue.task("a")
    async def handle() -> None:
        pass

    before = asyncio.all_tasks()
    failures = faults.fail("open")
    worker = Worker(queue)
    entering = asyncio.create_task(worker.__aenter__())
    await until(lambda: failures)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering

    assert asyncio.all_tasks() <= before


async def test_an_engine_of_another_release_ends_the_worker_with_its_error(
    queue: AsyncQueue, faults: Faults, caplog: Any
) -> None:
    async def other(call: Any, asked: Any) -> Any:
        raise SchemaMismatch("The tables belong to another release.")

    @queue.task("a")
    async def handle() -> None:
        pass

    faults.around["open"] = other
    with pytest.raises(SchemaMismatch):
        await Worker(queue).run(signals=False)
    with pytest.raises(SchemaMismatch):
        async with Worker(queue):
            pytest.fail("The block was entered.")


async def test_an_error_that_nobody_foresaw_ends_the_worker_and_gives_back_what_it_held(
    queue: AsyncQueue, until: Any, soon: Any, faults: Faults
) -> None:
    began = asyncio.Event()

    @queue.task("a")
    async def handle() -> None:
        began.set()
        await asyncio.Event().wait()

    async def broken(call: Any, asked: Any) -> Any:
        raise RuntimeError("what nobody had thought of")

    await handle.send()
    running = asyncio.create_task(Worker(queue, grace="50ms").run(signals=False))
    await soon(began.wait())
    faults.around["claim"] = broken
    await handle.send()
    with pytest.raises(RuntimeError, match="nobody had thought"):
        await soon(running)

    stats = await queue.stats("a")
    assert (stats.ready, stats.leased) == (2, 0)


async def test_an_end_that_the_engine_breaks_down_over_does_not_hold_the_others_up(
    queue: AsyncQueue, working: Any, until: Any, soon: Any, faults: Faults
) -> None:
    handled = Counter[int]()
    all_here = asyncio.Barrier(5)
    sizes: list[int] = []

    async def broken(call: Any, asked: Any) -> Any:
        sizes.append(len(asked[0]))
        if any(end.error == "ValueError: poison" for end in asked[0]) and handled[3] < 2:
            raise RuntimeError("what nobody had thought of")
        return await call()

    @queue.task("a", max_attempts=2, backoff=steps("0ms"))
    async def handle(number: int) -> None:
        handled[number] += 1
        if handled.total() <= 5:
            await all_here.wait()
        if number == 3:
            raise ValueError("poison")

    faults.around["settle"] = broken
    await queue.send_many("a", [{"number": number} for number in range(5)])
    async with working(queue, lease="200ms", concurrency=5) as worker:
        await until(lambda: worker.health().running == 0 and handled.total() >= 5)

        async def ended_in_time() -> bool:
            await (await queue._engine()).tend()  # or a lease that ended is only seen with the next sweep
            return bool(await ended(queue))

        await until(ended_in_time)
        await until(lambda: worker.health().running == 0)

    assert handled == {0: 1, 1: 1, 2: 1, 3: 2, 4: 1}
    assert max(sizes) > 1
    assert (await queue.stats("a")).dead == 1


async def test_unreadable_bodies_and_a_failing_engine_together_hold_nothing_up(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults
) -> None:
    from bide.engines.base import NewMessage

    handled: list[int] = []

    @queue.task("a")
    async def handle(number: int) -> None:
        handled.append(number)

    engine = await queue._engine()
    await handle.send(1)
    await engine.put([NewMessage("a", b"\xff{")])
    await handle.send(2)
    faults.fail("settle", times=1)
    async with working(queue, lease="1h"):
        await until(lambda: sorted(handled) == [1, 2])

    [left] = await queue.messages("a")
    assert left.state == "leased"  # it comes back when its lease ends


async def test_what_fails_is_not_told_of_at_info_when_all_is_well_again(
    memory: AsyncQueue, working: Any, until: Any, caplog: Any
) -> None:
    """The end of trouble is told as loudly as its beginning: whoever saw the one is to see the other."""
    faults = await Faults.of(memory)
    handled: list[int] = []

    @memory.task("a")
    async def handle() -> None:
        handled.append(1)

    faults.fail("claim", times=1)
    await handle.send()
    with caplog.at_level(logging.WARNING):
        async with working(memory):
            await until(lambda: handled)
            await until(lambda: "again, after 1 failures" in caplog.text)

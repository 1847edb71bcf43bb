"""Messages that wait for others, with workers: called when the last of them is done, whoever dies in between."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bide import AsyncQueue, BadMessage, Unavailable, current
from bide.engines.results import Expected
from tests.worker.conftest import Working
from tests.worker.faults import Call, Faults

WAIT = 15.0  # seconds, far longer than anything here takes


def tasks(queue: AsyncQueue) -> tuple[Any, Any]:
    @queue.task("part", keep="1h")
    async def part(n: int) -> int:
        return n

    @queue.task("whole", keep="1h")
    async def whole() -> int:
        return sum([await queue.result(each, timeout=0) for each in current().depends_on])

    return part, whole


async def test_the_last_part_calls_what_waits_for_all(queue: AsyncQueue, working: Working) -> None:
    part, whole = tasks(queue)
    parts = await part.send_many({"n": n} for n in range(50))
    waits = await whole.options(depends_on=parts).send()
    async with working(queue), working(queue):
        assert await queue.result(waits, timeout=WAIT) == sum(range(50))


async def test_what_is_done_while_it_is_sent_is_not_missed(queue: AsyncQueue, working: Working) -> None:
    part, whole = tasks(queue)

    async def one(n: int) -> int:
        parts = await part.send_many({"n": n} for _ in range(3))
        waits = await whole.options(depends_on=parts).send()
        return int(await queue.result(waits, timeout=WAIT))

    async with working(queue):
        assert await asyncio.gather(*map(one, range(40))) == [3 * n for n in range(40)]


@pytest.mark.parametrize("verb", ["results.arrive", "reschedule"])
async def test_it_is_called_although_the_engine_fails_on_the_way(
    queue: AsyncQueue, working: Working, faults: Faults, until: Any, verb: str
) -> None:
    part, whole = tasks(queue)
    parts = await part.send_many({"n": n} for n in range(3))
    waits = await whole.options(depends_on=parts).send()
    failures = faults.fail(verb, 2)
    async with working(queue):
        assert await queue.result(waits, timeout=WAIT) == 3
        await until(lambda: len(failures) == 2)


async def test_it_is_called_although_the_engine_does_not_hear_that_it_was(
    queue: AsyncQueue, working: Working, faults: Faults, until: Any
) -> None:
    part, whole = tasks(queue)
    waits = await whole.options(depends_on=[await part.send(n=7)]).send()
    failures = faults.fail("results.arrive", 2, when=lambda each: each.on is None)
    async with working(queue):
        assert await queue.result(waits, timeout=WAIT) == 7
        await until(lambda: len(failures) == 2)


@pytest.mark.parametrize("verb", ["results.arrive", "reschedule"])
async def test_it_is_called_by_another_worker_if_the_first_stops_in_between(
    queue: AsyncQueue, working: Working, faults: Faults, until: Any, verb: str
) -> None:
    part, whole = tasks(queue)
    sent = await part.send(n=7)
    waits = await whole.options(depends_on=[sent]).send()
    failures = faults.fail(verb)
    async with working(queue):
        await until(lambda: failures)
    del faults.around[verb]
    async with working(queue):
        assert await queue.result(waits, timeout=WAIT) == 7


@pytest.mark.parametrize("verb", ["results.expect", "results.follow", "results.arrive"])
async def test_a_send_that_failed_on_its_way_is_done_by_the_same_operation(
    queue: AsyncQueue, working: Working, verb: str
) -> None:
    faults = Faults(queue)  # before the queue is opened: its own calls meet them too
    part, whole = tasks(queue)
    sent = await part.send(n=7)
    if verb == "results.arrive":
        async with working(queue):
            await queue.result(sent, timeout=WAIT)
    once = whole.options(depends_on=[sent], operation="once")
    faults.fail(verb, 1, Unavailable("the wire is cut"), when=lambda each: not isinstance(each, Expected))
    with pytest.raises(Unavailable):
        await once.send()
    waits = await once.send()
    assert (await queue.stats("whole")).pending == 1
    async with working(queue):
        assert await queue.result(waits, timeout=WAIT) == 7


async def test_what_can_not_be_waited_for_is_refused_before_anything_is_sent(queue: AsyncQueue) -> None:
    _, whole = tasks(queue)
    with pytest.raises(BadMessage, match="keep="):
        await whole.options(depends_on=["no such id"]).send()
    assert (await queue.stats("whole")).pending == 0


async def test_tasks_without_keep_cost_no_call(queue: AsyncQueue, working: Working, until: Any) -> None:
    faults = Faults(queue)
    calls: list[str] = []
    done: list[int] = []

    async def told(call: Call, asked: Sequence[Any]) -> Any:
        calls.append("results")
        return await call()

    for verb in ("expect", "fulfil", "read", "follow", "arrive"):
        faults.around[f"results.{verb}"] = told

    @queue.task("plain")
    async def plain(n: int) -> int:
        done.append(n)
        return n

    await plain.send_many({"n": n} for n in range(20))
    await plain.send(n=20)
    async with working(queue):
        await until(lambda: len(done) == 21)
    assert calls == []

"""What handlers return is kept before their messages end, and whoever waits for it is given it."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from bide import AsyncQueue, Bury, OutcomeUnknown, ResultFailed, ResultNotKept, ResultPending, Unavailable
from bide.engines.base import Stored
from bide.queue.deliveries import DEPENDS
from bide.queue.results import ASLEEP, FIRST_LOOK, LAST_LOOK, pause
from tests.worker.conftest import Working, done
from tests.worker.faults import Call, Faults

WAIT = 15.0  # seconds, far longer than anything here takes


async def given(queue: Any, message: Any) -> Any:
    """The result, waited for in a thread if the queue is sync: this loop is the worker's."""
    if isinstance(queue, AsyncQueue):
        return await queue.result(message, timeout=WAIT)
    return await asyncio.to_thread(queue.result, message, timeout=WAIT)


async def test_who_waits_for_a_result_is_given_it(either: Any, working: Working) -> None:
    @either.task("add", keep="1h")
    async def add(a: int, b: int) -> int:
        return a + b

    @either.task("join", keep="1h")
    def join(words: list[str]) -> dict[str, str]:
        return {"joined": " ".join(words)}

    one = await done(add.after("50ms").send(1, 2))
    other = await done(join.send(["a", "é"]))
    with pytest.raises(ResultPending):
        await done(either.result(one, timeout=0))
    async with working(either):
        assert await given(either, one) == 3
        assert await given(either, other) == {"joined": "a é"}


async def test_many_may_wait_at_once(queue: AsyncQueue, working: Working) -> None:
    @queue.task("double", keep="1h")
    async def double(n: int) -> int:
        return 2 * n

    sent = await double.send_many({"n": n} for n in range(200))
    async with working(queue):
        found = await asyncio.gather(*(queue.result(each, timeout=WAIT) for each in sent))
    assert found == [2 * n for n in range(200)]


async def test_who_waits_for_what_fails_is_told_why(queue: AsyncQueue, working: Working) -> None:
    @queue.task("fail", keep="1h")
    async def fail() -> None:
        raise Bury("no paper")

    sent = await fail.send()
    async with working(queue):
        with pytest.raises(ResultFailed, match="no paper"):
            await queue.result(sent, timeout=WAIT)


async def test_the_result_is_kept_before_the_message_ends(
    queue: AsyncQueue, working: Working, faults: Faults, soon: Any
) -> None:
    seen: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @queue.task("add", keep="1h")
    async def add(a: int, b: int) -> int:
        return a + b

    sent = await add.send(1, 2)

    async def settle(call: Call, asked: Sequence[Any]) -> Any:
        if not seen.done():
            seen.set_result(await queue.result(sent, timeout=0))
        return await call()

    faults.around["settle"] = settle
    async with working(queue):
        assert await soon(seen) == 3


@pytest.mark.parametrize("error", [None, OutcomeUnknown("no answer")], ids=["unavailable", "unknown"])
async def test_a_result_is_kept_although_the_engine_fails_for_a_while(
    queue: AsyncQueue, working: Working, faults: Faults, error: Exception | None
) -> None:
    calls: list[int] = []

    @queue.task("add", keep="1h")
    async def add(a: int, b: int) -> int:
        calls.append(a)
        return a + b

    failures = faults.fail("results.fulfil", 3, error)
    sent = await add.send(1, 2)
    async with working(queue):
        assert await queue.result(sent, timeout=WAIT) == 3
    assert (calls, len(failures)) == ([1], 3)


async def test_a_worker_that_stops_before_a_result_is_kept_leaves_its_message_to_others(
    queue: AsyncQueue, working: Working, faults: Faults, until: Any
) -> None:
    calls: list[int] = []

    @queue.task("add", keep="1h")
    async def add(a: int, b: int) -> int:
        calls.append(a)
        return a + b

    failures = faults.fail("results.fulfil")
    sent = await add.send(1, 2)
    async with working(queue):
        await until(lambda: failures)
    with pytest.raises(ResultPending):
        await queue.result(sent, timeout=0)
    del faults.around["results.fulfil"]
    async with working(queue):
        assert await queue.result(sent, timeout=WAIT) == 3
    assert calls == [1, 1]


async def test_a_message_is_done_although_the_engine_breaks_down_over_its_result(
    queue: AsyncQueue, working: Working, faults: Faults, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task("add", keep="1h")
    async def add(a: int, b: int) -> int:
        return a + b

    faults.fail("results.fulfil", error=ZeroDivisionError("a bug"))
    sent = await add.send(1, 2)
    async with working(queue):

        async def gone() -> bool:
            return await queue.get(sent) is None

        await until(gone)
    assert "is not kept" in caplog.text


async def test_a_send_that_can_not_be_noted_is_a_send(
    queue: AsyncQueue, working: Working, caplog: pytest.LogCaptureFixture
) -> None:
    faults = Faults(queue)  # before the queue is opened: its own calls meet them too

    @queue.task("add", keep="1h")
    async def add(a: int, b: int) -> int:
        return a + b

    faults.fail("results.expect", error=Unavailable("the wire is cut"))
    with caplog.at_level(logging.WARNING):
        sent = [await add.send(1, 2), *await add.send_many([{"a": 2, "b": 2}] * 2)]
    assert caplog.text.count("could not be noted") == 2
    async with working(queue):
        assert [await queue.result(each, timeout=WAIT) for each in sent] == [3, 4, 4]


async def test_middleware_need_not_hand_the_value_on(queue: AsyncQueue, working: Working) -> None:
    async def silent(delivery: Any, handle: Any) -> None:
        await handle()

    @queue.task("add", keep="1h")
    async def add(a: int, b: int) -> int:
        return a + b

    @queue.task("subtract", keep="1h")
    def subtract(a: int, b: int) -> int:
        return a - b

    one, other = await add.send(1, 2), await subtract.send(1, 2)
    async with working(queue, middleware=[silent]):
        assert [await queue.result(each, timeout=WAIT) for each in (one, other)] == [3, -1]


async def test_what_can_not_be_kept_is_told(queue: AsyncQueue, working: Working) -> None:
    @queue.task("odd", keep="1h")
    async def odd() -> object:
        return object()

    sent = await odd.send()
    async with working(queue):
        with pytest.raises(ResultNotKept):
            await queue.result(sent, timeout=WAIT)


def stored(state: Any, due: int, **headers: str) -> Stored:
    return Stored("1", "t", state, due, 0, 3, None, 1, b"", headers, None, None, None)


def test_looks_for_a_result_become_rarer() -> None:
    now = 1_000_000
    assert pause(0, stored("ready", now), now) == FIRST_LOOK
    assert pause(2, stored("leased", now), now) == 0.5
    assert pause(3_600, stored("ready", now), now) == LAST_LOOK
    # Before its time nothing comes of it, but it may be given another
    assert pause(0, stored("scheduled", now + 2_000), now) == 2.0
    assert pause(0, stored("scheduled", now + 3_600_000), now) == ASLEEP
    assert pause(0, stored("scheduled", now + 3_600_000, **{DEPENDS: "2"}), now) == FIRST_LOOK
    # Until a second has passed there are twenty looks at most
    waited, looks = 0.0, 0
    while waited < 1:
        waited, looks = waited + pause(waited, stored("ready", now), now), looks + 1
    assert looks <= 22


async def test_who_lost_its_lease_unnoticed_does_not_overwrite_the_result_of_who_was_acked(
    queue: AsyncQueue, working: Working, faults: Faults, until: Any
) -> None:
    """As a process does that stood still for longer than its lease, and has not heard yet that it lost it."""
    calls: list[int] = []
    first_goes_on = asyncio.Event()

    @queue.task("count", keep="1h")
    async def count() -> int:
        calls.append(len(calls) + 1)
        mine = calls[-1]
        if mine == 1:
            await first_goes_on.wait()
        return mine

    async def taken_back() -> bool:
        await engine.tend(100)
        found = await queue.get(sent)
        return found is None or found.attempt > 1 or found.state != "leased"

    async def gone() -> bool:
        return await queue.get(sent) is None

    engine = await queue.session.engine()
    sent = await count.send()
    async with working(queue, lease="300ms") as worker:
        await until(lambda: calls == [1])
        faults.lose_leases()
        await until(taken_back)
        await until(gone)
        assert await queue.result(sent, timeout=0) == 2
        first_goes_on.set()
        under_way = worker._service._under_way  # type: ignore[union-attr]
        await until(lambda: not list(under_way))
    assert await queue.result(sent, timeout=0) == 2

"""Limits and locks in time travel: what may not begin yet begins when its time has come."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from bide import AsyncQueue, ManualClock, Queue


@pytest.fixture(params=[AsyncQueue, Queue])
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    made = request.param("memory://", clock=ManualClock())
    yield made
    await done(made.close())


async def done(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer


async def test_a_rate_holds_messages_back_in_virtual_time(queue: Any) -> None:
    begun: list[tuple[int, float]] = []
    clock = queue.session.setup.clock
    start = clock.now_ms

    @queue.task("sms", rate="2/10s")
    def sms(n: int) -> None:
        begun.append((n, (clock.now_ms - start) / 1000))

    for n in range(5):
        await done(sms.send(n=n))
    handled = await done(queue.testing.advance("1m"))
    assert begun == [(0, 0), (1, 0), (2, 10), (3, 10), (4, 20)]
    assert [each.outcome for each in handled].count("done") == 5
    assert {each.outcome for each in handled} == {"done", "waits"}


async def test_a_rate_for_each_value(queue: Any) -> None:
    begun: list[tuple[str, float]] = []
    clock = queue.session.setup.clock
    start = clock.now_ms

    @queue.task("sms", rate="1/10s", per="{user}")
    def sms(user: str) -> None:
        begun.append((user, (clock.now_ms - start) / 1000))

    for user in ("a", "b", "a", "a"):
        await done(sms.send(user=user))
    await done(queue.testing.advance("1m"))
    assert begun == [("a", 0), ("b", 0), ("a", 10), ("a", 20)]


@pytest.mark.parametrize(("on_conflict", "outcome"), [("wait", "waits"), ("defer", "waits"), ("error", "dead")])
async def test_a_lock_that_is_held_has_its_three_answers(queue: Any, on_conflict: Any, outcome: str) -> None:
    begun: list[int] = []
    delay = {"lock_delay": "30s"} if on_conflict == "defer" else {}

    @queue.task("pay", lock="order:{order}", on_conflict=on_conflict, **delay)
    def pay(order: int) -> None:
        begun.append(order)

    lock = queue.lock("order:42", ttl="1h")
    await done(lock.__aenter__() if isinstance(queue, AsyncQueue) else lock.__enter__())
    await done(pay.send(order=42))
    await done(pay.send(order=43))
    [first, second] = await done(queue.testing.advance("5s"))
    assert [first.outcome, second.outcome, begun] == [outcome, "done", [43]]
    await done(lock.__aexit__(None, None, None) if isinstance(queue, AsyncQueue) else lock.__exit__(None, None, None))
    await done(queue.testing.advance("1m"))
    assert begun == ([43] if on_conflict == "error" else [43, 42])


async def test_who_waits_for_a_lock_too_long_is_buried(queue: Any) -> None:
    @queue.task("pay", lock="order:{order}", lock_wait="1m")
    def pay(order: int) -> None:
        raise AssertionError

    lock = queue.lock("order:42", ttl="1d")
    await done(lock.__aenter__() if isinstance(queue, AsyncQueue) else lock.__enter__())
    await done(pay.send(order=42))
    handled = await done(queue.testing.advance("2m"))
    assert [each.outcome for each in handled] == ["waits", "waits", "dead"]
    await done(lock.__aexit__(None, None, None) if isinstance(queue, AsyncQueue) else lock.__exit__(None, None, None))

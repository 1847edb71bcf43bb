"""Overdue messages in workers, on every engine: the newest of each value is called, or all are, at a rate."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, current
from bide.queue.tasks.limits import Overdue
from tests.worker.conftest import EVERY_ENGINE, Working, place
from tests.worker.faults import Call, Faults


@pytest.fixture(params=EVERY_ENGINE)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place(request, tmp_path)


@pytest.fixture
def overdue(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From now on, what was due up to an instant is overdue."""

    def up_to(due: int) -> None:
        monkeypatch.setattr(Overdue, "takes", lambda self, claimed, now: claimed.attempt == 1 and claimed.due <= due)

    return up_to


async def test_one_worker_calls_the_newest_of_each_value(queue: AsyncQueue, working: Working, until: Any, overdue: Any) -> None:
    called: list[tuple[int, int]] = []

    @queue.task("car.at", catch_up="latest", per="{car}")
    async def car_at(car: int, place: int) -> None:
        called.append((car, place))

    sent = [await car_at.send(car=n % 7, place=n) for n in range(200)]
    overdue(sent[-1].due)
    async with working(queue, concurrency=5):
        await until(lambda: _empty(queue, "car.at"))
    assert sorted(called) == sorted((n % 7, n) for n in range(193, 200))


async def test_several_workers_lose_no_newest_and_call_none_twice(
    queue: AsyncQueue, working: Working, until: Any, overdue: Any
) -> None:
    called: list[tuple[int, int]] = []

    @queue.task("car.at", catch_up="latest", per="{car}")
    async def car_at(car: int, place: int) -> None:
        called.append((car, place))
        await asyncio.sleep(0)

    await car_at.send_many({"car": n % 7, "place": n} for n in range(1_500))
    newest = [await car_at.send(car=car, place=2_000) for car in range(7)]
    overdue(newest[-1].due)
    async with working(queue, concurrency=20), working(queue, concurrency=20), working(queue, concurrency=20):
        await until(lambda: _empty(queue, "car.at"))
    assert len(called) == len(set(called)) < 100
    assert {(car, 2_000) for car in range(7)}.issubset(called)


async def test_the_rate_holds_over_workers_and_fresh_ones_pass(
    queue: AsyncQueue, working: Working, until: Any, overdue: Any, faults: Faults
) -> None:
    called: list[tuple[str, int, int]] = []
    turns: dict[str, int] = {}

    async def spend(call: Call, asked: Sequence[Any]) -> Any:
        answers = await call()
        turns.update((each.holder, spent.at[0]) for each, spent in zip(asked[0], answers, strict=True))
        return answers

    faults.around["gates.spend"] = spend

    @queue.task("t", catch_up="5/300ms")
    async def t(n: int) -> None:
        called.append((current().id, current().due, n))

    sent = await t.send_many({"n": n} for n in range(30))
    overdue(sent[-1].due)
    async with working(queue), working(queue):
        await until(lambda: bool(called))
        await t.send(n=99)
        await until(lambda: len(called) == 31)
    assert [n for _, _, n in called].index(99) < 30  # it did not wait for all that was before it
    assert sorted(n for _, _, n in called) == [*range(30), 99]
    given = sorted(turns.values())
    assert len(given) == 30
    assert all(later - first >= 300 for first, later in zip(given, given[5:], strict=False))
    # What began at once keeps its time; all others have theirs.
    put_off = [(id, due) for id, due, n in called if n != 99 and due > sent[-1].due]
    assert len(put_off) >= 25
    assert all(due >= turns[id] for id, due in put_off)


async def test_overdue_messages_wait_for_an_engine_that_fails(
    queue: AsyncQueue, working: Working, until: Any, overdue: Any, faults: Any
) -> None:
    called: list[int] = []

    @queue.task("t", catch_up="latest")
    async def t(n: int) -> None:
        called.append(n)

    sent = [await t.send(n=n) for n in range(5)]
    overdue(sent[-1].due)
    faults.fail("scan", times=2)
    async with working(queue):
        await until(lambda: _empty(queue, "t"))
    assert called == [4]


async def _empty(queue: AsyncQueue, topic: str) -> bool:
    stats = await queue.stats(topic)
    return not stats.pending and not stats.leased

"""Pairs of policies whose promise is about both: who goes first at a rate, and what a lost lease leaves of a debounced key."""

import asyncio
from typing import Any

import pytest

from bide import AsyncQueue, Worker, current
from tests.policies.every import ALL
from tests.policies.test_pairs import CASES
from tests.worker.conftest import EVERY_ENGINE, once, place
from tests.worker.faults import Faults


@pytest.fixture(params=EVERY_ENGINE)
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    return place(request, tmp_path)


@pytest.mark.parametrize("pair", ["Delayed-Locked", "Prioritized-Rated", "Debounced-Lost", "Paused-Scheduled"])
def test_the_pairs_that_users_ask_for_are_among_all(pair: str) -> None:
    assert sum(str(each.id).endswith(f"-{pair}") for each in CASES) >= 1
    assert set(pair.split("-")) <= {each.__name__ for each in ALL}


async def test_at_a_rate_higher_priorities_begin_first(url: str) -> None:
    begun: list[str] = []
    async with AsyncQueue(url) as queue:

        @queue.task("sms", rate="2/20ms")
        async def send(level: str) -> None:
            begun.append(level)

        for level in ("low", "normal", "high"):
            for _ in range(10):
                await send.options(priority=level).send(level)
        async with Worker(queue, grace=0):
            await once(lambda: len(begun) == 30)
    # Then high ones begin before low ones, although now and then the oldest comes first: of few, that may be most of the low
    places = {level: [place for place, each in enumerate(begun) if each == level] for level in ("low", "high")}
    assert len(places["low"]) == len(places["high"]) == 10
    assert sum(places["high"]) < sum(places["low"])


async def test_a_debounced_send_during_a_handler_that_loses_its_lease_has_a_message_of_its_own(url: str) -> None:
    called: list[tuple[int, int, str | None]] = []
    lost = asyncio.Event()
    async with AsyncQueue(url) as queue:
        faults = await Faults.of(queue)

        @queue.task("index", lock="page")
        async def index(version: int) -> None:
            called.append((version, current().attempt, current().key))
            if len(called) == 1:
                await lost.wait()

        async def has_lost_it() -> bool:
            await engine.tend(100)
            found = await queue.get(first)
            return found is not None and found.state != "leased"

        debounced = index.options(key="page:1", if_exists="later")
        engine = await queue.session.engine()
        first = await debounced.send(1)
        async with Worker(queue, grace=0, lease="300ms"):
            await once(lambda: bool(called))
            second = await debounced.options(delay="1h").send(2)
            third = await debounced.options(delay="1h").send(3)
            assert (second.outcome, third.outcome, third.id) == ("created", "postponed", second.id)
            assert second.id != first.id
            assert await queue.reschedule(second, delay=0)
            faults.lose_leases()
            await once(has_lost_it)
            faults.keep_leases()
            lost.set()  # too late: it is not heard
            await once(lambda: len(called) == 3)

            async def gone() -> bool:
                return await queue.get(first) is None and await queue.get(second) is None

            await once(gone)
    assert called[0] == (1, 1, "page:1")
    assert sorted(called[1:]) == [(1, 2, None), (3, 1, "page:1")]

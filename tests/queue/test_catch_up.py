"""What is decided of overdue messages that a worker holds, on every engine."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, Outgoing
from bide.engines.base import Claim
from bide.queue.deliveries import Internals
from bide.queue.run.aio.overdue import AsyncOverdueStep
from bide.queue.run.message import Handling, Taken
from bide.queue.tasks.outcome import DONE, Outcome

LEASE = 60_000


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("redis", marks=pytest.mark.server),
        pytest.param("postgres", marks=pytest.mark.server),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in ("redis", "postgres"):
        found: str = request.getfixturevalue(f"{request.param}_url")
        return found
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db"


async def claimed(queue: AsyncQueue, limit: int) -> Claim:
    return await (await queue.session.engine()).claim(["t"], limit, LEASE)


async def decided(queue: AsyncQueue, task: Any, claim: Claim) -> list[Outcome | None]:
    opened, setup = await queue.session.open(), queue.session.setup
    step = AsyncOverdueStep(opened.engine, setup.envelope)
    made = [opened.delivery(Internals(each, None, claim.now, LEASE)) for each in claim.messages]
    return await step.decide([Handling.of(each, task.definition, Taken(lambda same: same)) for each in made])


async def test_those_that_have_a_newer_one_are_left_out_wherever_it_is(url: str) -> None:
    async with AsyncQueue(url) as queue:

        @queue.task("t", catch_up="latest", per="{car}")
        async def t(car: int) -> None: ...

        for n in range(9):  # of those that are due in the same millisecond, any one is the newest
            await t.after(n / 1000).send(car=n % 3)  # car 0: 0 3 6, car 1: 1 4 7, car 2: 2 5 8
        while (await queue.stats("t")).ready < 9:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.001)
        await t.after("1h").send(car=0)  # not due
        first, second = await claimed(queue, 4), await claimed(queue, 3)  # 0 1 2 3, and 4 5 6 in other hands; 7 8 wait
        assert await decided(queue, t, first) == [DONE] * 4
        assert await decided(queue, t, second) == [DONE, DONE, None]
        third = await claimed(queue, 10)
        assert await decided(queue, t, third) == [None, None]


async def test_more_than_a_page_is_looked_at(url: str) -> None:
    async with AsyncQueue(url) as queue:

        @queue.task("t", catch_up="latest")
        async def t(n: int) -> None: ...

        await t.send_many({"n": n} for n in range(2_100))
        first = await claimed(queue, 10)
        assert await decided(queue, t, first) == [DONE] * 10


async def test_each_gets_an_instant_of_its_own_at_the_rate(url: str) -> None:
    async with AsyncQueue(url) as queue:

        @queue.task("t", catch_up="3/10s")
        async def t(n: int) -> None: ...

        await t.send_many({"n": n} for n in range(10))
        first, second = await claimed(queue, 4), await claimed(queue, 6)
        answers = [*await decided(queue, t, first), *await decided(queue, t, second)]  # by two workers
        assert answers[:3] == [None] * 3
        waits = [round(each.delay / 10_000) for each in answers[3:] if each is not None and each.verdict == "release"]
        assert waits == [1, 1, 1, 2, 2, 2, 3]


async def test_what_expires_before_its_instant_is_left_out(url: str) -> None:
    async with AsyncQueue(url) as queue:

        @queue.task("t", catch_up="1/10s")
        async def t(n: int) -> None: ...

        await queue.send_many("t", [Outgoing({"n": n}, expires_in=35) for n in range(8)])
        claim = await claimed(queue, 8)
        answers = await decided(queue, t, claim)
        assert answers[0] is None
        assert [each.verdict for each in answers[1:] if each] == ["release"] * 3 + ["done"] * 4

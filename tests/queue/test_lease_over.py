"""A receiver died, its lease is over, and nobody receives: nobody has the message, so it can be cancelled and moved."""

from pathlib import Path
from typing import Any

import pytest

from bide import CancelResult, Queue, RescheduleResult
from bide.queue.deliveries import internals
from tests.queue.conftest import Awaited


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
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db"


@pytest.fixture
def plain(url: str) -> Queue:
    return Queue(url)


@pytest.fixture(params=["sync", "async"])
async def queue(request: pytest.FixtureRequest, plain: Queue) -> Any:
    async with Awaited(plain) if request.param == "sync" else plain.aio as queue:
        yield queue


async def held(queue: Any, plain: Queue, *, lease: float) -> list[str]:
    """Messages that a receiver has taken which is not there any more."""
    sent = [await queue.send("t", number, key=f"k{number}", max_attempts=3) for number in range(3)]
    with Queue(plain.session.setup.settings.url) as dead:
        taken = dead.receive("t", limit=3, lease=lease)
        assert len(taken) == 3
        dead.session.open().heartbeat.close(0)
        for each in taken:
            internals(each).mark_ended()
    return [each.id for each in sent]


async def test_while_the_lease_lasts_it_is_running(queue: Any, plain: Queue) -> None:
    one, _, _ = await held(queue, plain, lease=600)
    assert await queue.cancel(one) is CancelResult.RUNNING
    assert await queue.reschedule(topic="t", key="k1", delay=60) is RescheduleResult.RUNNING
    assert await queue.cancel_many([one]) == [CancelResult.RUNNING]


async def test_when_the_lease_is_over_it_can_be_cancelled_and_moved(queue: Any, plain: Queue) -> None:
    one, _, three = await held(queue, plain, lease=0.01)
    while (found := await queue.get(three)) is not None and found.lease_until is not None:
        if await queue.cancel_many([three]) == [CancelResult.CANCELLED]:
            break
    assert await queue.cancel(one) is CancelResult.CANCELLED
    assert await queue.reschedule(topic="t", key="k1", delay=0) is RescheduleResult.MOVED
    [left] = await queue.receive("t", limit=3)
    assert (left.body, left.attempt) == (1, 2)


async def test_a_queue_with_an_outbox_says_the_same(url: str, plain: Queue, tmp_path: Path) -> None:
    with plain:
        one, _, three = await held(Awaited(plain), plain, lease=0.01)
    with Queue(url, outbox=f"sqlite:///{tmp_path}/outbox.db") as queue:
        while (found := queue.get(three)) is not None and found.lease_until is not None:
            if queue.cancel(topic="t", key="k2") is CancelResult.CANCELLED:
                break
        assert queue.cancel(one) is CancelResult.CANCELLED
        assert queue.reschedule(topic="t", key="k1", delay=0) is RescheduleResult.MOVED

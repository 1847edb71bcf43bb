"""A queue on an engine that tells nothing of what is pending, but of its dead letters."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bide import ManualClock, Removed, Requeued, Unsupported, Where
from bide.queue.choosing import PAGE


@pytest.fixture
async def modest(make_queue: Callable[..., Any], clock: ManualClock, modest_url: str) -> AsyncIterator[Any]:
    async with make_queue(modest_url, clock=clock) as queue:
        yield queue


async def bury(queue: Any, *bodies: int, error: str = "no such order") -> list[str]:
    """Their ids."""
    await queue.send_many("t", bodies)
    deliveries = await queue.receive("t", limit=len(bodies))
    for each in deliveries:
        await each.bury(error)
    return [each.id for each in deliveries]


async def bodies(queue: Any, state: str = "dead") -> list[int]:
    return [each.body for each in await queue.messages("t", state=state)]


async def test_all_dead_letters_are_requeued(modest: Any, clock: ManualClock) -> None:
    await bury(modest, 1, 2, 3)
    assert await modest.requeue("t", delay=10, spread=20) == Requeued(3, 0, 3)
    assert await bodies(modest) == []
    got = []
    for _ in range(5):
        got.append([each.body for each in await modest.receive("t", limit=10)])
        clock.advance(20 / 3)
    assert sorted(body for each in got for body in each) == [1, 2, 3]
    assert max(map(len, got)) == 1


async def test_more_than_a_page_of_them(modest: Any) -> None:
    many = PAGE * 2 + 1
    await bury(modest, *range(many))
    assert await modest.requeue("t") == Requeued(many, 0, many)
    await bury(modest, *range(many))  # as many as are received, some of which were requeued
    assert await modest.purge("t", state="dead") == Removed(many, many, 0)
    assert await bodies(modest) == []


async def test_dead_letters_are_chosen_by_their_errors(modest: Any) -> None:
    await bury(modest, 1, 2, error="TimeoutError: shop")
    await bury(modest, 3, error="ValueError")
    assert await modest.requeue("t", where=Where(error="Timeout"), spread=10) == Requeued(2, 0, 2)
    assert await bodies(modest) == [3]
    assert await modest.purge("t", state="dead", where=Where(error="Value")) == Removed(1, 1, 0)
    assert await bodies(modest) == []


async def test_dead_letters_are_named_by_their_ids(modest: Any) -> None:
    first, second, _ = await bury(modest, 1, 2, 3)
    assert await modest.requeue("t", [first, "gone"]) == Requeued(1, 0, 2)
    assert await modest.purge("t", state="dead", ids=[second, "gone"]) == Removed(1, 2, 0)
    assert await bodies(modest) == [3]


async def test_what_is_pending_is_not_told_or_deleted(modest: Any) -> None:
    await modest.send("t", 1)
    for verb, options in (
        ("topics", {}),
        ("stats", {"topic": "t"}),
        ("timeline", {"topic": "t"}),
        ("messages", {"topic": "t"}),
        ("messages", {"topic": "t", "state": "leased"}),
        ("purge", {"topic": "t", "state": "ready"}),
        ("purge", {"topic": "t", "state": "scheduled", "where": Where(older=0)}),
        ("cancel_all", {"topic": "t"}),
    ):
        with pytest.raises(Unsupported, match=r"^modest:// can't .*\. These engines can: sqlite://"):
            await getattr(modest, verb)(**options)
    [delivery] = await modest.receive("t")
    assert delivery.body == 1

"""While nothing is confirmed: what is refused is answered as ever, and while shards empty themselves no change goes astray."""

import asyncio
from typing import Any

import pytest

from bide import AsyncQueue, ConfirmTimeout, LeaseLost, Outgoing
from bide.types import CancelResult, RescheduleResult
from tests.redis.away import COLOURS, Either
from tests.redis.test_reshard import reshard

both_colours = pytest.mark.parametrize("colour", COLOURS)
spread = pytest.mark.parametrize("shards", [1, 3])


@pytest.fixture
def plain(redis_url: str, shards: int) -> str:
    return f"{redis_url}?timeout=0.5&shards={shards}"


async def running_and_ended(queue: AsyncQueue) -> list[str]:
    """The ids of two messages."""
    running, ended = [each.id for each in await queue.send_many("t", [1, 2])]
    held = {each.id: each for each in await queue.receive("t", limit=2)}
    await held[ended].ack()
    return [running, ended]


@both_colours
@spread
async def test_a_refusal_needs_no_confirmation(plain: str, colour: str) -> None:
    async with AsyncQueue(plain) as queue, Either(f"{plain}&confirm=replicas:1", colour) as other:
        running, ended = await running_and_ended(queue)
        assert await other.do("cancel", running) is CancelResult.RUNNING
        assert await other.do("cancel", ended) is CancelResult.GONE
        assert await other.do("cancel", topic="t", key="never") is CancelResult.GONE
        assert await other.do("cancel_many", [running, ended]) == [CancelResult.RUNNING, CancelResult.GONE]
        assert await other.do("reschedule", running, delay=9) is RescheduleResult.RUNNING
        assert (await other.do("requeue", "t", [ended]), await other.do("purge", "t", state="dead")) == (0, 0)


@both_colours
@spread
async def test_what_changed_nothing_is_answered_also_in_a_batch_that_changed_something(plain: str, colour: str) -> None:
    async with AsyncQueue(plain) as queue, Either(f"{plain}&confirm=replicas:1", colour) as other:
        running, ended = await running_and_ended(queue)
        pending = (await queue.send("t", 3, delay="1h")).id
        with pytest.raises(ConfirmTimeout, match="All 3 were answered, but 1 of them not confirmed") as told:
            await other.do("cancel_many", [running, ended, pending])
    assert told.value.answers == [CancelResult.RUNNING, CancelResult.GONE, None]
    assert told.value.done == [CancelResult.RUNNING, CancelResult.GONE, CancelResult.CANCELLED]


@both_colours
async def test_a_batch_that_learns_of_new_shards_asks_them_too(redis_url: str, colour: str) -> None:
    url = f"{redis_url}?timeout=0.5&namespace=shop"
    async with AsyncQueue(url) as queue, Either(f"{url}&confirm=replicas:1", colour) as other:
        old = await queue.send_many("t", [Outgoing(n, delay="1h") for n in range(2)])
        await other.do("stats", "t")
        await asyncio.to_thread(reshard, url, 3)
        new = [await queue.send("t", n, delay="1h") for n in range(12)]
        with pytest.raises(ConfirmTimeout, match="All 14 were done") as told:
            await other.do("cancel_many", [*old, *new])
        assert told.value.done == [CancelResult.CANCELLED] * 14
        assert (await queue.stats("t")).scheduled == 0


@both_colours
async def test_a_lease_that_is_lost_is_told(redis_url: str, colour: str) -> None:
    url = f"{redis_url}?timeout=0.5"
    verbs: dict[str, tuple[Any, ...]] = {"ack": (), "retry": (), "bury": ("broken",), "release": ()}
    async with AsyncQueue(url) as queue, Either(f"{url}&confirm=replicas:1", colour) as other:
        await queue.send_many("t", range(len(verbs) + 1))
        *late, last = await other.do("receive", "t", limit=9, lease="1s")
        taken = 0
        while taken < len(verbs) + 1:
            taken += len(await queue.receive("t", limit=9, wait=10, lease="1m"))
        for each, (verb, args) in zip(late, verbs.items(), strict=True):
            with pytest.raises(LeaseLost):
                await either(getattr(each, verb), *args)
        assert await other.do("ack_many", [last]) == [False]


async def either(verb: Any, *args: Any) -> None:
    """Of a delivery of either colour."""
    told = await asyncio.to_thread(verb, *args)
    if asyncio.iscoroutine(told):
        await told


@both_colours
async def test_while_shards_empty_themselves_all_that_is_told_as_done_is_done(redis_url: str, colour: str) -> None:
    """An old shard, which is asked first, knows nothing of what is new."""
    url = f"{redis_url}?timeout=0.5&namespace=shop"
    async with AsyncQueue(url) as queue, Either(f"{url}&confirm=replicas:1", colour) as other:
        await queue.send("t", "keeps the old shard", delay="1h")
        spread = await asyncio.to_thread(reshard, url, 3)
        assert [each.size for each in spread.generations] == [1, 3]
        await queue.send_many("t", [Outgoing(0, key=f"there {n}", delay="1h") for n in range(6)])
        with pytest.raises(ConfirmTimeout) as short:
            await other.do("send", "t", 1, key="one", delay="1h")
        with pytest.raises(ConfirmTimeout):
            await other.do("send", "t", 1, key="one", delay="1h", operation=short.value.operation)
        with pytest.raises(ConfirmTimeout):
            await other.do("send", "t", 2, operation="mine", delay="1h")
        with pytest.raises(ConfirmTimeout, match="All 6 were done"):
            await other.do("send_many", "t", [Outgoing(3, key=f"many {n}", delay="1h") for n in range(6)])
        for n in range(6):
            other.queue.later("t", 4, key=f"later {n}", delay="1h")
        assert (await other.do("flush")).sent == 6
        assert (await queue.stats("t")).scheduled == 7 + 2 + 6 + 6
        for n in range(3):
            with pytest.raises(ConfirmTimeout):
                await other.do("cancel", topic="t", key=f"there {n}")
            with pytest.raises(ConfirmTimeout):
                await other.do("reschedule", topic="t", key=f"there {n + 3}", delay=0)
        stats = await queue.stats("t")
        assert (stats.scheduled, stats.ready) == (15, 3)

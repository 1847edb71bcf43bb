"""Time travel, and the fixtures that come with bide."""

import asyncio
from typing import Any

import pytest

from bide import AsyncQueue, ConfigError, ManualClock, Queue
from bide.testing import Handled


async def test_time_moves_from_one_due_message_to_the_next(queue: Any, clock: ManualClock) -> None:
    start = clock.now_ms
    late = await queue.send("b", 1, delay="10m")
    early = await queue.send("a", 2, delay="5m")
    await queue.send("a", 3, delay="20m")
    assert await queue.testing.advance("15m") == [Handled("a", early.id, "ready"), Handled("b", late.id, "ready")]
    assert clock.now_ms == start + 900_000
    assert await queue.testing.advance(0) == []


async def test_leases_end_and_messages_expire_on_the_way(queue: Any) -> None:
    await queue.send("t", 1)
    await queue.receive("t", lease="10s")
    await queue.send("t", 2, delay="1m", expires_in="1m")
    await queue.testing.advance("5m")
    stats = await queue.stats("t")
    assert (stats.ready, stats.leased, stats.scheduled) == (1, 0, 0)
    [again] = await queue.receive("t")
    assert (again.body, again.attempt) == (1, 2)


async def test_a_receiver_that_sleeps_is_woken_by_time_travel() -> None:
    queue = AsyncQueue("memory://", clock=ManualClock())
    await queue.send("t", 1, delay="1h")
    receiving = asyncio.create_task(queue.receive("t", wait="60s"))
    await asyncio.sleep(0)
    await queue.testing.advance("1h")
    [delivery] = await receiving
    assert delivery.lateness == 0
    await queue.close()


async def test_time_travel_needs_a_clock_that_can_be_moved(make_queue: Any) -> None:
    queue = make_queue()
    with pytest.raises(ConfigError, match="ManualClock"):
        await queue.testing.advance("1s")
    await queue.close()


def test_the_sync_fixture_is_a_queue_of_its_own(bide_queue: Queue) -> None:
    bide_queue.send("order.cancel", {"order": 42}, delay="15m")
    assert bide_queue.receive("order.cancel") == []
    bide_queue.testing.advance("15m")
    [delivery] = bide_queue.receive("order.cancel")
    assert delivery.body == {"order": 42}


async def test_the_async_fixture_is_a_queue_of_its_own(bide_async_queue: AsyncQueue) -> None:
    await bide_async_queue.send("order.cancel", {"order": 42}, delay="15m")
    [handled] = await bide_async_queue.testing.advance("15m")
    assert handled.topic == "order.cancel"
    assert bide_async_queue.sync.topics() == ["order.cancel"]


async def test_a_message_whose_handler_was_cancelled_with_the_travel_can_be_handled_again_at_once() -> None:
    queue = AsyncQueue("memory://", clock=ManualClock())
    begun = asyncio.Event()

    @queue.task("t", max_attempts=1)
    async def handle() -> None:
        begun.set()
        await asyncio.Event().wait()

    await handle.send()
    travelling = asyncio.create_task(queue.testing.advance(0))
    await begun.wait()
    travelling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await travelling
    [delivery] = await queue.receive("t")
    assert delivery.attempt == 1
    await delivery.ack()
    await queue.close()

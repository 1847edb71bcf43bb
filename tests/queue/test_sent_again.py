"""What one wants of a message that is sent again and again: each row of the table in docs/messages.md."""

from typing import Any

import pytest

from bide import Exists, ManualClock

EVERY = 6  # seconds between two sends


async def arrivals(queue: Any, clock: ManualClock, sends: int, **options: Any) -> list[tuple[int, Any]]:
    """One send each six seconds, and then a pause; when what arrived: seconds from the first send, and the body."""
    begin, arrived = clock.now_ms, []

    async def receive() -> None:
        for delivery in await queue.receive("t", limit=9):
            arrived.append(((clock.now_ms - begin) // 1_000, delivery.body))
            await delivery.ack()

    for second in range(EVERY * sends + 180):
        await receive()
        number, rest = divmod(second, EVERY)
        if not rest and number < sends:
            await queue.send("t", number, key="k", **options)
            await receive()
        clock.advance(1)
    return arrived


async def test_one_at_a_time(queue: Any, clock: ManualClock) -> None:
    assert await arrivals(queue, clock, 3, delay="1m") == [(60, 0)]


async def test_debounce_waits_for_a_pause(queue: Any, clock: ManualClock) -> None:
    assert await arrivals(queue, clock, 20, delay="30s", if_exists="later") == [(19 * EVERY + 30, 19)]


async def test_debounce_with_a_bound_waits_no_longer_than_it(queue: Any, clock: ManualClock) -> None:
    found = await arrivals(queue, clock, 20, delay="30s", if_exists="later", max_wait="1m")
    assert found == [(60, 9), (120, 19)]


async def test_throttle_at_the_end_of_the_window(queue: Any, clock: ManualClock) -> None:
    assert await arrivals(queue, clock, 20, delay="1m") == [(60, 0), (120, 10)]


async def test_throttle_at_the_begin_of_the_window(queue: Any, clock: ManualClock) -> None:
    assert await arrivals(queue, clock, 21, unique_for="1m") == [(0, 0), (60, 10), (120, 20)]


async def test_once_in_a_period_also_when_it_was_cancelled(queue: Any, clock: ManualClock) -> None:
    first = await queue.send("t", 1, key="k", unique_for="1h", delay="5m")
    assert await queue.cancel(first)
    again = await queue.send("t", 2, key="k", unique_for="1h")
    assert (again.id, again.due, again.outcome) == (first.id, first.due, "duplicate")
    with pytest.raises(Exists, match="was sent within unique_for") as refused:
        await queue.send("t", 3, key="k", unique_for="1h", if_exists="error")
    assert refused.value.sent.id == first.id
    assert await queue.receive("t") == []
    clock.advance(3_600)
    assert (await queue.send("t", 4, key="k", unique_for="1h")).created

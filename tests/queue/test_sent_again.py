"""What one wants of a message that is sent again and again: each row of the table in docs/messages.md."""

from typing import Any

import pytest

from bide import BadOption, Exists, ManualClock, Outgoing, TooLarge

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


async def test_gather_what_is_sent_in_a_minute(queue: Any, clock: ManualClock) -> None:
    found = await arrivals(queue, clock, 15, delay="1m", if_exists="merge")
    assert found == [(60, list(range(10))), (120, list(range(10, 15)))]


async def test_merge_tells_what_it_did(queue: Any) -> None:
    how: dict[str, Any] = {"key": "k", "if_exists": "merge", "delay": "1m"}
    sent = await queue.send_many("t", [Outgoing(n, **how) for n in range(3)])
    assert [each.outcome for each in sent] == ["created", "merged", "merged"]
    assert (await queue.get(sent[0])).body == [0, 1, 2]
    await queue.send("t", {"no": "list"}, key="other", delay="1m")
    with pytest.raises(Exists, match="no list"):
        await queue.send("t", 1, **{**how, "key": "other"})


async def test_a_merged_body_is_no_larger_than_max_body(make_queue: Any) -> None:
    queue = make_queue(max_body=1_000)
    sent = [await queue.send("t", "x" * 300, key="k", if_exists="merge", delay="1m") for _ in range(5)]
    assert [each.outcome for each in sent] == ["created", "merged", "merged", "created", "merged"]
    assert [len(each.body) for each in await queue.messages("t")] == [3, 2]
    await queue.send("t", "x" * 996, key="l", if_exists="merge")
    with pytest.raises(TooLarge):
        await queue.send("t", "x" * 997, key="l", if_exists="merge")


async def test_merge_is_for_json(make_queue: Any) -> None:
    class Upper:
        def encode(self, body: Any, /) -> bytes:
            return str(body).upper().encode()

        def decode(self, raw: bytes, /) -> Any:
            return raw.decode()

    with pytest.raises(BadOption, match="codec"):
        await make_queue(codec=Upper()).send("t", "x", key="k", if_exists="merge")

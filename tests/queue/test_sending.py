"""What a send does, as a user sees it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bide import (
    AsyncQueue,
    CancelResult,
    Exists,
    Hook,
    ManualClock,
    Outgoing,
    PartlySent,
    RescheduleResult,
    Unavailable,
    Unsupported,
)


async def receive(queue: Any, topic: str = "t", limit: int = 100) -> list[Any]:
    found: list[Any] = await queue.receive(topic, limit=limit)
    return found


async def test_a_message_is_delivered_after_its_delay_and_not_before(queue: Any, clock: ManualClock) -> None:
    sent = await queue.send("order.cancel", {"order": 42}, delay="15m")

    clock.advance(15 * 60 - 0.001)
    assert await receive(queue, "order.cancel") == []
    clock.advance(0.001)
    [delivery] = await receive(queue, "order.cancel")

    assert (delivery.id, delivery.topic, delivery.body) == (sent.id, "order.cancel", {"order": 42})
    assert (delivery.due, delivery.lateness, delivery.attempt) == (sent.due, 0.0, 1)
    await delivery.ack()
    assert (await queue.stats()).topics == {}


async def test_sent_is_truthy_and_reads_as_its_id(queue: Any) -> None:
    sent = await queue.send("t", 1)
    assert sent
    assert sent.created
    assert str(sent) == sent.id
    assert sent.due_at.timestamp() * 1000 == sent.due


async def test_at_is_an_instant(queue: Any, clock: ManualClock) -> None:
    when = clock.now() + timedelta(hours=1)
    sent = await queue.send("t", 1, at=when.astimezone())
    assert sent.due_at == when


async def test_an_instant_between_two_milliseconds_is_rounded_up(queue: Any, clock: ManualClock) -> None:
    when = clock.now() + timedelta(seconds=1, microseconds=1)
    assert (await queue.send("t", 1, at=when)).due == clock.now_ms + 1001


async def test_a_key_is_kept_replaced_or_refused(queue: Any) -> None:
    first = await queue.send("t", "one", delay=10, key="k")
    kept = await queue.send("t", "two", delay=20, key="k")
    replaced = await queue.send("t", "three", delay=5, key="k", if_exists="replace")
    later = await queue.send("t", "four", delay=1, key="k", if_exists="later")

    assert {each.id for each in (first, kept, replaced, later)} == {first.id}
    assert [each.outcome for each in (first, kept, replaced, later)] == ["created", "kept", "replaced", "postponed"]
    assert later.due == replaced.due
    with pytest.raises(Exists) as refused:
        await queue.send("t", "five", key="k", if_exists="error")
    assert refused.value.sent.id == first.id
    assert (await queue.get(topic="t", key="k")).body == "four"


async def test_sends_that_never_pause_put_a_message_off_no_longer_than_max_wait(queue: Any, clock: ManualClock) -> None:
    received = []
    for number in range(21):  # one each six seconds
        await queue.send("t", number, delay="30s", key="k", if_exists="later", max_wait="1m")
        clock.advance(6)
        for delivery in await queue.receive("t"):
            received.append((6 * (number + 1), delivery.body))
            await delivery.ack()
    assert received == [(60, 9), (120, 19)]


async def test_send_many_answers_for_each_in_order(queue: Any, clock: ManualClock) -> None:
    items = ["plain", Outgoing("keyed", key="k", delay="1m"), Outgoing("again", key="k", if_exists="error"), {"n": 3}]
    sent = await queue.send_many("t", items)

    assert [each.outcome for each in sent] == ["created", "created", "exists", "created"]
    assert sent[1].id == sent[2].id
    assert [each.body for each in await receive(queue)] == ["plain", {"n": 3}]
    assert sent[1].due == clock.now_ms + 60_000


async def test_send_many_takes_more_than_one_batch_and_none(queue: Any) -> None:
    assert len(await queue.send_many("t", range(2_500))) == 2_500
    assert (await queue.stats("t")).ready == 2_500
    assert await queue.send_many("t", []) == []


async def test_the_same_operation_acts_once(queue: Any, clock: ManualClock) -> None:
    first = await queue.send("t", 1, operation="op")
    many = await queue.send_many("t", [1, 2, 3], operation="batch")
    clock.advance(599)

    assert await queue.send("t", 1, operation="op") == first
    assert await queue.send_many("t", [1, 2, 3], operation="batch") == many
    assert (await queue.stats("t")).ready == 4


@pytest.mark.parametrize("length", [1, 126, 127, 128])
async def test_the_operation_of_a_batch_may_be_as_long_as_that_of_one_message(queue: Any, length: int) -> None:
    operation = "o" * length
    first = await queue.send_many("t", [Outgoing(1), 2, Outgoing(3, key="k")], operation=operation)
    assert await queue.send_many("t", [1, Outgoing(2), Outgoing(3, key="k")], operation=operation) == first
    assert (await queue.stats("t")).ready == 3


async def test_bodies_of_many_kinds_go_in(queue: Any) -> None:
    @dataclass
    class Order:
        number: int
        placed: datetime

    class Item(msgspec.Struct):
        name: str

    placed = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    plain: list[object] = [None, True, 0, 2**70, 15_947_634_569_000_323, 1.5, "ü\n", [], {}, {"__proto__": 1}]
    await queue.send_many("t", [*plain, b"ab", Order(1, placed), Item("x")])

    got = [each.body for each in await receive(queue)]
    assert got[:10] == plain
    assert got[10:] == ["YWI=", {"number": 1, "placed": "2026-01-02T03:04:05Z"}, {"name": "x"}]


async def test_cancel_and_reschedule_tell_the_truth(queue: Any, clock: ManualClock) -> None:
    waiting = await queue.send("t", 1, delay=60, key="w")
    await queue.send("t", 2, key="r")
    [running] = await receive(queue)

    assert await queue.reschedule(topic="t", key="w", delay="5m") is RescheduleResult.MOVED
    assert await queue.reschedule(topic="t", key="r", delay=1) is RescheduleResult.RUNNING
    assert await queue.cancel(running.id) is CancelResult.RUNNING
    assert await queue.cancel(waiting) is CancelResult.CANCELLED
    assert await queue.cancel(waiting) is CancelResult.GONE
    assert await queue.reschedule(waiting, at=clock.now()) is RescheduleResult.GONE
    assert [bool(each) for each in CancelResult] == [True, False, False, False]


async def test_a_closed_queue_says_so(queue: Any) -> None:
    await queue.send("t", 1)
    await queue.close()
    await queue.close()
    for call in (queue.send("t", 1), queue.receive("t"), queue.send_many("t", [1]), queue.stats(), queue.cancel("x")):
        with pytest.raises(Unavailable, match="closed"):
            await call


async def test_a_queue_closed_before_use_stays_closed(make_queue: Any) -> None:
    queue = make_queue()
    await queue.close()
    with pytest.raises(Unavailable, match="closed"):
        await queue.send("t", 1)


async def test_memory_has_no_transaction_to_join(queue: Any) -> None:
    with pytest.raises(Unsupported, match="connection="):
        await queue.send("t", 1, connection=object())
    assert (await queue.stats()).topics == {}


async def test_a_later_part_that_fails_says_what_was_sent() -> None:
    class Full(Hook):
        calls = 0

    queue = AsyncQueue("memory://")
    engine = await queue.session.engine()
    put = engine.put

    async def failing(messages: Any, **options: Any) -> Any:
        Full.calls += 1
        if Full.calls == 2:
            raise Unavailable("gone")
        return await put(messages, **options)

    engine.put = failing  # type: ignore[method-assign]
    with pytest.raises(PartlySent, match="1,000 of 2,500") as partly:
        await queue.send_many("t", range(2_500))
    assert len(partly.value.sent) == 1_000
    assert isinstance(partly.value.error, Unavailable)
    await queue.close()

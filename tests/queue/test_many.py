"""Many at once: batches that are waited for, tried again, and cancelled; and messages that are moved from where they are."""

from datetime import timedelta
from typing import Any

import pytest

from bide import BadOption, BadTime, CancelResult, RescheduleResult, Unavailable


async def test_receive_lingers_for_more(queue: Any, clock: Any) -> None:
    await queue.send_many("t", [1, 2])
    await queue.send("t", 3, delay="1h")
    found = await queue.receive("t", limit=3, linger=0.05)
    assert [each.body for each in found] == [1, 2]
    # And not when there are as many as were asked for
    await queue.send_many("t", [4, 5])
    assert len(await queue.receive("t", limit=2, linger="10s", lease="30s")) == 2
    # And not without a first one
    assert await queue.receive("t", limit=2, linger="10s", lease="30s") == []


async def test_a_linger_that_would_outlast_the_lease_is_refused(queue: Any) -> None:
    with pytest.raises(BadTime, match="over half of the lease"):
        await queue.receive("t", linger="16s", lease="30s")


async def test_many_are_tried_again_and_each_is_answered(queue: Any, clock: Any) -> None:
    await queue.send_many("t", range(1_200))
    held = [*await queue.receive("t", limit=1_000), *await queue.receive("t", limit=1_000)]
    await held[0].ack()
    answers = await queue.retry_many(held, "1m", error=ValueError("busy"))
    assert answers == [False] + [True] * 1_199
    stats = await queue.stats("t")
    assert (stats.scheduled, stats.leased) == (1_199, 0)
    info = await queue.get(held[1].id)
    assert (info.last_error, info.attempt, info.due - held[1].due) == ("ValueError: busy", 1, 60_000)


async def test_without_a_delay_each_waits_as_long_as_its_attempts_say(queue: Any, clock: Any) -> None:
    tried = await queue.send("t", max_attempts=9)
    for _ in range(5):
        [held] = await queue.receive("t")
        await held.retry(0)
    sent = await queue.send("t", max_attempts=9)
    held = await queue.receive("t", limit=2)
    assert await queue.retry_many(held) == [True, True]
    waits = {each.id: (await queue.get(each.id)).due - clock.now_ms for each in held}
    assert 800 <= waits[sent.id] <= 1_200  # 1 s, a fifth more or less
    assert 25_600 <= waits[tried.id] <= 38_400  # the sixth: 32 s


async def test_many_are_cancelled_and_each_is_answered(queue: Any) -> None:
    sent = await queue.send_many("t", range(1_200))
    [held] = await queue.receive("t")
    results = await queue.cancel_many([held.id, *sent[1:], "no such id", sent[-1]])
    assert results[0] is CancelResult.RUNNING
    assert results[1:-2] == [CancelResult.CANCELLED] * 1_199
    assert results[-2:] == [CancelResult.GONE] * 2


async def test_a_text_is_no_list_of_messages(queue: Any) -> None:
    with pytest.raises(BadOption, match="Give a list"):
        await queue.cancel_many("an id")


async def test_a_message_is_moved_from_where_it_is(queue: Any, clock: Any) -> None:
    sent = await queue.send("t", delay="1h", key="k")
    assert await queue.reschedule(sent, by="3d") is RescheduleResult.MOVED
    assert await queue.reschedule(topic="t", key="k", by=timedelta(minutes=5)) is RescheduleResult.MOVED
    info = await queue.get(sent)
    assert info.due - sent.due == 3 * 86_400_000 + 300_000


@pytest.mark.parametrize("more", [{"delay": 1}, {"at": "now"}])
async def test_by_goes_with_no_other_time(queue: Any, more: dict[str, Any]) -> None:
    sent = await queue.send("t", delay="1h")
    with pytest.raises(BadTime, match="by was given together with delay or at"):
        await queue.reschedule(sent, by=1, **more)


async def test_a_closed_queue_refuses_them_also_for_none(queue: Any) -> None:
    await queue.close()
    for verb in (queue.ack_many, queue.retry_many, queue.cancel_many):
        with pytest.raises(Unavailable):
            await verb([])


async def test_what_is_no_delivery_is_refused_by_its_kind(queue: Any) -> None:
    sent = await queue.send("t")
    for verb in ("ack_many", "retry_many"):
        for other, kind in ((1, "int"), (sent, "Sent"), (None, "NoneType")):
            with pytest.raises(BadOption, match=rf"^{verb} takes deliveries, as receive\(\) gives them, .* a {kind}\.$"):
                await getattr(queue, verb)([other])

"""Receiving, listening, and the ways to end a delivery."""

import asyncio
import logging
import pickle
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bide import AsyncQueue, BadBody, Call, Hook, LeaseLost, ManualClock, Queue
from bide.queue.deliveries import internals


async def take(queue: Any, topic: str = "t", **options: Any) -> Any:
    [delivery] = await queue.receive(topic, **options)
    return delivery


async def fail(why: str) -> None:
    raise RuntimeError(why)


async def test_retry_waits_longer_each_time_and_then_buries(queue: Any, clock: ManualClock) -> None:
    sent = await queue.send("t", 1)
    for attempt, longest in ((1, 1.2), (2, 2.4)):
        delivery = await take(queue)
        assert delivery.attempt == attempt
        await delivery.retry(error=ValueError("no"))
        stored = await queue.get(sent)
        assert (stored.state, stored.last_error) == ("scheduled", "ValueError: no")
        assert 0.8 * longest / 1.2 <= (stored.due - clock.now_ms) / 1000 <= longest
        clock.advance(longest)
    await (await take(queue)).retry(error="third")
    dead = await queue.get(sent)
    assert (dead.state, dead.attempt, dead.last_error) == ("dead", 3, "third")


async def test_release_does_not_count(queue: Any) -> None:
    await queue.send("t", 1, max_attempts=1)
    for _ in range(3):
        delivery = await take(queue)
        assert delivery.attempt == 1
        await delivery.release()
    assert (await queue.stats("t")).ready == 1


async def test_bury_and_requeue(queue: Any) -> None:
    sent = await queue.send("t", 1)
    await (await take(queue)).bury("broken")
    page = await queue.messages("t", state="dead")
    assert [(each.id, each.last_error) for each in page] == [(sent.id, "broken")]
    assert page.after is None
    assert await queue.requeue("t", delay="1s") == 1
    assert await queue.requeue("t", [sent.id, "unknown"]) == 0
    assert (await queue.get(sent)).state == "scheduled"


async def test_requeue_says_how_many_lost_their_key(queue: Any) -> None:
    for key in ("a", "b"):
        await queue.send("t", key=key)
        [delivery] = await queue.receive("t")
        await delivery.bury("no such address")
    held = await queue.send("t", key="a", delay=60)
    done = await queue.requeue("t")
    assert (done, done.keyless, repr(done)) == (2, 1, "Requeued(2, keyless=1, asked=2)")
    assert pickle.loads(pickle.dumps(done)).keyless == 1
    assert (await queue.get(topic="t", key="a")).id == held.id


async def test_requeue_and_purge_take_more_than_a_page(queue: Any) -> None:
    await queue.send_many("t", range(2_300))
    while deliveries := await queue.receive("t", limit=1_000):
        for delivery in deliveries:
            await delivery.bury("x")
    assert (await queue.stats("t")).dead == 2_300
    assert await queue.requeue("t") == 2_300
    assert await queue.purge("t", state="dead") == 0
    assert await queue.purge("t", state="ready") == 2_300
    assert await queue.topics() == []


async def test_each_old_token_is_refused(queue: Any, clock: ManualClock) -> None:
    await queue.send("t", 1)
    old = await take(queue, lease="10s")
    clock.advance(10)
    new = await take(queue, lease="10s")
    assert new.id == old.id
    assert new.token > old.token
    for call in (old.ack(), old.retry(), old.release(), old.bury("x"), old.extend("1m")):
        with pytest.raises(LeaseLost, match="Nothing was changed"):
            await call
    await new.ack()
    with pytest.raises(LeaseLost):
        await new.ack()


async def test_a_batch_is_acked_in_one_call(queue: Any, clock: ManualClock) -> None:
    await queue.send_many("t", range(2_100))
    held = [each for _ in range(3) for each in await queue.receive("t", limit=700, lease="1m")]
    await held[0].bury("by hand")
    assert await queue.ack_many(held) == [False] + [True] * 2_099
    assert await queue.ack_many([]) == []
    assert all(internals(each).ended for each in held)
    stats = await queue.stats("t")
    assert (stats.leased, stats.dead) == (0, 1)


async def test_extend_holds_a_message_longer(queue: Any, clock: ManualClock) -> None:
    await queue.send("t", 1)
    delivery = await take(queue, lease="10s")
    clock.advance(9)
    await delivery.extend("10s")
    clock.advance(9)
    assert await queue.receive("t") == []
    await delivery.ack()


async def test_a_block_acks_or_retries(queue: Any, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    await queue.send("t", {"secret": "hunter2"})
    async with await take(queue):
        await fail("first try")
    assert (await queue.stats("t")).scheduled == 1
    assert "failed in attempt 1" in caplog.text
    assert "hunter2" not in caplog.text
    clock.advance(2)
    async with await take(queue) as delivery:
        assert delivery.attempt == 2
    assert await queue.topics() == []


async def test_a_stop_from_outside_gives_the_message_back(queue: Any) -> None:
    await queue.send("t", 1)
    with pytest.raises(KeyboardInterrupt):
        async with await take(queue):
            raise KeyboardInterrupt
    assert (await take(queue)).attempt == 1


async def test_what_was_ended_in_the_block_is_left_alone(queue: Any) -> None:
    await queue.send("t", 1)
    async with await take(queue) as delivery:
        await delivery.bury("by hand")
    assert (await queue.stats("t")).dead == 1


async def test_a_lease_lost_in_the_block_is_told_and_the_loop_goes_on(
    queue: Any, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.send("t", 1)
    async with await take(queue, lease="1s"):
        clock.advance(1)
        second = await take(queue)
    assert "came too late" in caplog.text
    await second.ack()


async def test_a_body_that_cannot_be_read_is_buried(make_queue: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    class Cautious:
        def encode(self, body: Any, /) -> bytes:
            return str(body).encode()

        def decode(self, raw: bytes, /) -> Any:
            if raw == b"bad":
                raise ValueError("not mine")
            return raw.decode()

    queue = make_queue(codec=Cautious())
    await queue.send_many("t", ["good", "bad", "fine"])
    assert [each.body for each in await queue.receive("t", limit=10)] == ["good", "fine"]
    [dead] = await queue.messages("t", state="dead")
    assert dead.body == b"bad"
    assert "can't be decoded" in dead.last_error
    assert "buried" in caplog.text
    await queue.close()


async def test_a_stored_body_over_the_limit_is_refused_when_received(make_queue: Callable[..., Any]) -> None:
    small = make_queue("memory://limits-of-bodies", max_body=100)
    large = make_queue("memory://limits-of-bodies")
    await large.send("t", "x" * 200)
    assert await small.receive("t") == []
    [dead] = await small.messages("t")
    assert dead.state == "dead"
    assert "limit is 100" in dead.last_error
    await small.purge("t", state="dead")


async def test_receive_sleeps_until_something_is_sent(make_queue: Callable[..., Any]) -> None:
    queue = make_queue()
    waiting = asyncio.create_task(queue.receive("t", wait="30s"))
    await asyncio.sleep(0)
    await queue.send("other", 0)
    await queue.send("t", 1)
    [delivery] = await waiting
    assert delivery.body == 1
    await queue.close()


async def test_receive_sleeps_until_something_is_due_and_then_gives_up(make_queue: Callable[..., Any]) -> None:
    queue = make_queue()
    await queue.send("t", 1, delay="20ms")
    [delivery] = await queue.receive("t", wait="30s")
    assert delivery.lateness >= 0
    assert await queue.receive("t", wait="10ms") == []
    await queue.close()


async def test_topics_take_turns(queue: Any) -> None:
    await queue.send_many("loud", range(100))
    await queue.send("quiet", "here")
    got = await queue.receive("loud", "quiet", limit=2)
    assert {each.topic for each in got} == {"loud", "quiet"}


async def test_listen_gives_messages_as_they_fall_due(make_queue: Callable[..., Any]) -> None:
    queue = make_queue()
    await queue.send_many("t", range(25))
    got = []
    deliveries = queue.listen("t", limit=10)
    async for delivery in deliveries:
        async with delivery:
            got.append(delivery.body)
        if len(got) == 25:
            break
    await deliveries.aclose()
    assert got == list(range(25))
    assert await queue.topics() == []
    await queue.close()


async def test_leaving_listen_gives_back_what_was_not_looked_at(make_queue: Callable[..., Any]) -> None:
    queue = make_queue()
    await queue.send_many("t", range(10))
    deliveries = queue.listen("t", limit=10)
    async for delivery in deliveries:
        await delivery.ack()
        break
    await deliveries.aclose()
    stats = await queue.stats("t")
    assert (stats.ready, stats.leased) == (9, 0)
    assert [each.attempt for each in await queue.receive("t", limit=10)] == [1] * 9
    await queue.close()


async def test_leaving_one_of_two_listeners_leaves_the_other_one_what_it_has(make_queue: Callable[..., Any]) -> None:
    async with make_queue() as queue:
        first, second = queue.listen("t", limit=10), queue.listen("other", limit=10)
        await queue.send("t", 1)
        await queue.send("other", 1)
        for each in (first, second):
            async with await anext(each):
                pass
        await second.aclose()
        for n in range(3):
            await queue.send("t", n)
        async with await anext(first):
            pass
        await first.aclose()
        again = await queue.receive("t", limit=3)
        assert [(each.body, each.attempt) for each in again] == [(1, 1), (2, 1)]


async def test_closing_gives_back_what_a_listener_has_not_looked_at(make_queue: Callable[..., Any]) -> None:
    queue = make_queue("memory://closed-while-listening")
    await queue.send_many("t", range(10))
    deliveries = queue.listen("t", limit=10)
    await (await anext(deliveries)).ack()
    await queue.close()
    stats = Queue("memory://closed-while-listening").stats("t")
    assert (stats.ready, stats.leased) == (9, 0)
    await deliveries.aclose()
    Queue("memory://closed-while-listening").purge("t", state="ready")


class Held(Hook):
    """How many deliveries have been taken and not ended."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    def before(self, call: Call) -> None:
        if call.verb == "settle":
            self.now -= len(call.asked)

    def after(self, call: Call) -> None:
        if call.verb == "claim":
            self.now += len(call.answer.messages)
            self.most = max(self.most, self.now)


async def test_listen_holds_no_more_than_its_limit(make_queue: Callable[..., Any]) -> None:
    held = Held()
    queue = make_queue(hooks=[held])
    await queue.send_many("t", range(5))
    deliveries = queue.listen("t", limit=2)
    first, second = await anext(deliveries), await anext(deliveries)
    third = asyncio.ensure_future(anext(deliveries))
    await asyncio.sleep(0)
    assert not third.done()
    await first.ack()
    await (await third).ack()
    await second.ack()
    for _ in range(2):
        await (await anext(deliveries)).ack()
    await deliveries.aclose()
    assert held.most == 2
    await queue.close()


async def test_a_lease_is_renewed_while_its_delivery_is_open(make_queue: Callable[..., Any]) -> None:
    queue = make_queue()
    sent = await queue.send("t", 1)
    deliveries = queue.listen("t", lease="150ms")
    delivery = await anext(deliveries)
    heartbeat, renewals = queue.session._opened.heartbeat, threading.Semaphore(0)
    renewed = heartbeat.renewed

    def tell(*answer: Any) -> None:
        renewed(*answer)
        renewals.release()

    heartbeat.renewed = tell
    ends = {(await queue.get(sent)).lease_until}
    while len(ends) < 4:  # longer than the lease that it began with
        assert await asyncio.to_thread(renewals.acquire, timeout=10)
        ends.add((await queue.get(sent)).lease_until)
    assert await queue.receive("t") == []
    await delivery.ack()
    await deliveries.aclose()
    await queue.close()


class Told(logging.Handler):
    """Counts what is logged of a delivery that was dropped, in whatever thread."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        if "dropped without being ended" in record.getMessage():
            self.dropped.release()


async def test_a_dropped_delivery_frees_its_place_and_is_told(make_queue: Callable[..., Any]) -> None:
    queue, told = make_queue(), Told()
    logging.getLogger("bide").addHandler(told)
    try:
        await queue.send_many("t", range(4))
        deliveries = queue.listen("t", limit=2, lease="1m")
        bodies = [(await anext(deliveries)).body for _ in range(4)]
        assert bodies == [0, 1, 2, 3]
        for _ in range(4):  # the thread that fetched a delivery lets go of it a moment later
            assert await asyncio.to_thread(told.dropped.acquire, timeout=10)
        await deliveries.aclose()
    finally:
        logging.getLogger("bide").removeHandler(told)
    await queue.close()


async def test_a_cancelled_receiver_loses_no_wake_up() -> None:
    queue = AsyncQueue("memory://")
    for _ in range(20):
        first = asyncio.create_task(queue.receive("t", wait="30s"))
        second = asyncio.create_task(queue.receive("t", wait="30s"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await queue.send("t", 1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        if not first.cancelled():
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            deliveries = first.result()
        else:
            deliveries = await asyncio.wait_for(second, 5)
        await deliveries[0].ack()
    await queue.close()


async def test_the_timeline_shows_what_falls_due_when(queue: Any, clock: ManualClock) -> None:
    await queue.send_many("t", [1, 2])
    await queue.send("t", 3, delay="90s")
    spans = await queue.timeline("t", start=clock.now(), end=clock.now() + timedelta(minutes=2), buckets=2)
    assert [each.messages for each in spans] == [2, 1]
    assert spans[0].end == spans[1].start == clock.now() + timedelta(minutes=1)
    assert len(await queue.timeline()) == 60


async def test_a_paused_topic_waits(queue: Any) -> None:
    await queue.send("t", 1)
    await queue.pause("t")
    assert await queue.receive("t") == []
    assert (await queue.stats("t")).paused
    await queue.resume("t")
    assert len(await queue.receive("t")) == 1


def test_bad_body_is_a_value_error() -> None:
    assert issubclass(BadBody, ValueError)

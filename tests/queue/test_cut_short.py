"""Calls that are cancelled, interrupted, or fail in the middle: nothing stays leased to nobody."""

import asyncio
import gc
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from bide import AsyncDelivery, AsyncQueue, Call, Hook, OutcomeUnknown, Outgoing, Queue, Unavailable
from bide.blocking import AsyncApart
from tests.worker.faults import Faults
from tests.worker.test_leases import Thief

LEASE = "250ms"
PATIENCE = 10


@pytest.fixture
def memory() -> str:
    """A place of the test's own: one that hangs leaves nothing to the next."""
    return f"memory://{uuid.uuid4()}"


async def hang(call: Callable[[], Awaitable[Any]], asked: object) -> Any:
    await asyncio.Event().wait()


async def listening(queue: AsyncQueue, count: int) -> tuple[AsyncIterator[AsyncDelivery], AsyncDelivery]:
    """A listener that has taken so many and handed one out."""
    await queue.send_many("t", range(count))
    deliveries = queue.listen("t", limit=count, lease=LEASE)
    return deliveries, await anext(deliveries)


async def received_by_another(place: str, count: int) -> set[int]:
    """The bodies of what another consumer gets, who waits until all have come back."""
    found: set[int] = set()
    async with AsyncQueue(place) as other, asyncio.timeout(PATIENCE):
        while len(found) < count:
            for delivery in await other.receive("t", limit=count, wait=1):
                found.add(delivery.body)
                await delivery.ack()
    return found


async def test_a_listener_that_is_left_while_the_engine_fails_renews_nothing_more(memory: str) -> None:
    queue = AsyncQueue(memory)
    faults = Faults(queue)
    deliveries, first = await listening(queue, 5)
    await first.ack()
    faults.fail("settle")
    await deliveries.aclose()  # type: ignore[attr-defined]
    assert await received_by_another(memory, 4) == {1, 2, 3, 4}
    await queue.close()


async def test_a_listener_whose_end_is_cancelled_renews_nothing_more(memory: str) -> None:
    queue = AsyncQueue(memory)
    faults = Faults(queue)
    deliveries, first = await listening(queue, 5)
    await first.ack()
    faults.around["settle"] = hang
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await deliveries.aclose()  # type: ignore[attr-defined]
    assert await received_by_another(memory, 4) == {1, 2, 3, 4}
    faults.around.clear()
    await queue.close()


@pytest.mark.parametrize("verb", ["settle", "close"])
async def test_a_close_that_is_cancelled_renews_nothing_more_and_goes_on_when_it_is_called_again(
    verb: str, memory: str
) -> None:
    queue = AsyncQueue(memory)
    faults = Faults(queue)
    _, first = await listening(queue, 5)
    heartbeat = (await queue.session.open()).heartbeat
    hanging = asyncio.Event()

    async def hang_now(call: Callable[[], Awaitable[Any]], asked: object) -> Any:
        hanging.set()
        return await hang(call, asked)

    faults.around[verb] = hang_now
    closing = asyncio.create_task(queue.close())
    await hanging.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert len(await received_by_another(memory, 5)) == 5
    closed: list[int] = []

    async def count(call: Callable[[], Awaitable[Any]], asked: object) -> Any:
        closed.append(1)
        return await call()

    faults.around.pop("settle", None)
    faults.around["close"] = count
    await queue.close()
    await queue.close()
    assert closed == [1]
    assert heartbeat._thread is None or not heartbeat._thread.is_alive()
    with pytest.raises(Unavailable):
        await queue.send("t")
    assert first.body == 0


def test_a_sync_close_that_fails_renews_nothing_more(memory: str) -> None:
    queue = Queue(memory)
    faults = Faults(queue)
    faults.beat["settle"] = lambda call: fail()
    queue.send_many("t", range(5))
    deliveries = queue.listen("t", limit=5, lease=LEASE)
    first = next(deliveries)
    queue.close()
    assert asyncio.run(received_by_another(memory, 5)) == {0, 1, 2, 3, 4}
    assert first.body == 0


def fail() -> None:
    raise Unavailable("the wire is cut")


SERVERS = {"redis": "redis_url", "rabbitmq": "rabbitmq_shared_url"}


@pytest.fixture(params=["sqlite", *(pytest.param(each, marks=pytest.mark.server) for each in SERVERS)])
def place(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param in SERVERS:
        return str(request.getfixturevalue(SERVERS[request.param]))
    return f"sqlite:///{tmp_path}/bide.db"


async def test_what_a_receive_that_is_cancelled_has_claimed_is_given_back(place: str) -> None:
    """Whichever moment that comes at: with one attempt only, a message that was leased to nobody would be buried unseen."""
    async with AsyncQueue(place) as queue, AsyncQueue(place) as other:
        await queue.receive("t")
        for turns in range(30):
            await other.send("t", turns, max_attempts=1)
            receiving = asyncio.create_task(queue.receive("t", lease="1m"))
            for _ in range(turns):
                await asyncio.sleep(0)
            receiving.cancel()
            await asyncio.wait({receiving})
            for delivery in [] if receiving.cancelled() else receiving.result():
                await delivery.release()
            async with asyncio.timeout(PATIENCE):
                [again] = await other.receive("t", wait=PATIENCE)
            assert (again.body, again.attempt) == (turns, 1), turns
            await again.ack()


async def lose_the_answer_of_a_claim(queue: AsyncQueue, faults: Faults) -> None:
    async def lose(call: Callable[[], Awaitable[Any]], asked: object) -> Any:
        await call()
        faults.around.clear()
        fail()

    faults.around["claim"] = lose
    with pytest.raises(Unavailable):
        await queue.receive("t", lease="1h")


async def test_what_a_claim_without_an_answer_has_taken_is_given_back_by_the_next(memory: str) -> None:
    queue = AsyncQueue(memory)
    faults = Faults(queue)
    await queue.send("t", 1, max_attempts=1)
    await lose_the_answer_of_a_claim(queue, faults)
    [delivery] = await queue.receive("t")
    assert (delivery.body, delivery.attempt) == (1, 1)
    await delivery.ack()
    await queue.close()


async def test_what_a_claim_without_an_answer_has_taken_is_given_back_by_a_close(memory: str) -> None:
    queue, other = AsyncQueue(memory), AsyncQueue(memory)
    faults = Faults(queue)
    await other.send("t", 1, max_attempts=1)
    await lose_the_answer_of_a_claim(queue, faults)
    await queue.close()
    [delivery] = await other.receive("t")
    assert (delivery.body, delivery.attempt) == (1, 1)
    await delivery.ack()
    await other.close()


async def test_a_listener_whose_claim_is_answered_while_the_loop_is_blocked_keeps_its_leases(memory: str) -> None:
    queue = AsyncQueue(memory)
    faults = Faults(queue)

    async def unseen(call: Callable[[], Awaitable[Any]], asked: object) -> Any:
        claim = await call()
        if claim.messages:
            time.sleep(2.0)  # noqa: ASYNC251  (as any code beside it may do just now)
        return claim

    faults.around["claim"] = unseen
    await queue.send_many("t", [Outgoing(number, max_attempts=1) for number in range(3)])
    async with Thief(queue, "elsewhere"):  # its upkeep buries what has lost its lease
        deliveries = queue.listen("t", limit=3, lease="800ms")
        for number in range(3):
            async with await anext(deliveries) as delivery:
                assert (delivery.body, delivery.attempt) == (number, 1)
        await deliveries.aclose()
    assert (await queue.stats("t")).dead == 0
    await queue.close()


async def test_a_listener_keeps_the_leases_of_what_came_with_a_message_that_cannot_be_read(memory: str) -> None:
    """However long it takes to bury that one."""
    renewed = threading.Semaphore(0)
    waited: list[bool] = []

    def count(call: Callable[[], Any]) -> Any:
        renewed.release()
        return call()

    async def late(call: Callable[[], Awaitable[Any]], asked: object) -> Any:
        if not waited:
            waited.extend(renewed.acquire(timeout=PATIENCE) for _ in range(3))
        return await call()

    queue = AsyncQueue(memory, max_body=100)
    faults = Faults(queue)
    faults.beat["claim"], faults.around["settle"] = count, late
    async with AsyncQueue(memory) as sender, queue:
        await sender.send_many("t", [Outgoing("x" * 200), Outgoing(1, max_attempts=1)])
        deliveries = queue.listen("t", limit=2, lease=LEASE)
        first = await anext(deliveries)
        await first.ack()
        await deliveries.aclose()
        assert waited == [True, True, True]
        assert (first.body, first.attempt) == (1, 1)
        assert (await sender.stats("t")).dead == 1


async def test_what_came_with_a_message_that_cannot_be_read_is_given_back_when_the_receive_is_cancelled(memory: str) -> None:
    burying, going_on = asyncio.Event(), asyncio.Event()

    async def late(call: Callable[[], Awaitable[Any]], asked: object) -> Any:
        burying.set()
        await going_on.wait()
        return await call()

    queue = AsyncQueue(memory, max_body=100)
    faults = Faults(queue)
    faults.around["settle"] = late
    async with AsyncQueue(memory) as sender, queue:
        await sender.send_many("t", [Outgoing("x" * 200), Outgoing(1, max_attempts=1)])
        receiving = asyncio.create_task(queue.receive("t", limit=2, lease="1h"))
        await asyncio.wait_for(burying.wait(), PATIENCE)
        faults.around.clear()
        receiving.cancel()
        await asyncio.wait({receiving})
        going_on.set()
        assert receiving.cancelled()
        assert (await sender.stats("t")).leased == 0
        assert [(each.body, each.attempt) for each in await queue.receive("t", limit=2)] == [(1, 1)]


class Audit(Hook):
    """Sends what it is told of, also of the opening itself."""

    def __init__(self) -> None:
        self.queue: Any = None
        self.refused: list[Exception] = []

    def after(self, call: Call) -> None:
        if call.verb in ("open", "stats"):
            try:
                self.queue.send("audit", call.verb)
            except Unavailable as error:
                self.refused.append(error)


def test_a_hook_that_sends_is_refused_while_its_queue_is_opened_and_served_later() -> None:
    audit = Audit()
    with Queue("memory://", hooks=[audit]) as queue:
        audit.queue = queue
    audit.queue = queue = Queue("memory://", hooks=[audit])
    queue.send("t", 1)
    assert "being opened" in str(audit.refused[0])
    assert len(audit.refused) == 1
    queue.stats()
    assert [each.body for each in queue.receive("audit")] == ["stats"]
    queue.close()


class CtrlC(Hook):
    left = 1

    def before(self, call: Call) -> None:
        if call.verb == "put" and self.left:
            self.left = 0
            raise KeyboardInterrupt


@pytest.mark.parametrize(("senders", "told"), [(1, KeyboardInterrupt), (2, OutcomeUnknown)])
def test_a_send_that_a_ctrl_c_has_met_on_its_way_ends_when_the_loop_is_run_again(
    senders: int, told: type[BaseException]
) -> None:
    """One that comes alone makes the call itself, so the Ctrl-C is its own."""
    with asyncio.Runner() as runner:
        loop, queue = runner.get_loop(), AsyncQueue("memory://", hooks=[CtrlC()])
        loop.set_exception_handler(lambda loop, context: None)  # it tells of a task that nobody awaits
        sending = [loop.create_task(queue.send("t", 1)) for _ in range(senders)]
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.wait(sending))
        loop.run_until_complete(asyncio.wait(sending, timeout=PATIENCE))
        assert [type(each.exception()) for each in sending] == [told] * senders
        assert loop.run_until_complete(queue.send("t", 2))
        loop.run_until_complete(queue.close())


async def test_a_stop_iteration_of_what_is_done_apart_is_told() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(AsyncApart(lambda: next(iter([]))).done(), PATIENCE)


def test_what_was_made_apart_for_a_loop_that_is_closed_meanwhile_is_undone() -> None:
    made, closed, undone = threading.Event(), threading.Event(), threading.Event()

    def work() -> int:
        made.set()
        closed.wait(PATIENCE)
        return 1

    loop = asyncio.new_event_loop()
    waiting = loop.create_task(AsyncApart(work, lambda _: undone.set()).done())
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert made.wait(PATIENCE)
    loop.close()
    closed.set()
    for each in threading.enumerate():
        if each.name == "bide-apart":
            each.join(PATIENCE)
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]
    del waiting
    gc.collect()
    assert undone.wait(PATIENCE)

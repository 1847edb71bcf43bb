"""A lease that its user has extended is not ended sooner by the renewals of the heartbeat: in a worker and in listen."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, Delivery, Queue, current, current_batch
from bide.queue.heartbeat import Heartbeat
from bide.queue.leases import Beat, parts
from tests.worker.conftest import EVERY_ENGINE, place
from tests.worker.faults import Faults

LEASE = "400ms"


@pytest.fixture(params=EVERY_ENGINE)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place(request, tmp_path)


class Renewals:
    """Counts what the heartbeat renews."""

    def __init__(self, faults: Faults) -> None:
        self.count = 0

        def counted(call: Callable[[], Any]) -> Any:
            answer = call()
            self.count += 1
            return answer

        faults.beat["extend"] = counted

    async def some_more(self, until: Any) -> None:
        seen = self.count
        await until(lambda: self.count >= seen + 3)


async def left(queue: AsyncQueue, topic: str) -> float:
    """Seconds until the first lease ends of the topic's messages, by a clock that the engine has as well."""
    return min(each.lease_until or 0 for each in await queue.messages(topic, state="leased")) / 1000 - time.time()


@pytest.mark.parametrize("kind", ["async", "sync", "batch"])
async def test_what_a_handler_extends_stays_extended(
    queue: AsyncQueue, working: Any, until: Any, soon: Any, faults: Faults, kind: str
) -> None:
    renewals, loop = Renewals(faults), asyncio.get_running_loop()
    extended, let_go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        extended.set()
        await let_go.wait()

    if kind == "async":

        @queue.task("t")
        async def handle(body: object) -> None:
            await current().extend("10m")
            await wait()
    elif kind == "sync":

        @queue.task("t")
        def handle_in_thread(body: object) -> None:
            current().extend("10m")
            asyncio.run_coroutine_threadsafe(wait(), loop).result()
    else:

        @queue.task("t", batch=3)
        async def handle_together(items: list[object]) -> None:
            for each in current_batch():
                await each.extend("10m")
            await wait()

    await queue.send("t", 1 if kind == "batch" else {"body": 1})
    async with working(queue, lease=LEASE):
        await soon(extended.wait())
        await renewals.some_more(until)
        assert 540 < await left(queue, "t") < 660
        let_go.set()
        await until(lambda: nothing_left(queue))


async def nothing_left(queue: AsyncQueue) -> bool:
    return (await queue.stats("t")).leased == 0


async def test_what_middleware_extends_stays_extended(
    queue: AsyncQueue, working: Any, until: Any, soon: Any, faults: Faults
) -> None:
    renewals, extended, let_go = Renewals(faults), asyncio.Event(), asyncio.Event()

    @queue.task("t")
    def handle() -> None:
        """Nothing more is to be done."""

    async def around(delivery: Any, call: Callable[[], Any]) -> None:
        await delivery.extend("10m")
        extended.set()
        await let_go.wait()
        await call()

    await handle.send()
    async with working(queue, lease=LEASE, middleware=[around]):
        await soon(extended.wait())
        await renewals.some_more(until)
        assert 540 < await left(queue, "t") < 660
        let_go.set()
        await until(lambda: nothing_left(queue))


@pytest.mark.parametrize("wanted", ["10m", "20ms"])
async def test_what_is_extended_in_listen_lasts_so_long_or_as_long_as_without(
    queue: AsyncQueue, until: Any, faults: Faults, wanted: str
) -> None:
    """Extending it for less than its lease would end it before the next renewal."""
    listening = AsyncQueue._of(queue.session.setup)
    renewals = Renewals(faults)
    await queue.send("t", 1)
    async for delivery in listening.listen("t", lease=LEASE):
        await delivery.extend(wanted)
        assert await left(queue, "t") > (540 if wanted == "10m" else 0.1)
        await renewals.some_more(until)
        assert (540 if wanted == "10m" else 0) < await left(queue, "t") < 660
        await delivery.ack()
        break
    await listening.close()


async def test_what_is_extended_in_a_sync_listen_stays_extended(
    queue: AsyncQueue, until: Any, soon: Any, faults: Faults
) -> None:
    listening = Queue._of(queue.session.setup)
    renewals = Renewals(faults)
    await queue.send("t", 1)
    deliveries = listening.listen("t", lease=LEASE)
    delivery: Delivery = await soon(asyncio.to_thread(next, deliveries))
    delivery.extend("10m")
    await renewals.some_more(until)
    assert 540 < await left(queue, "t") < 660
    delivery.ack()
    deliveries.close()
    await asyncio.to_thread(listening.close)


async def test_what_is_received_by_hand_may_be_extended_to_an_earlier_end(queue: AsyncQueue) -> None:
    """Nobody renews it."""
    await queue.send("t", 1)
    [delivery] = await queue.receive("t", lease="10m")
    await delivery.extend("1m")
    assert 30 < await left(queue, "t") < 90
    await delivery.ack()


SECONDS = 15.0
hold: Any = object()


@pytest.fixture
def heartbeat() -> Heartbeat:
    made = Heartbeat(None)  # type: ignore[arg-type]
    made._closed = True  # no thread is begun
    return made


def a_beat(*holds: Any) -> Beat:
    return Beat(holds, round(SECONDS * 1000), 2**60, lambda _: None)


def test_many_that_were_extended_are_renewed_in_one_call(heartbeat: Heartbeat) -> None:
    holds = [object() for _ in range(100)]
    beat = a_beat(*holds)
    heartbeat.add(beat)
    for each in holds[:99]:
        heartbeat.extended(beat, each, 600_000)  # type: ignore[arg-type]
    assert {length: len(held) for length, held in beat.by_length().items()} == {600_000: 99, 15_000: 1}


def test_a_renewal_that_was_under_way_when_a_lease_was_extended_is_made_up_for_at_once(heartbeat: Heartbeat) -> None:
    beat = a_beat(hold)
    heartbeat.add(beat)
    [part] = parts([beat])
    asked = time.monotonic()
    assert heartbeat.extended(beat, hold, 600_000) == 600_000
    heartbeat.renewed(part, [True], 0, asked)
    assert beat.next <= time.monotonic()
    [part] = parts([beat])
    assert part.lease_ms == 600_000
    heartbeat.renewed(part, [True], 0, time.monotonic())
    assert beat.next > time.monotonic() + 1


def test_a_lease_that_was_extended_is_renewed_as_before_when_that_time_is_over() -> None:
    beat = a_beat(hold)
    beat.extend(hold, time.monotonic() + 20)
    assert list(beat.by_length()) == [30_000]
    beat.extend(hold, time.monotonic() - 1)
    assert list(beat.by_length()) == [15_000]

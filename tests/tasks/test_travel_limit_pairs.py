"""Limits and locks with what else a message may have: a delay, a retry, a priority, an expiry, a pause, a cancel."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bide import AsyncQueue, CancelResult, ManualClock, RescheduleResult


class Times:
    """When handlers began, in seconds from the start."""

    def __init__(self, queue: AsyncQueue) -> None:
        assert isinstance(queue.session.setup.clock, ManualClock)
        self._clock = queue.session.setup.clock
        self._start = self._clock.now_ms
        self.begun: list[tuple[Any, float]] = []

    def add(self, what: Any) -> None:
        self.begun.append((what, (self._clock.now_ms - self._start) / 1000))


@pytest.fixture
async def queue() -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue("memory://", clock=ManualClock()) as made:
        yield made


@pytest.fixture
def times(queue: AsyncQueue) -> Times:
    return Times(queue)


async def test_rate_and_cancel_nobody_waits_for_what_was_purged(queue: AsyncQueue, times: Times) -> None:
    @queue.task("sms", rate="5/m", per="{user}")
    def sms(user: int, n: int) -> None:
        times.add(n)

    await sms.send_many({"user": 1, "n": n} for n in range(500))  # by a program that runs wild
    await queue.testing.advance(0)
    await queue.purge("sms", state="scheduled")
    await sms.send(user=1, n=1_000)
    await queue.testing.advance("2m")
    assert times.begun[5:] == [(1_000, 60)]


async def test_rate_and_priority_a_high_one_that_comes_later_goes_first(queue: AsyncQueue, times: Times) -> None:
    @queue.task("sms", rate="1/10s")
    def sms(n: int) -> None:
        times.add(n)

    for n in range(3):
        await sms.send(n=n)
    await queue.testing.advance("1s")
    await sms.options(priority="high").send(n=9)
    await queue.testing.advance("1m")
    assert times.begun == [(0, 0), (9, 10), (1, 20), (2, 30)]


async def test_rate_and_retry_each_attempt_counts(queue: AsyncQueue, times: Times) -> None:
    @queue.task("sms", rate="1/10s", per="{user}", max_attempts=3)
    def sms(user: int) -> None:
        times.add(user)
        raise OSError

    await sms.send(user=1)
    await queue.testing.advance("1m", raise_errors=False)
    assert times.begun == [(1, 0), (1, 10), (1, 20)]


async def test_rate_and_expiry_what_expires_while_it_waits_takes_nothing_of_the_rate(queue: AsyncQueue, times: Times) -> None:
    @queue.task("sms", rate="1/10s", per="{user}")
    def sms(user: int, n: int) -> None:
        times.add(n)

    await sms.send(user=1, n=0)
    await sms.options(expires_in="5s").send(user=1, n=1)
    await sms.send(user=1, n=2)
    await queue.testing.advance("1m")
    assert [n for n, _ in times.begun] == [0, 2]
    assert times.begun[-1][1] <= 30


async def test_lock_and_delay_a_message_that_is_called_is_never_early(queue: AsyncQueue, times: Times) -> None:
    @queue.task("pay", lock="order")
    def pay(n: int) -> None:
        times.add(n)

    async with queue.lock("order"):
        sent = await pay.send(n=1)
        await queue.testing.advance(0)
        assert await queue.reschedule(sent, delay="1h") is RescheduleResult.MOVED
    await queue.testing.advance("59m")
    assert times.begun == []
    await queue.testing.advance("2m")
    assert times.begun == [(1, 3_600)]


async def test_lock_and_cancel_the_next_one_is_called(queue: AsyncQueue, times: Times) -> None:
    @queue.task("pay", lock="order")
    def pay(n: int) -> None:
        times.add(n)

    async with queue.lock("order"):
        sent = [await pay.send(n=n) for n in range(3)]
        await queue.testing.advance(0)
        assert await queue.cancel(sent[0]) is CancelResult.CANCELLED
    await queue.testing.advance(0)
    assert times.begun == [(1, 0), (2, 0)]


async def test_lock_and_expiry_what_expires_in_the_line_holds_up_nobody(queue: AsyncQueue, times: Times) -> None:
    @queue.task("pay", lock="order")
    def pay(n: int) -> None:
        times.add(n)

    async with queue.lock("order", ttl="1h"):
        await pay.options(expires_in="1s").send(n=0)
        await pay.send(n=1)
        await queue.testing.advance("2s")
    await queue.testing.advance(0)
    assert times.begun == [(1, 2)]


async def test_concurrency_and_retry_a_message_that_waits_for_its_retry_holds_no_place(queue: AsyncQueue, times: Times) -> None:
    @queue.task("sms", concurrency=1, per="{user}", max_attempts=2)
    def sms(user: int, n: int) -> None:
        times.add(n)
        if len(times.begun) == 1:
            raise OSError

    await sms.send(user=1, n=0)
    await sms.send(user=1, n=1)
    await queue.testing.advance("1m", raise_errors=False)
    assert times.begun == [(0, 0), (1, 0), (0, 1)]


async def test_rate_and_pause_a_paused_topic_takes_nothing_of_the_rate(queue: AsyncQueue, times: Times) -> None:
    @queue.task("sms", rate="1/10s", per="{user}")
    def sms(user: int, n: int) -> None:
        times.add(n)

    await sms.send_many({"user": 1, "n": n} for n in range(3))
    await queue.testing.advance(0)
    await queue.pause("sms")
    await queue.testing.advance("5m")
    await queue.resume("sms")
    await queue.testing.advance("1m")
    assert [at for _, at in times.begun] == [0, 300, 310]

"""A worker that was suspended, or whose engine's clock was set forward, goes on with what it holds, unless others took it."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from bide import AsyncQueue, current
from bide.queue import leases
from tests.worker.conftest import LONG, once
from tests.worker.faults import Faults
from tests.worker.test_running import ended

LEASE = "200ms"
THREE_LEASES = 0.6  # seconds


class Stepping:
    """The machine's clock, which somebody sets forward."""

    def __init__(self) -> None:
        self._ahead_ns = 0
        self._told: list[Callable[[], None]] = []

    def now_ns(self) -> int:
        return time.time_ns() + self._ahead_ns

    def on_jump(self, told: Callable[[], None]) -> None:
        self._told.append(told)

    def step(self, seconds: float) -> None:
        self._ahead_ns += int(seconds * 1e9)
        for told in self._told:
            told()


class Suspension:
    """The heartbeat of a process that is suspended renews nothing, and is the last to wake up: all else has its turn first."""

    def __init__(self, faults: Faults) -> None:
        self._awake = threading.Event()
        self.tended = 0
        faults.beat["extend"] = self._beat
        faults.around["tend"] = self._count

    def _beat(self, call: Callable[[], Any]) -> Any:
        self._awake.wait(LONG)
        return call()

    async def _count(self, call: Any, asked: Any) -> Any:
        answer = await call()
        self.tended += 1
        return answer

    def pass_by(self, seconds: float = THREE_LEASES) -> None:
        """Nothing of the process runs for three leases."""
        time.sleep(seconds)

    async def over(self) -> None:
        """The process has been awake for so long that it has looked for ended leases, twice."""
        before = self.tended
        await once(lambda: self.tended >= before + 2)
        self.wake_up()

    def wake_up(self) -> None:
        self._awake.set()


async def keep_busy(queue: AsyncQueue, over: asyncio.Event | threading.Event) -> list[int]:
    """A message that sends the next one, as long as it is not over: a worker that sleeps looks for ended leases rarely."""
    ticks: list[int] = []

    @queue.task("tick")
    async def tick() -> None:
        ticks.append(1)
        if not over.is_set():
            await tick.after("10ms").send()

    await tick.send()
    return ticks


async def test_a_suspended_worker_does_not_take_back_what_it_holds(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults
) -> None:
    attempts: list[int] = []
    over = threading.Event()

    @queue.task("a", max_attempts=1)
    async def in_loop() -> None:
        attempts.append(current().attempt)
        await until(over.is_set)

    @queue.task("s", max_attempts=1)
    def in_thread() -> None:
        attempts.append(current().attempt)
        over.wait(LONG)

    for _ in range(3):
        await in_loop.send()
        await in_thread.send()
    await keep_busy(queue, over)
    suspension = Suspension(faults)
    async with working(queue, lease=LEASE) as worker:
        await until(lambda: len(attempts) == 6)
        suspension.pass_by()
        await suspension.over()
        over.set()
        await until(lambda: ended(queue))
        assert worker.health().failed == 0

    assert attempts == [1] * 6
    assert (await queue.stats()).dead == 0


async def test_what_a_dead_worker_held_comes_back_to_one_that_was_suspended(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults
) -> None:
    attempts: list[tuple[str, int]] = []
    over = asyncio.Event()
    await keep_busy(queue, over)

    @queue.task("mine")
    async def mine() -> None:
        attempts.append(("mine", current().attempt))
        await over.wait()

    @queue.task("left")
    async def left() -> None:
        attempts.append(("left", current().attempt))
        over.set()

    await left.send()
    [_] = await queue.receive("left", lease=LEASE)  # by somebody who dies with it
    await mine.send()
    suspension = Suspension(faults)
    async with working(queue, lease=LEASE):
        await until(lambda: attempts)
        suspension.pass_by()
        await suspension.over()
        await until(lambda: ended(queue))

    assert sorted(attempts) == [("left", 2), ("mine", 1)]


async def test_who_wakes_up_first_leaves_to_the_others_what_they_hold(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "HOLD_OFF", LONG)
    attempts: list[int] = []
    over = asyncio.Event()
    ticks = await keep_busy(queue, over)

    @queue.task("held", max_attempts=1)
    async def held() -> None:
        attempts.append(current().attempt)
        await over.wait()

    await held.send()
    late = working(queue, topics=["held"], concurrency=1, lease="2s")  # it is full, so only its heartbeat does anything
    async with late as worker, working(queue, topics=["tick"]):
        await until(lambda: attempts and len(ticks) > 5)
        suspension = Suspension(faults)
        suspension.pass_by(2.5)
        await suspension.over()
        suspension.wake_up()
        over.set()
        await until(lambda: ended(queue))
        assert worker.health().failed == 0

    assert attempts == [1]
    assert (await queue.stats()).dead == 0


class Instants:
    """Of this machine, as a test has them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(leases, "_now", lambda: self.now)

    def pass_by(self, known: leases.Absence, seconds: float) -> None:
        for _ in range(round(seconds / leases.PULSE)):
            self.now += leases.PULSE
            known.pulse()


LIMIT = round((leases.PULSE + leases.LATE) * 1000)
HOLD_OFF = leases.HOLD_OFF


def test_while_nobody_is_away_nothing_is_held_off(monkeypatch: pytest.MonkeyPatch) -> None:
    known, machine = leases.Absence(), Instants(monkeypatch)
    assert known.ended_by() is None  # it knows nothing yet
    known.hear(10_000)
    assert known.ended_by() == 10_000 + LIMIT
    machine.pass_by(known, 30)  # it rests, or all its places are taken
    assert known.ended_by() == 40_000 + LIMIT
    known.hear(40_700)
    assert known.ended_by() == 40_700 + LIMIT


@pytest.mark.parametrize("counted", [True, False])
def test_what_ended_while_it_was_away_is_held_off(monkeypatch: pytest.MonkeyPatch, counted: bool) -> None:
    """Whether the machine has counted the time, as while a process is stopped, or has not, as while a guest is suspended."""
    known, machine = leases.Absence(), Instants(monkeypatch)
    known.hear(10_000)
    machine.pass_by(known, 2)
    machine.now += 600 * counted
    if counted:
        assert known.ended_by() == 12_000 + LIMIT
    known.hear(612_000)
    for _ in range(2):
        assert known.ended_by() == 12_000 + LIMIT
        machine.pass_by(known, HOLD_OFF - 1)
        known.hear(612_000 + round(HOLD_OFF - 1) * 1000)
        machine.now += 0.1
    machine.now += 0.9
    known.hear(613_000 + round(HOLD_OFF) * 1000)
    assert known.ended_by() == 613_000 + round(HOLD_OFF) * 1000 + LIMIT


def test_what_ended_before_an_absence_is_not_held_off_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    known, machine = leases.Absence(), Instants(monkeypatch)
    for round_ in range(1, 20):  # a loop that is blocked for long, again and again
        known.hear(round_ * 10_000)
        machine.now += 10
        assert known.ended_by() == round_ * 10_000 + LIMIT


async def test_a_listener_does_not_lose_to_its_own_queue_what_it_holds(queue: AsyncQueue) -> None:
    faults = Faults(queue)
    suspension = Suspension(faults)
    await queue.send("a", 1, max_attempts=1)
    listening = queue.listen("a", lease=LEASE)
    delivery = await anext(listening)
    suspension.pass_by()
    for _ in range(3):
        assert await queue.receive("a") == []
    assert suspension.tended
    suspension.wake_up()
    await delivery.ack()
    await listening.aclose()
    assert (await queue.stats()).dead == 0


@pytest.mark.parametrize("place", ["memory", "sqlite"])
async def test_a_clock_that_is_set_forward_takes_nothing_from_a_worker_that_is_well(
    place: str, tmp_path: Any, working: Any, until: Any
) -> None:
    clock = Stepping()
    queue = AsyncQueue("memory://" if place == "memory" else f"sqlite:///{tmp_path}/bide.db", clock=clock)
    attempts: list[int] = []
    over = asyncio.Event()

    @queue.task("a", max_attempts=1)
    async def handle() -> None:
        attempts.append(current().attempt)
        await over.wait()

    for _ in range(3):
        await handle.send()
    ticks = await keep_busy(queue, over)
    async with queue, working(queue) as worker:
        await until(lambda: len(attempts) == 3)
        for _ in range(3):
            clock.step(3_600)
            so_far = len(ticks)
            await until(lambda so_far=so_far: len(ticks) > so_far + 2)
        over.set()
        await until(lambda: ended(queue))
        assert worker.health().failed == 0
        assert (await queue.stats()).dead == 0

    assert attempts == [1, 1, 1]

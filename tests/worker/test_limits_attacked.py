"""Limits and locks when the engine fails half-way, when messages are odd, and when what they wait for never comes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bide import AsyncQueue, Unavailable, current
from bide.engines.gates import Entry, Held
from bide.engines.memory.aio import AsyncMemoryGates
from bide.queue.tasks.limits import Limits, lock_gate
from tests.worker.conftest import LONG, Working


def limits(**options: Any) -> Limits:
    usual: dict[str, Any] = {"concurrency": None, "rate": None, "per": None, "lock": None, "on_conflict": "wait"}
    return Limits("t", None, **usual | {"lock_wait": 1, "lock_delay": 1} | options)


class Failing:
    """Lets some verbs of the memory engine's gates fail, as long as they are named."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.verbs: set[str] = set()
        self.failed: list[str] = []
        self.error: Exception = Unavailable("The engine is away.")
        for verb in ("enter", "leave", "spend"):
            self._plant(monkeypatch, verb, getattr(AsyncMemoryGates, verb))

    def _plant(self, monkeypatch: pytest.MonkeyPatch, verb: str, act: Any) -> None:
        async def call(gates: AsyncMemoryGates, *args: Any, **options: Any) -> Any:
            if verb in self.verbs:
                self.failed.append(verb)
                raise self.error
            return await act(gates, *args, **options)

        monkeypatch.setattr(AsyncMemoryGates, verb, call)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(monkeypatch)


async def test_a_place_of_a_message_that_goes_again_is_not_given_back_under_its_handler(
    memory: AsyncQueue, working: Working, until: Any, failing: Failing
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @memory.task("pay", lock="order", rate="100/s")
    async def pay() -> None:
        begun.set()
        await go_on.wait()

    failing.verbs = {"spend", "leave"}  # it has the lock, and gets no further
    await pay.send()
    async with working(memory, grace=LONG):
        await until(lambda: failing.failed.count("spend") > 1)
        failing.verbs = {"leave"}
        await asyncio.wait_for(begun.wait(), LONG)
        failing.verbs = set()
        await (await memory.session.engine()).stats()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):  # longer than until a call that failed is made again
                await until(lambda: enters(memory, "order"))
        go_on.set()


async def enters(queue: AsyncQueue, lock: str) -> bool:
    [entered] = await (await queue.session.engine()).gates.enter([Entry(lock_gate(lock), "somebody else", 60_000)])
    return entered.token is not None


async def test_a_message_that_is_given_back_half_way_leaves_no_place_behind(
    memory: AsyncQueue, working: Working, until: Any, failing: Failing
) -> None:
    @memory.task("pay", lock="order", rate="100/s")
    async def pay() -> None:
        raise AssertionError

    failing.verbs = {"spend"}
    await pay.send()
    async with working(memory):
        await until(lambda: failing.failed.count("spend") > 1)
    assert await enters(memory, "order")


async def test_an_error_that_nobody_foresaw_holds_up_no_other_message(
    memory: AsyncQueue, working: Working, until: Any, failing: Failing
) -> None:
    begun: list[int] = []

    @memory.task("pay", lock="order:{order}")
    async def pay(order: int) -> None:
        begun.append(order)

    failing.verbs, failing.error = {"enter"}, ZeroDivisionError()
    async with working(memory):
        sent = await pay.send(order=1)
        await until(lambda: is_aside(memory, sent.id))
        failing.verbs = set()
        await pay.send(order=2)
        await until(lambda: begun == [2])
        await memory.reschedule(sent, delay=0)
        await until(lambda: begun == [2, 1])


async def is_aside(queue: AsyncQueue, id: str) -> bool:
    info = await queue.get(id)
    return info is not None and info.state == "scheduled"


async def is_dead(queue: AsyncQueue, id: str) -> bool:
    info = await queue.get(id)
    return info is not None and info.state == "dead"


async def test_a_message_that_can_not_be_put_into_the_name_of_its_lock_does_not_run_without_one(
    queue: AsyncQueue, working: Working, until: Any
) -> None:
    @queue.task("pay", lock="order:{order:d}")
    async def pay(order: Any) -> None:
        raise AssertionError

    sent = await pay.send(order="forty-two")
    async with working(queue):
        await until(lambda: is_dead(queue, sent.id))
    info = await queue.get(sent)
    assert info is not None
    assert info.last_error is not None
    assert "lock='order:{order:d}'" in info.last_error


@pytest.mark.parametrize("user", ["x" * 5_000, "x\0y", "\ud800", "line\nline", "ключ" * 400])
def test_every_argument_makes_a_name_that_every_engine_can_hold(user: str) -> None:
    odd = limits(concurrency=1, rate="1/s", per="{user}", lock="{user}")
    names = [step.gate for step in odd.steps({"user": user})]
    others = [step.gate for step in odd.steps({"user": user + "x"})]
    assert len({*names, *others}) == 6
    assert all(name.isprintable() and len(name.encode()) <= 1_000 for name in names)
    assert names == [step.gate for step in odd.steps({"user": user})]


def test_tasks_and_programs_share_locks_with_long_names() -> None:
    name = "\U0001f512" * 256
    [step] = limits(lock="{name}").steps({"name": name})
    assert step.gate == lock_gate(name)


async def test_odd_arguments_hold_up_no_other_message(queue: AsyncQueue, working: Working, until: Any) -> None:
    begun: list[str] = []

    @queue.task("sms", concurrency=1, rate="1000/s", per="{user}")
    async def sms(user: Any) -> None:
        begun.append(str(user))

    users = [None, {"a": 1}, [1], 1.5, "", "x" * 5_000, "y" * 100_000, "a\0b", "line\nline", "{user}"]
    await sms.send_many({"user": user} for user in users)
    async with working(queue):
        await until(lambda: len(begun) == len(users))
    assert sorted(begun) == sorted(map(str, users))


async def test_a_rate_for_each_of_many_users_leaves_nothing_behind(
    queue: AsyncQueue, working: Working, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.queue.aio.receive.CAUTION", 0.02)
    begun: list[int] = []

    @queue.task("sms", rate="1/50ms", per="{user}")
    async def sms(user: int) -> None:
        begun.append(user)

    await sms.send_many({"user": user // 2} for user in range(400))
    async with working(queue):
        await until(lambda: len(begun) == 400)
        await until(lambda: nothing_is_left(queue))


async def nothing_is_left(queue: AsyncQueue) -> bool:
    """It is asked with a time long ago, so this look forgets nothing itself."""
    return (await (await queue.session.engine()).tend(now=1)).next_in is None


async def test_a_place_that_was_asked_for_too_long_ago_is_not_counted_on(
    memory: AsyncQueue, working: Working, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    held: list[Sequence[Held]] = []

    @memory.task("pay", lock="order")
    async def pay() -> None:
        begun.append(len(held))

    sure = iter([False])
    leave = AsyncMemoryGates.leave

    async def left_places(gates: AsyncMemoryGates, some: Sequence[Held], **options: Any) -> Any:
        held.append(some)
        return await leave(gates, some, **options)

    monkeypatch.setattr("bide.worker.steps.Places.sure", property(lambda _: next(sure, True)))
    monkeypatch.setattr(AsyncMemoryGates, "leave", left_places)
    await pay.send()
    async with working(memory):
        await until(lambda: begun == [1])


async def test_a_message_does_not_take_the_lock_of_its_own_dead_worker_for_a_conflict(
    queue: AsyncQueue, working: Working, until: Any
) -> None:
    begun: list[int] = []

    @queue.task("pay", lock="order:{order}", on_conflict="error")
    async def pay(order: int) -> None:
        begun.append(current().attempt)

    sent = await pay.send(order=42)
    engine = await queue.session.engine()
    [claimed] = (await engine.claim(["pay"], 1, 300)).messages  # by a worker that dies in its handler
    [entered] = await engine.gates.enter([Entry(lock_gate("order:42"), f"{claimed.id} {claimed.token}", 800)])
    assert entered.token is not None
    async with working(queue, lease="2s"):
        await until(lambda: begun == [2])
        async with queue.lock("order:42", wait=LONG):  # and somebody else is a conflict
            await pay.send(order=42)
            await until(lambda: has_dead(queue))
    assert await queue.get(sent) is None


async def has_dead(queue: AsyncQueue) -> bool:
    return (await queue.stats("pay")).dead == 1

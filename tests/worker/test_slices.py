"""Handlers begin some at a time: the event loop goes round meanwhile, however many one claim has brought."""

import asyncio
import os
import time
from typing import Any

import pytest

from bide import AsyncDelivery, AsyncQueue, Bury, Outgoing, current
from bide.queue.run.message import Handling, Taken
from bide.worker import Worker, slices
from bide.worker.claim_log import ClaimLog
from bide.worker.slices import AGAIN, FIRST, LATE, LONGEST, SOON, Slices
from bide.worker.slots import AHEAD, Slots
from tests.worker.conftest import Working

MANY = 60


def work(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def worked(queue: AsyncQueue, working: Working, until: Any) -> None:
    async with working(queue):
        await until(lambda: _nothing(queue))


@pytest.mark.parametrize("wait", [False, True], ids=["quick", "wait"])
async def test_handlers_begin_in_order_and_not_all_in_one_round_of_the_loop(
    memory: AsyncQueue, working: Working, until: Any, wait: bool
) -> None:
    seen: list[tuple[int, int]] = []
    rounds = [0]

    @memory.task("t")
    async def handle(n: int) -> None:
        seen.append((n, rounds[0]))
        if wait:
            await asyncio.sleep(0)
        else:
            work(LONGEST / 8)

    async def go_round() -> None:
        while True:
            rounds[0] += 1
            await asyncio.sleep(0)

    await handle.send_many({"n": n} for n in range(MANY))
    going = asyncio.create_task(go_round())
    await worked(memory, working, until)
    going.cancel()
    assert [n for n, _ in seen] == [*range(MANY)]
    assert len({each for _, each in seen}) >= 2


async def test_the_loop_goes_round_and_the_engine_is_told_while_handlers_of_one_claim_compute(
    memory: AsyncQueue, working: Working, until: Any
) -> None:
    ended: list[int] = []
    begun = 0

    @memory.task("t")
    async def handle(n: int) -> None:
        nonlocal begun
        begun += 1
        ended.append(worker._service._under_way.done)  # type: ignore[union-attr]
        work(LONGEST)

    async with working(memory) as worker:
        await handle.send_many({"n": n} for n in range(MANY))
        await until(lambda: begun == MANY)
    assert len(set(ended)) > MANY // 2


async def test_a_stop_gives_back_what_has_not_begun(memory: AsyncQueue, working: Working, until: Any) -> None:
    seen: list[int] = []

    @memory.task("t")
    async def handle(n: int) -> None:
        seen.append(n)
        if n == 4:
            await worker.stop()

    async with working(memory) as worker:
        await handle.send_many({"n": n} for n in range(MANY))
        await until(lambda: len(seen) == 5)
    assert seen == [0, 1, 2, 3, 4]
    stats = await memory.stats("t")
    assert (stats.ready, stats.leased) == (MANY - 5, 0)


async def test_handlers_that_wait_do_not_keep_the_next_ones_from_beginning(
    memory: AsyncQueue, working: Working, until: Any
) -> None:
    all_there, seen = asyncio.Event(), list[int]()

    @memory.task("t")
    async def handle(n: int) -> None:
        seen.append(n)
        if len(seen) == MANY:
            all_there.set()
        await all_there.wait()

    await handle.send_many({"n": n} for n in range(MANY))
    await worked(memory, working, until)
    assert seen == [*range(MANY)]


@pytest.mark.parametrize("busy", [2 * LONGEST, 1.2 * SOON], ids=["for longer than a slice", "until nothing begins soon"])
async def test_what_else_the_loop_does_makes_neither_slices_nor_claims_smaller(
    memory: AsyncQueue, working: Working, until: Any, busy: float
) -> None:
    rounds, seen = [0], set[int]()

    @memory.task("t")
    async def handle(n: int) -> None:
        seen.add(rounds[0])

    async def compute() -> None:
        while True:
            rounds[0] += 1
            work(busy)
            await asyncio.sleep(0)

    going = asyncio.create_task(compute())
    async with working(memory):
        for _ in range(5):
            await handle.send_many({"n": n} for n in range(MANY))
            await until(lambda: _nothing(memory))
    going.cancel()
    assert len(seen) <= 5 * 3  # 16, 32, 12 of the first 60, then larger slices


class Fakes:
    """Calls what has a number, in tasks of their own."""

    def __init__(self) -> None:
        self.called: list[int] = []
        self.given_back: list[int] = []

    def stopped(self) -> bool:
        return False

    def begins(self, taken: Taken) -> None: ...

    def gather(self, mean: float | None = None) -> None: ...

    def was_long(self, handling: Handling) -> None: ...

    def room_changed(self) -> None: ...

    def give_back(self, number: Any) -> None:
        self.given_back.append(number.number)

    def quick(self, number: Any) -> Any:
        return self.handle(number)

    def over(self, number: Any, error: BaseException | None) -> bool:
        return error is None

    async def handle(self, number: Any, left: Any = None) -> None:
        self.called.append(number.number)


def full(beyond: int) -> Slots:
    """In all places something waits, and so many more are held."""
    slots = Slots(["t"], [], concurrency=100, threads=1, slots={})
    slots.take("t", 100 + beyond)
    return slots


class Number:
    topic = "t"
    taken = Taken(lambda delivery: delivery)

    def __init__(self, number: int, *, broken: bool = False) -> None:
        self.__dict__.update(number=number, broken=broken)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "runner" and self.__dict__.pop("broken", False):
            raise KeyboardInterrupt
        self.__dict__[name] = value


async def test_a_slice_that_is_cut_short_is_followed_by_the_next() -> None:
    """As Ctrl-C may do."""
    fakes = Fakes()
    numbers: Any = [Number(n, broken=n == 3) for n in range(9)]
    with pytest.raises(KeyboardInterrupt):
        Slices(fakes, full(0), ["t"], asyncio.get_running_loop()).put(numbers)
    for _ in range(9):
        await asyncio.sleep(0)
    assert fakes.called == [*range(9)]


async def test_what_was_claimed_ahead_is_given_back_while_handlers_wait_in_all_places() -> None:
    fakes = Fakes()
    numbers: Any = [Number(n) for n in range(2)]
    slices = Slices(fakes, full(2), ["t"], asyncio.get_running_loop())
    slices.put(numbers)
    for _ in range(3):
        await asyncio.sleep(0)
    assert (fakes.called, fakes.given_back) == ([], [1, 0])


def test_only_where_all_runs_alike_more_may_be_held_than_there_are_places() -> None:
    """Else what has waited aside for a limit may be, and that goes on all the same."""
    alike, others = (Slots(["a", "b"], [], concurrency=2, threads=1, slots={}, limited=limited) for limited in ({}, {"a": 1}))
    for slots in (alike, others):
        slots.take("b", 3)
    assert (alike.beyond, others.beyond) == (1, 0)


def test_places_that_are_free_are_asked_for_also_while_more_handlers_wait_than_are_claimed_ahead() -> None:
    slots = Slots(["t"], [], concurrency=2 * AHEAD, threads=1, slots={})
    assert slots.ask(0, ahead=True).limit == AHEAD
    slots.take("t", AHEAD + 1)
    assert slots.ask(0, ahead=True).limit == AHEAD - 1
    slots.take("t", AHEAD - 1)
    assert slots.ask(0, ahead=True).limit == 0


async def test_a_topic_whose_handler_waits_is_tried_again_without_a_task_only_after_many(
    memory: AsyncQueue, working: Working, until: Any
) -> None:
    names: list[str] = []
    waits = True

    @memory.task("t")
    async def handle(n: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        names.append(task.get_name())
        if waits:
            await asyncio.sleep(0)

    async with working(memory):
        await handle.send_many({"n": n} for n in range(MANY))
        await until(lambda: _nothing(memory))
        assert len(set(names)) == MANY  # each has its own
        waits = False
        del names[:]
        for _ in range(20):
            await handle.send_many({"n": n} for n in range(MANY))
            await until(lambda: _nothing(memory))
        assert AGAIN - MANY <= len(set(names)) < AGAIN + MANY


async def _nothing(queue: AsyncQueue) -> bool:
    stats = await queue.stats("t")
    return not stats.pending and not stats.leased


class Asked:
    """Notes for how many messages a worker asks, and how many it gets."""

    def __init__(self, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.limits: list[int] = []
        self.got = 0
        self.claims: list[str] = []  # the name of the one that has brought it, of each message
        claim = engine.claim

        async def asks(topics: Any, limit: int, *args: Any, **options: Any) -> Any:
            self.limits.append(limit)
            found = await claim(topics, limit, *args, **options)
            self.got += len(found.messages)
            self.claims += [options["request"] if "request" in options else args[1]] * len(found.messages)
            return found

        monkeypatch.setattr(engine, "claim", asks)


PLACES = 20


@pytest.mark.parametrize("attempts", [1, 2])
async def test_while_handlers_end_at_once_more_is_claimed_than_there_are_places_and_no_more_than_two_claims_are_held(
    memory: AsyncQueue, working: Working, until: Any, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    asked: Asked | None = None
    held: list[int] = []

    @memory.task("t", max_attempts=attempts)
    async def handle(n: int) -> None:
        if asked is not None:
            held.append(asked.got - len(held))

    async with working(memory, concurrency=PLACES) as worker:
        asked = Asked(worker._service._under_way.settling._engine, monkeypatch)  # type: ignore[union-attr]
        for _ in range(5):
            await handle.send_many({"n": n} for n in range(1_000))
        await until(lambda: _nothing(memory))
    if attempts > 1:
        assert PLACES < max(asked.limits) <= AHEAD
        assert max(held) <= 2 * AHEAD
    else:  # a kill would bury what has not begun
        assert max(held) <= PLACES


async def test_a_claim_log_tells_what_was_claimed_ahead_and_has_not_begun(
    memory: AsyncQueue, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Asked | None = None
    claim_log = ClaimLog.new(100)
    waiting: list[int] = []

    @memory.task("t")
    async def handle(n: int) -> None:
        if asked is not None:
            waits = claim_log.waiting()
            waiting.append(len(waits))
            assert asked.claims[n] not in waits
            assert not set(waits) & set(asked.claims[:n])

    worker = Worker(memory, concurrency=PLACES, grace=0).changed(claim_log=ClaimLog(os.dup(claim_log.file)))
    async with worker:
        asked = Asked(worker._service._under_way.settling._engine, monkeypatch)  # type: ignore[union-attr]
        for _ in range(5):
            await handle.send_many({"n": n} for n in range(len(waiting), len(waiting) + 1_000))
            await until(lambda: _nothing(memory))
    assert max(waiting) > 0
    assert len(waiting) == 5_000
    assert claim_log.requests() == []


async def test_no_more_handlers_run_than_there_are_places_and_what_waits_behind_them_is_given_back(
    memory: AsyncQueue, working: Working, until: Any
) -> None:
    running, most, seen = 0, 0, set[int]()
    go_on = asyncio.Event()

    @memory.task("t")
    async def handle(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if n >= 500:
            await go_on.wait()
        running -= 1
        seen.add(n)

    async with working(memory, concurrency=PLACES):
        await handle.send_many({"n": n} for n in range(1_000))
        await until(lambda: running == PLACES)
        await until(lambda: leased(memory, PLACES))
        assert (running, most) == (PLACES, PLACES)
        go_on.set()
        await until(lambda: _nothing(memory))
    assert most <= PLACES
    assert seen == {*range(1_000)}


async def leased(queue: AsyncQueue, count: int) -> bool:
    return (await queue.stats("t")).leased == count


async def test_of_handlers_that_compute_no_more_are_taken_than_begin_soon(
    memory: AsyncQueue, working: Working, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @memory.task("t")
    async def handle(n: int) -> None:
        work(SOON / 2)

    async with working(memory) as worker:
        asked = Asked(worker._service._under_way.settling._engine, monkeypatch)  # type: ignore[union-attr]
        await handle.send_many({"n": n} for n in range(FIRST))
        await until(lambda: _nothing(memory))
        del asked.limits[:]
        await handle.send_many({"n": n} for n in range(10))
        await until(lambda: _nothing(memory))
    assert asked.limits
    assert max(asked.limits) <= 4


async def test_what_was_claimed_ahead_is_given_back_once_handlers_compute(
    memory: AsyncQueue, working: Working, until: Any
) -> None:
    """Others may be idle."""
    quick, seen = 1_000, list[int]()

    @memory.task("t")
    async def handle(n: int) -> None:
        seen.append(n)
        if n >= quick:
            work(LATE / 5)

    async with working(memory, concurrency=PLACES):
        await handle.send_many({"n": n} for n in range(quick))
        await handle.send_many({"n": n} for n in range(quick, quick + 2 * AHEAD))
        await until(lambda: len(seen) > quick + 5)
        await until(lambda: few_are_leased(memory, 10))
        assert len(seen) < quick + AHEAD // 2


async def test_a_topic_whose_handlers_wait_leaves_places_to_others_although_it_was_claimed_ahead(
    memory: AsyncQueue, working: Working, until: Any
) -> None:
    running, quick, seen = 0, 1_000, list[str]()
    go_on = asyncio.Event()

    @memory.task("a")
    async def wait(n: int) -> None:
        nonlocal running
        running += 1
        if n >= quick:
            await go_on.wait()
        running -= 1

    @memory.task("b")
    async def end() -> None:
        seen.append("b")

    async with working(memory, concurrency=PLACES):
        await wait.send_many({"n": n} for n in range(quick))
        await wait.send_many({"n": n} for n in range(quick, quick + 2 * AHEAD))
        await until(lambda: running == PLACES * 9 // 10)
        for _ in range(5):
            await end.send()
        await until(lambda: len(seen) == 5)
        assert running == PLACES * 9 // 10
        go_on.set()
        await until(lambda: running == 0)


@pytest.mark.parametrize("url", ["memory", pytest.param("redis", marks=pytest.mark.server)], indirect=True)
async def test_nothing_is_claimed_ahead_after_messages_with_a_single_attempt(
    queue: AsyncQueue, working: Working, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill would bury them, although they have not begun."""
    asked: Asked | None = None
    held: list[int] = []

    @queue.task("t")
    async def handle(n: int) -> None:
        if asked is not None:
            held.append(asked.got - len(held))

    async with working(queue, concurrency=PLACES) as worker:
        asked = Asked(worker._service._under_way.settling._engine, monkeypatch)  # type: ignore[union-attr]
        for _ in range(3):
            await queue.send_many("t", [Outgoing({"n": n}, max_attempts=1) for n in range(1_000)])
        await until(lambda: _nothing(queue))
    assert max(held) <= PLACES
    assert max(asked.limits) <= PLACES


@pytest.mark.parametrize("url", ["memory", pytest.param("redis", marks=pytest.mark.server)], indirect=True)
async def test_of_a_claim_ahead_that_brings_messages_with_a_single_attempt_none_begins(
    queue: AsyncQueue, working: Working, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first handler may kill the process, and all of them would be buried."""
    monkeypatch.setattr(slices, "SOON", 1e6)  # or a slow machine would claim less
    asked: Asked | None = None
    limits: list[int] = []

    @queue.task("t")
    async def handle(n: int) -> None:
        if current().max_attempts == 1 and asked is not None:
            limits.append(asked.limits[-1])

    async with working(queue, concurrency=PLACES) as worker:
        asked = Asked(worker._service._under_way.settling._engine, monkeypatch)  # type: ignore[union-attr]
        await queue.pause("t")
        await handle.send_many({"n": n} for n in range(1_000))
        await queue.send_many("t", [Outgoing({"n": n}, max_attempts=1) for n in range(300)])
        await queue.resume("t")
        await until(lambda: _nothing(queue))
    assert max(asked.limits) == AHEAD
    assert len(limits) == 300
    assert max(limits) <= PLACES


async def test_nothing_is_claimed_ahead_while_something_that_waits_takes_all_places(
    memory: AsyncQueue, working: Working, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these claims would be given back, again and again."""
    quick, waits = 1_000, 0
    go_on = asyncio.Event()

    async def wait(delivery: AsyncDelivery, reason: str) -> None:
        nonlocal waits
        waits += 1
        await go_on.wait()

    @memory.task("t", on_dead=wait)
    async def handle(n: int) -> None:
        if n >= quick and n % 20 == 0:
            raise Bury("no")

    async with working(memory, concurrency=PLACES) as worker:
        await handle.send_many({"n": n} for n in range(quick))
        for first in range(quick, 4 * quick, quick):
            await handle.send_many({"n": n} for n in range(first, first + quick))
        await until(lambda: waits == PLACES)
        await until(lambda: few_are_leased(memory, PLACES))
        asked = Asked(worker._service._under_way.settling._engine, monkeypatch)  # type: ignore[union-attr]
        for _ in range(100):  # rounds of the loop, in which memory answers at once
            await handle.send(1)
        assert not asked.got
        go_on.set()


async def few_are_leased(queue: AsyncQueue, most: int) -> bool:
    return (await queue.stats("t")).leased <= most


async def test_places_are_filled_also_by_handlers_that_compute_before_they_wait(
    memory: AsyncQueue, working: Working, until: Any
) -> None:
    begun, ended, go_on = list[int](), list[int](), asyncio.Event()

    @memory.task("t")
    async def handle(n: int) -> None:
        work(SOON / 3)
        begun.append(n)
        await go_on.wait()
        ended.append(n)

    async with working(memory):
        await handle.send_many({"n": n} for n in range(MANY))
        await until(lambda: len(begun) == MANY)
        assert ended == []  # all are at work at the same time
        go_on.set()
        await until(lambda: _nothing(memory))
    assert sorted(ended) == [*range(MANY)]

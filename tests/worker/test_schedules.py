"""Schedules in workers: each instant once over all of them, whichever die; and what becomes of schedules that nobody has."""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from bide import AsyncQueue, ManualClock, OutcomeUnknown, Queue, Unavailable, Unsupported, Worker, current
from bide.engines.base import Scanned
from bide.queue.aio.planner import AsyncPlanner
from bide.queue.deliveries import internals
from bide.queue.run.aio.schedule import AsyncScheduleStep
from bide.worker import chores
from tests.worker.faults import Faults


def instants(seen: list[Any]) -> list[int]:
    return [round(each.timestamp() * 1000) for each in seen]


def consecutive(found: list[int], step: int) -> bool:
    return all(after - before == step for before, after in pairwise(found))


async def test_each_instant_is_handled_once_by_several_workers(queue: AsyncQueue, working: Any, until: Any) -> None:
    seen: list[Any] = []

    @queue.every("200ms", topic="tick", missed="all")
    async def tick() -> None:
        seen.append(current().planned_at)

    async with working(queue), working(queue), working(queue):
        await until(lambda: len(seen) >= 8)
    found = instants(seen)
    assert found == sorted(set(found))
    assert consecutive(found, 200)
    assert {each % 200 for each in found} == {0}


@pytest.mark.server
async def test_on_a_redis_in_several_shards_each_instant_is_handled_once_too(redis_url: str, working: Any, until: Any) -> None:
    seen: Counter[tuple[str, Any]] = Counter()
    async with AsyncQueue(f"{redis_url}?shards=3") as queue:
        for name in ("a", "b", "c", "d"):

            async def tick(name: str = name) -> None:
                seen[name, current().planned_at] += 1

            tick.__qualname__ = name
            queue.every("200ms", topic=name, missed="all")(tick)
        async with working(queue), working(queue):
            await until(lambda: len(seen) >= 20)
        await queue.pause_schedule("a")
        assert [(each.name, each.next is None) for each in await queue.schedules()] == [
            ("a", True), ("b", False), ("c", False), ("d", False)
        ]  # fmt: skip
    assert set(seen.values()) == {1}
    for name in ("a", "b", "c", "d"):
        assert consecutive(sorted(instants([at for which, at in seen if which == name])), 200)


async def test_a_hundred_schedules(queue: AsyncQueue, working: Any, until: Any) -> None:
    seen: Counter[str] = Counter()
    once: set[tuple[str, Any]] = set()

    async def handle(name: str) -> None:
        seen[name] += 1
        once.add((name, current().planned_at))

    for n in range(100):
        name = f"s{n}"

        async def tick(name: str = name) -> None:
            await handle(name)

        tick.__qualname__ = name
        queue.every("1s", topic=name)(tick)
    async with working(queue), working(queue):
        await until(lambda: len(seen) == 100 and min(seen.values()) >= 2)
        assert len(await queue.schedules()) == 100
    assert sum(seen.values()) == len(once)


async def test_a_sync_queue_and_a_sync_handler_have_schedules_too(url: str, working: Any, until: Any) -> None:
    with Queue(url) as queue:
        seen: list[Any] = []

        @queue.every("100ms", topic="tick")
        def tick() -> None:
            seen.append(current().planned_at)

        async with working(queue):
            await until(lambda: len(seen) >= 3)
        await queue.aio.close()
    assert len(set(seen)) == len(seen)


async def test_operators_pause_change_and_resume_it_while_workers_run(queue: AsyncQueue, working: Any, until: Any) -> None:
    seen: list[Any] = []

    @queue.every("200ms", topic="tick")
    async def tick() -> None:
        seen.append(current().planned_at)

    async with working(queue):
        await until(lambda: len(seen) >= 2)
        await queue.pause_schedule("tick")
        [info] = await queue.schedules()
        assert info.paused
        await until(lambda: _leased(queue))
        at_pause = len(seen)
        await queue.change_schedule("tick", "150ms")
        await queue.resume_schedule("tick")
        await until(lambda: len(seen) >= at_pause + 3)
    found = instants(seen)
    assert {each % 200 for each in found[:at_pause]} == {0}
    assert {each % 150 for each in found[at_pause:]} == {0}
    assert len(set(found)) == len(found)


async def _leased(queue: AsyncQueue) -> bool:
    return (await queue.stats("tick")).leased == 0 and (await queue.stats("tick")).pending == 0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def slow(clock: ManualClock) -> Any:
    """A queue in memory whose time only the test moves."""
    queue = AsyncQueue("memory://", clock=clock)
    yield queue
    await queue.close()


def hourly(queue: AsyncQueue, text: str = "1h", **options: Any) -> list[Any]:
    seen: list[Any] = []

    @queue.every(text, **{"topic": "tick", **options})
    async def tick() -> None:
        seen.append(current().planned_at)

    return seen


async def planner(queue: AsyncQueue) -> AsyncPlanner:
    return AsyncPlanner(await queue.session.engine(), queue.session.setup)


def step_of(planner: AsyncPlanner) -> AsyncScheduleStep:
    return AsyncScheduleStep(planner._engine, planner._setup, planner)


async def announce(queue: AsyncQueue, *, begins: bool = False) -> None:
    await (await planner(queue)).announce(queue.session.setup.schedules, begins=begins)


async def test_a_worker_that_dies_between_planning_and_its_handler_loses_nothing(slow: AsyncQueue, clock: ManualClock) -> None:
    seen = hourly(slow)
    await announce(slow)
    clock.advance(3600)
    [held] = await slow.receive("tick", lease="30s")
    assert await step_of(await planner(slow)).follow([internals(held).claimed], internals(held).now) == [True]
    assert (await slow.stats("tick")).scheduled == 1  # and here its worker dies
    internals(held).mark_ended()
    await slow.testing.advance("1m")
    assert instants(seen) == [clock.now_ms // 3_600_000 * 3_600_000]
    await slow.testing.advance("2h")
    assert consecutive(instants(seen), 3_600_000)
    assert len(seen) == 3


async def test_a_worker_that_dies_before_it_has_planned_loses_nothing(slow: AsyncQueue, clock: ManualClock) -> None:
    seen = hourly(slow, missed="skip")
    await announce(slow)
    clock.advance(3600)
    [held] = await slow.receive("tick", lease="10m")
    internals(held).mark_ended()
    await slow.testing.advance("3h")
    assert len(seen) == 4
    assert consecutive(instants(seen), 3_600_000)


async def test_an_instant_that_a_stop_gives_back_while_the_next_one_is_planned_does_not_end_its_schedule(
    queue: AsyncQueue,
) -> None:
    hourly(queue, "100ms", missed="all")
    await announce(queue)
    # Given a worker that has an instant, and gives it back before the engine gets what it plans
    [first] = await queue.receive("tick", wait="20s")
    await first.release()
    follow = step_of(await planner(queue)).follow
    assert await follow([internals(first).claimed], internals(first).now) == [True]
    # When another one has it, then the next instant is planned, once
    [second] = await queue.receive("tick", wait="20s")
    assert second.id == first.id
    for _ in range(2):
        assert await follow([internals(second).claimed], internals(second).now) == [True]
    assert (await queue.stats("tick")).pending == 1


async def test_a_retry_plans_nothing_although_what_it_had_planned_is_done(slow: AsyncQueue, clock: ManualClock) -> None:
    hourly(slow)
    await announce(slow)
    clock.advance(3600)
    [first] = await slow.receive("tick")
    follow = step_of(await planner(slow)).follow
    assert await follow([internals(first).claimed], internals(first).now) == [True]
    await first.retry("3h")
    await slow.pause_schedule("tick")
    clock.advance(3 * 3600)
    [again] = await slow.receive("tick")
    assert (again.id, again.attempt) == (first.id, 2)
    assert await follow([internals(again).claimed], internals(again).now) == [True]
    assert (await slow.stats("tick")).pending == 0


async def test_an_instant_that_a_worker_has_when_its_schedule_is_paused_is_left_out(
    slow: AsyncQueue, clock: ManualClock
) -> None:
    hourly(slow)
    await announce(slow)
    clock.advance(3600)
    [held] = await slow.receive("tick")
    await slow.pause_schedule("tick")
    assert await step_of(await planner(slow)).follow([internals(held).claimed], internals(held).now) == [False]
    await held.ack()
    await announce(slow)
    assert (await slow.stats("tick")).pending == 0
    await slow.resume_schedule("tick")
    assert [each.next for each in await slow.schedules()] == [clock.now_ms + 3_600_000]


async def test_a_change_takes_back_no_instant_that_is_due_already(slow: AsyncQueue, clock: ManualClock) -> None:
    seen = hourly(slow)
    await announce(slow)
    due = clock.now_ms + 3_600_000
    clock.set_ms(due)
    await slow.change_schedule("tick", "30m")
    await slow.testing.advance("30m")
    assert instants(seen) == [due, due + 1_800_000]


@pytest.mark.parametrize("how", ["change", "release"])
async def test_a_change_leaves_an_instant_whose_jitter_is_not_over(how: str, clock: ManualClock) -> None:
    place = f"memory://jitter-{how}"
    async with AsyncQueue(place, clock=clock) as old, AsyncQueue(place, clock=clock) as new:
        hourly(old, "1h", jitter="59m")
        hourly(new, "1h", jitter="59m", missed="all")
        await announce(old, begins=True)
        schedule = next(iter(old.session.setup.schedules)).schedule
        planned = schedule.after(clock.now_ms)
        assert planned is not None
        assert schedule.due(planned) > planned + 1_000
        clock.set_ms(planned + 1_000)
        if how == "change":
            await old.change_schedule("tick", "60m")
        else:
            await announce(new, begins=True)
        [info] = await old.schedules()
        assert (info.next, info.changed, info.missed) == (planned, how == "change", "once" if how == "change" else "all")


async def test_announcing_many_times_at_once_plans_one_instant(slow: AsyncQueue) -> None:
    hourly(slow)
    await asyncio.gather(*(announce(slow, begins=True) for _ in range(20)))
    assert (await slow.stats("tick")).scheduled == 1
    assert len(await slow.schedules()) == 1


async def test_a_schedule_is_listed_that_is_announced_meanwhile(
    slow: AsyncQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record was due, as after a time in which no worker ran, or the clock was set back."""
    hourly(slow)
    await announce(slow)
    clock.advance(700)
    engine: Any = await slow.session.engine()
    looked, scan = list[str](), engine.scan

    async def scan_and_announce(topic: str, state: str, *rest: Any) -> Scanned:
        page: Scanned = await scan(topic, state, *rest)
        looked.append(state)
        if len(looked) == 1:
            await announce(slow)
        return page

    monkeypatch.setattr(engine, "scan", scan_and_announce)
    assert [each.name for each in await slow.schedules()] == ["tick"]
    assert len(looked) > 1


async def test_a_worker_begins_once_also_if_others_of_its_schedules_could_not_be_announced(clock: ManualClock) -> None:
    """It announces all again as if it began, and a new release that has begun meanwhile stays in force."""
    async with AsyncQueue("memory://once", clock=clock) as old, AsyncQueue("memory://once", clock=clock) as new:
        hourly(old, "1h")
        hourly(new, "2h")
        of_old = await planner(old)
        await of_old.announce(old.session.setup.schedules, begins=True)
        await announce(new, begins=True)
        await of_old.announce(old.session.setup.schedules, begins=True)
        assert [each.schedule for each in await old.schedules()] == ["2h"]


async def test_a_change_while_the_next_instant_is_planned_counts_within_a_minute(
    slow: AsyncQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hourly(slow, "0 0 1 1 *")
    await announce(slow)
    clock.advance(366 * 86_400)
    [held] = await slow.receive("tick")
    follows = await planner(slow)
    known = follows.kept

    async def changed_then(names: Any) -> Any:
        """An operator speaks after this worker has looked, and before it has planned."""
        found = await known(names)
        await slow.change_schedule("tick", "1m")
        return found

    monkeypatch.setattr(follows, "kept", changed_then)
    assert await step_of(follows).follow([internals(held).claimed], internals(held).now) == [True]
    await held.ack()
    await announce(slow)
    [info] = await slow.schedules()
    assert info.next == clock.now_ms // 60_000 * 60_000 + 60_000
    # And what was planned by the schedule in force stays as it is, also where somebody has moved it
    [pending] = await slow.messages("tick")
    await slow.reschedule(pending.id, delay="5s")
    await announce(slow)
    assert [each.due for each in await slow.messages("tick")] == [clock.now_ms + 5_000]


async def test_after_an_outage_a_worker_that_lacks_a_schedule_ends_it_with_none_of_its_instants(clock: ManualClock) -> None:
    async with AsyncQueue("memory://lacks", clock=clock) as has, AsyncQueue("memory://lacks", clock=clock) as lacks:
        seen = hourly(has, missed="all")
        await announce(has, begins=True)
        clock.advance(3 * 3600)
        [held] = await lacks.receive("tick")
        assert await step_of(await planner(lacks)).follow([internals(held).claimed], internals(held).now) == [True]
        await held.ack()
        await has.testing.advance("1h")
        assert consecutive(instants(seen), 3_600_000)
        assert len(seen) >= 3


async def test_a_worker_without_the_schedule_follows_it_while_others_announce_it(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: Any) -> Scanned:
        """Its sweep has not ended the schedule yet."""
        return Scanned([], None)

    async with AsyncQueue("memory://part", clock=clock) as has, AsyncQueue("memory://part", clock=clock) as lacks:
        hourly(has)
        await announce(has)
        clock.advance(3600)
        await announce(has)
        [held] = await lacks.receive("tick")
        assert await step_of(await planner(lacks)).follow([internals(held).claimed], internals(held).now) == [True]
        await held.ack()
        [info] = await lacks.schedules()
        assert info.next == clock.now_ms + 3_600_000
        # Then it has looked for announcements for ten minutes, and there was none
        watching = await planner(lacks)
        monkeypatch.setattr(watching._engine, "scan", nothing)
        clock.advance(2400)
        for _ in range(21):
            await watching.sweep()
            clock.advance(60)
        [held] = await lacks.receive("tick")
        assert await step_of(watching).follow([internals(held).claimed], internals(held).now) == [False]
        await held.ack()
        assert (await lacks.stats("tick")).pending == 0


async def test_a_schedule_that_nobody_announces_for_ten_minutes_ends_and_is_told_of(clock: ManualClock, caplog: Any) -> None:
    async with AsyncQueue("memory://ends", clock=clock) as gone, AsyncQueue("memory://ends", clock=clock) as stays:
        hourly(gone)
        hourly(stays, topic="tock")
        await announce(gone)
        looking = await planner(stays)
        for _ in range(10):
            await looking.announce(stays.session.setup.schedules, begins=False)
            await looking.sweep()
            clock.advance(60)
        assert [each.name for each in await stays.schedules()] == ["tick", "tock"]
        await looking.sweep()
        assert [each.name for each in await stays.schedules()] == ["tock"]
        assert await stays.topics() == ["tock"]
        assert caplog.text.count("The schedule tick has ended") == 1
        await looking.sweep()
        assert caplog.text.count("has ended") == 1


async def test_after_an_outage_a_worker_that_comes_back_first_ends_no_other_schedules(clock: ManualClock) -> None:
    async with AsyncQueue("memory://outage", clock=clock) as late, AsyncQueue("memory://outage", clock=clock) as early:
        seen = hourly(late)
        hourly(early, topic="tock")
        await announce(late, begins=True)
        looking = await planner(early)
        for seconds in (3600, 60, 60, 4 * 3600, 60, 60):  # it begins late, and its machine sleeps
            clock.advance(seconds)
            await looking.sweep()
            assert len(await early.schedules()) == 1
        await late.testing.advance("1h")
        assert [each // 3_600_000 % 24 for each in instants(seen)] == [1, 6]


async def test_what_a_purge_has_removed_is_planned_again_by_a_worker_that_runs(
    queue: AsyncQueue, working: Any, until: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(chores, "EVERY", 0.05)
    hourly(queue, "1d")
    async with working(queue):
        await until(lambda: _planned(queue))
        await queue.purge("tick", state="scheduled")
        await until(lambda: _planned(queue))


async def test_a_worker_that_can_not_announce_pauses_also_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        tries = 0

        async def announce(self, schedules: object, *, begins: bool) -> None:
            self.tries += 1
            raise Unavailable("away")

        def set_back(self) -> bool:
            return True

    monkeypatch.setattr(chores, "AGAIN", 60.0)
    away: Any = Away()
    running = asyncio.create_task(chores.Announcer(away, []).run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert away.tries == 1
    running.cancel()


async def _planned(queue: AsyncQueue) -> bool:
    return (await queue.stats("tick")).scheduled == 1


async def test_a_worker_for_other_topics_announces_nothing_and_misses_nothing(
    memory: AsyncQueue, working: Any, until: Any, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(chores, "EVERY", 0.01)
    monkeypatch.setattr(chores, "EVERY", 0.01)
    seen = hourly(memory, "100ms")

    @memory.task("other")
    async def other() -> None: ...

    async with working(memory, topics=["other"]) as worker:
        await memory.send("nobodys", {})
        await until(lambda: worker.health().unhandled == 1)
    assert await memory.schedules() == []
    assert seen == []


async def test_somebody_elses_message_in_the_way_of_an_announcement_is_replaced(slow: AsyncQueue) -> None:
    hourly(slow)
    await slow.send("bide.schedules", "what is this?", key="tick", delay="1h")
    await slow.send("bide.schedules", {"schedule": 5}, key="changed tick", delay="1h")
    assert await slow.schedules() == []
    await announce(slow)
    assert [(each.name, each.schedule) for each in await slow.schedules()] == [("tick", "1h")]


async def test_a_message_that_only_looks_planned_is_handled(slow: AsyncQueue) -> None:
    handled: list[Any] = []

    @slow.task("tick")
    async def tick() -> None:
        handled.append(current().planned_at)

    for planned in ("2026-01-01T00:00:00+00:00", "yesterday", "2026-01-01"):
        await slow.send("tick", {}, headers={"bide-schedule": "tick", "bide-planned": planned})
    await slow.testing.advance(0)
    assert len(handled) == 3


async def test_while_the_next_instant_cannot_be_planned_no_handler_is_called(
    queue: AsyncQueue, faults: Faults, until: Any, working: Any
) -> None:
    seen = hourly(queue, "100ms", missed="all")
    async with working(queue):
        await until(lambda: len(seen) >= 2)
        failures = faults.fail("put")
        await until(lambda: len(failures) >= 2)
        before = len(seen)
        await until(lambda: len(failures) >= 4)
        assert len(seen) == before
        faults.fail("put", times=0)
        await until(lambda: len(seen) >= before + 3)
    assert consecutive(instants(seen), 100)


async def test_a_plan_whose_answer_is_lost_is_made_once(queue: AsyncQueue, faults: Faults, until: Any, working: Any) -> None:
    seen = hourly(queue, "100ms", missed="all")
    lost: list[int] = []

    async def lose(call: Any, asked: Any) -> Any:
        answer = await call()
        lost.append(1)
        if len(lost) % 2:
            raise OutcomeUnknown("The answer did not come.")
        return answer

    faults.around["put"] = lose
    async with working(queue):
        await until(lambda: len(seen) >= 6)
    assert len(lost) >= 6
    assert consecutive(instants(seen), 100)


async def test_an_engine_without_keys_has_no_schedules(memory: AsyncQueue, monkeypatch: Any) -> None:
    hourly(memory)
    source = memory.session.setup.source
    lacking = msgspec.structs.replace(source.capabilities, keys=False)
    monkeypatch.setattr(source, "capabilities", lacking)
    with pytest.raises(Unsupported, match="can't keep schedules"):
        Worker(memory).tasks()

"""Schedules of which two releases run at the same time."""

from typing import Any

import pytest

from bide import AsyncQueue, ManualClock
from bide.queue.deliveries import internals
from tests.worker.test_schedules import announce, hourly, planner, step_of


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_a_new_release_counts_from_when_it_begins_also_for_workers_of_the_old(clock: ManualClock) -> None:
    async with AsyncQueue("memory://releases", clock=clock) as old, AsyncQueue("memory://releases", clock=clock) as new:
        seen = hourly(old, "1h"), hourly(new, "0 */2 * * *")
        await announce(old, begins=True)
        clock.advance(60)
        await announce(new, begins=True)
        for _ in range(3):
            clock.advance(60)
            await announce(old)
            await announce(new)
        [info] = await old.schedules()
        assert info.schedule == "0 */2 * * *"
        midnight = clock.now_ms // 86_400_000 * 86_400_000
        assert info.next == midnight + 2 * 3_600_000
        clock.set_ms(midnight + 2 * 3_600_000)
        await announce(new)
        [held] = await old.receive("tick")
        assert await step_of(await planner(old)).follow([internals(held).claimed], internals(held).now) == [True]
        await held.ack()
        [info] = await new.schedules()
        assert info.next == midnight + 4 * 3_600_000
        assert (await new.stats("tick")).pending == 1
        assert seen == ([], [])


async def test_an_old_release_takes_over_when_the_new_one_is_gone(clock: ManualClock) -> None:
    async with AsyncQueue("memory://back", clock=clock) as old, AsyncQueue("memory://back", clock=clock) as new:
        hourly(old, "1h")
        hourly(new, "2h")
        await announce(old, begins=True)
        await announce(new, begins=True)
        clock.advance(179)
        await announce(old)
        assert [each.schedule for each in await old.schedules()] == ["2h"]
        clock.advance(2)
        await announce(old)
        assert [each.schedule for each in await old.schedules()] == ["1h"]
        assert (await old.stats("tick")).pending == 1


async def test_a_task_that_moves_to_another_topic_leaves_nothing_behind(clock: ManualClock) -> None:
    async with AsyncQueue("memory://moved", clock=clock) as old, AsyncQueue("memory://moved", clock=clock) as new:
        hourly(old, name="report")
        hourly(new, name="report", topic="tock")
        await announce(old, begins=True)
        await announce(new, begins=True)
        assert [(each.name, each.topic) for each in await new.schedules()] == [("report", "tock")]
        assert await new.topics() == ["tock"]


async def test_an_instant_that_is_taken_while_its_task_moves_to_another_topic_plans_no_other(clock: ManualClock) -> None:
    async with AsyncQueue("memory://moving", clock=clock) as old, AsyncQueue("memory://moving", clock=clock) as new:
        hourly(old, name="report")
        hourly(new, name="report", topic="tock")
        await announce(old, begins=True)
        clock.advance(3600)
        [held] = await old.receive("tick")
        await announce(new, begins=True)
        assert await step_of(await planner(old)).follow([internals(held).claimed], internals(held).now) == [True]
        await held.ack()
        assert await new.topics() == ["tock"]
        assert (await new.stats("tock")).pending == 1


@pytest.mark.parametrize("first", ["tick", "tock"])
async def test_an_instant_that_both_topics_have_as_a_release_moves_the_task_is_handled_once(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """A worker of the old release had looked before the new one announced, and plans after it."""
    url = f"memory://both.{first}"
    async with AsyncQueue(url, clock=clock) as old, AsyncQueue(url, clock=clock) as new:
        hourly(old, name="report")
        hourly(new, name="report", topic="tock")
        await announce(old, begins=True)
        assert await old.purge("tick", state="scheduled") == 1  # so that it plans the instant again
        late = await planner(old)
        act = late.act

        async def when_the_new_one_has_begun(actions: Any) -> None:
            await announce(new, begins=True)
            await act(actions)

        monkeypatch.setattr(late, "act", when_the_new_one_has_begun)
        await late.announce(old.session.setup.schedules, begins=False)
        assert await new.topics() == ["tick", "tock"]
        clock.advance(3600)
        called: list[bool] = []
        for topic in (first, "tock" if first == "tick" else "tick"):
            for queue in (old, new):
                for held in await queue.receive(topic):
                    called += await step_of(await planner(queue)).follow([internals(held).claimed], internals(held).now)
                    await held.ack()
        assert sorted(called) == [False, True]
        assert [each.topic for each in await new.messages("tock")] == ["tock"]
        assert await new.topics() == ["tock"]

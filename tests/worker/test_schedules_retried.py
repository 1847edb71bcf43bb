"""An instant whose handler has begun is retried, also where it still has its schedule's key, as no other has followed it."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, ManualClock, current, steps
from bide.clock import epoch_ms
from bide.queue.aio.planner import AsyncPlanner
from bide.queue.deliveries import internals
from tests.worker.conftest import EVERY_ENGINE, place
from tests.worker.test_schedules import step_of

BEGIN = datetime(2026, 1, 1, 0, 59, tzinfo=UTC)
ONE = datetime(2026, 1, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
FAR = ONE + 24 * HOUR
Seen = list[tuple[datetime | None, int]]


async def announced(queue: AsyncQueue) -> AsyncPlanner:
    """As by a worker that begins."""
    planner = AsyncPlanner(await queue.session.engine(), queue.session.setup)
    await planner.announce(queue.session.setup.schedules, begins=True)
    return planner


def failing(queue: AsyncQueue, **options: Any) -> Seen:
    """The calls of an hourly handler that fails in its first attempt and has its second one 20 minutes later."""
    seen: Seen = []

    @queue.every("1h", name="s", topic="t", backoff=steps("20m"), **options)
    async def fail() -> None:
        seen.append((current().planned_at, current().attempt))
        if current().attempt == 1:
            raise ValueError("bad")

    return seen


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("how", ["pause", "pause and resume", "change", "release"])
async def test_a_retry_of_the_last_instant_comes_as_any_other_does(how: str, last: bool) -> None:
    clock, end = ManualClock(BEGIN), ONE if last else FAR
    url = f"memory://retried-{how.replace(' ', '-')}-{last}"
    async with AsyncQueue(url, clock=clock) as queue, AsyncQueue(url, clock=clock) as released:
        seen = [failing(queue, end=end), failing(released, end=end, jitter="1m")]
        await queue.testing.advance("2m", raise_errors=False)
        if how.startswith("pause"):
            await queue.pause_schedule("s")
        if how == "pause and resume":
            await queue.resume_schedule("s")
        if how == "change":
            await queue.change_schedule("s", "2h")
        later = released if how == "release" else queue
        if how == "release":
            await announced(released)
        await later.testing.advance("30m", raise_errors=False)
    assert [*seen[0], *seen[1]] == [(ONE, 1), (ONE, 2)]


async def test_after_a_later_end_the_next_instant_does_not_wait_for_a_retry_of_what_was_the_last() -> None:
    clock = ManualClock(BEGIN)
    async with AsyncQueue("memory://later-end", clock=clock) as queue, AsyncQueue("memory://later-end", clock=clock) as longer:
        seen = [failing(queue, end=ONE), failing(longer, end=FAR)]
        await queue.testing.advance("2m", raise_errors=False)
        await announced(longer)
        assert [each.next for each in await longer.schedules()] == [epoch_ms(ONE + HOUR)]
        await longer.testing.advance("90m", raise_errors=False)
    assert [*seen[0], *seen[1]] == [(ONE, 1), (ONE, 2), (ONE + HOUR, 1), (ONE + HOUR, 2)]


async def test_a_last_instant_that_a_worker_gave_back_goes_on_also_if_it_is_late_by_then() -> None:
    """Its worker was stopped while the handler ran, which counts as no attempt."""
    clock = ManualClock(BEGIN)
    async with AsyncQueue("memory://given-back", clock=clock) as queue:
        failing(queue, end=ONE, missed="skip")
        planner = await announced(queue)
        clock.set_ms(epoch_ms(ONE))
        [held] = await queue.receive("t")
        assert await step_of(planner).follow([internals(held).claimed], internals(held).now) == [True]
        await held.release()
        await queue.pause_schedule("s")
        await queue.resume_schedule("s")
        clock.advance(600)
        [again] = await queue.receive("t")
        assert (again.id, await step_of(planner).follow([internals(again).claimed], internals(again).now)) == (held.id, [True])


async def test_a_retry_of_the_last_instant_comes_also_when_its_schedule_was_removed() -> None:
    clock = ManualClock(BEGIN)
    async with AsyncQueue("memory://gone", clock=clock) as queue, AsyncQueue("memory://gone", clock=clock) as without:
        failing(queue, end=ONE)
        await queue.testing.advance("2m", raise_errors=False)
        sweeper = await announced(without)
        for _ in range(12):
            await sweeper.sweep()
            clock.advance(60)
        assert await without.schedules() == []
        clock.advance(600)
        [retry] = await without.receive("t")
        assert (retry.attempt, await step_of(sweeper).follow([internals(retry).claimed], internals(retry).now)) == (2, [True])


async def test_what_was_called_before_a_pause_is_kept_where_a_worker_had_the_next_instant() -> None:
    """So it does not come again when the clock is set back meanwhile."""
    clock = ManualClock(BEGIN)
    async with AsyncQueue("memory://held", clock=clock) as queue:
        failing(queue)
        await queue.testing.advance("30m", raise_errors=False)
        clock.set_ms(epoch_ms(ONE + HOUR))
        [held] = await queue.receive("t")
        await queue.pause_schedule("s")
        planner = AsyncPlanner(await queue.session.engine(), queue.session.setup)
        assert await step_of(planner).follow([internals(held).claimed], internals(held).now) == [False]
        await held.ack()
        clock.advance(-90 * 60)
        await queue.stats()
        await queue.resume_schedule("s")
        assert [each.next for each in await queue.schedules()] == [epoch_ms(ONE + HOUR)]


@pytest.fixture(params=EVERY_ENGINE)
async def releases(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sequence[AsyncQueue]]:
    """Two releases, of which the second one has moved a task to another topic."""
    url = place(request, tmp_path)
    url = "memory://flipped" if url == "memory://" else url
    async with AsyncQueue(url) as old, AsyncQueue(url) as new:
        for queue, topic in ((old, "old"), (new, "new")):

            @queue.every("200ms", name="s", topic=topic)
            async def tick() -> None: ...

        yield old, new


async def test_a_retry_whose_task_moves_to_another_topic_and_back_is_left_alone(releases: Sequence[AsyncQueue]) -> None:
    old, new = releases
    planner = await announced(old)
    [held] = await old.receive("old", wait="20s")
    await announced(new)
    assert await step_of(planner).follow([internals(held).claimed], internals(held).now) == [True]
    await held.retry("10m")
    for release, planned in ((old, 1), (new, 0)):
        for _ in range(2):
            await announced(release)
        found = {each.id: each.attempt for each in await old.messages("old")}
        assert found.pop(held.id) == 1
        assert list(found.values()) == [0] * planned

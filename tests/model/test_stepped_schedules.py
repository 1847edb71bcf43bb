"""Schedules go by the server's clock as it stands, also after it was ahead for a moment."""

from collections import Counter
from typing import Any, NamedTuple

import pytest

from bide import Worker, current
from bide.clock import epoch_ms, moment
from bide.worker import chores
from tests.model.stepped import HOUR, Place
from tests.worker.conftest import once as until

DAY = 24 * HOUR
MINUTE = 60_000


class Call(NamedTuple):
    planned: int
    clock: int  # when the handler began


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "LOOK", 0.1)


def scheduled(place: Place, schedule: str, **options: Any) -> list[Call]:
    """The calls of a schedule's handler, as they are made."""
    calls: list[Call] = []

    @place.queue.every(schedule, topic="tick", **options)
    async def tick() -> None:
        planned_at = current().planned_at
        assert planned_at is not None
        calls.append(Call(epoch_ms(planned_at), place.wall()))

    return calls


def working(place: Place) -> Worker:
    return Worker(place.queue, grace=0)


async def be_ahead(place: Place, calls: list[Call]) -> int:
    """A day, until the handler is called for an instant of that day. Gives what the clock shows when it is right again."""
    begin = place.wall()
    place.clock.step(DAY)
    await until(lambda: calls[-1].planned > begin + 0.9 * 1_000 * DAY)
    place.clock.set_right()
    return place.wall()


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
async def test_an_interval_goes_on_after_the_clock_was_a_day_ahead(missed: str, place: Place) -> None:
    calls = scheduled(place, "1s", missed=missed)
    async with working(place):
        await until(lambda: len(calls) >= 1)
        right = await be_ahead(place, calls)
        await until(lambda: sum(right < each.planned < right + HOUR * 1_000 for each in calls) >= 4)
    judge(calls, right)


async def test_an_interval_goes_on_when_the_clock_was_set_right_while_no_worker_ran(place: Place) -> None:
    calls = scheduled(place, "1s")
    async with working(place):
        await until(lambda: len(calls) >= 1)
        begin = place.wall()
        place.clock.step(DAY)
        await until(lambda: calls[-1].planned > begin + 0.9 * 1_000 * DAY)
    place.clock.set_right()
    right = place.wall()
    async with working(place):
        await until(lambda: sum(right < each.planned < right + HOUR * 1_000 for each in calls) >= 4)
    judge(calls, right)


async def test_an_interval_goes_on_when_the_clock_comes_to_what_it_was_ahead_with(place: Place) -> None:
    """Those instants come again, and each is followed by the next one: by all of them, however busy the machine."""
    calls = scheduled(place, "1s", missed="all")
    async with working(place):
        await until(lambda: len(calls) >= 1)
        place.clock.step(4)
        seen = len(calls)
        await until(lambda: len(calls) >= seen + 3)
        place.clock.set_right()
        right = place.wall()
        await until(lambda: any(right + 9_000 <= each.planned for each in calls))
    since = {each.planned for each in calls if each.clock >= right and each.planned >= right}
    assert since >= set(range(min(since), right + 9_000, 1_000))


async def test_cron_goes_on_with_the_next_instant_of_the_right_clock(place: Place) -> None:
    minute = half_a_minute_before(place)
    calls = scheduled(place, "* * * * *")
    async with working(place):
        await first_call(place, calls, minute)
        ahead = place.clock.ahead
        place.clock.step(2 * DAY)
        await until(lambda: len(calls) == 2)  # once for all that have passed
        place.clock.step(ahead - place.clock.ahead)
        following = minute + 2 * MINUTE  # the one before was called, as far as the clock showed
        await until(lambda: planned_next(place) == following)
        place.clock.step((following - place.wall()) / 1_000 - 0.5)
        await until(lambda: len(calls) == 3)
    assert [each.planned for each in calls] == [minute, minute + MINUTE, following]
    judge(calls, following)


async def test_a_clock_that_is_set_back_a_little_does_not_bring_an_instant_again(place: Place) -> None:
    minute = half_a_minute_before(place)
    calls = scheduled(place, "* * * * *")
    async with working(place):
        await first_call(place, calls, minute)
        place.clock.step(-20.0)
    async with working(place):  # announces anew
        place.queue.send("other")
        await until(lambda: planned_next(place) is not None)
    assert planned_next(place) == minute + MINUTE
    assert [each.planned for each in calls] == [minute]


async def test_a_clock_that_is_set_back_while_a_schedule_is_paused_does_not_bring_an_instant_again(place: Place) -> None:
    minute = half_a_minute_before(place)
    calls = scheduled(place, "* * * * *")
    async with working(place):
        await first_call(place, calls, minute)
        place.queue.pause_schedule("tick")
        place.clock.step(-5.0)
        place.queue.resume_schedule("tick")
        assert planned_next(place) == minute + MINUTE
    assert [each.planned for each in calls] == [minute]


async def test_a_clock_that_is_set_back_after_the_end_does_not_bring_the_last_instant_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "EVERY", 0.3)  # so that an announcement is seen
    minute = half_a_minute_before(place)
    calls = scheduled(place, "* * * * *", end=moment(minute))
    async with working(place):
        await first_call(place, calls, minute)
    place.clock.step(-5.0)
    [before] = place.queue.schedules()
    async with working(place):  # announces anew
        await until(lambda: place.queue.schedules()[0].announced > before.announced)
        assert planned_next(place) is None
    assert [each.planned for each in calls] == [minute]


def half_a_minute_before(place: Place) -> int:
    """Steps the clock forward to half a minute before an instant of each minute, and gives that."""
    minute = (place.wall() // MINUTE + 2) * MINUTE
    place.clock.step((minute - place.wall()) / 1_000 - 30)
    return minute


async def first_call(place: Place, calls: list[Call], minute: int) -> None:
    """Steps the clock on once the schedule is announced, however long that took, and waits for its call."""
    await until(lambda: planned_next(place) == minute)
    place.clock.step((minute - place.wall()) / 1_000 - 0.5)
    await until(lambda: len(calls) == 1)


def planned_next(place: Place) -> int | None:
    found = place.queue.schedules()
    return found[0].next if found else None


def judge(calls: list[Call], right: int) -> None:
    """No instant comes early by the clock, and none twice."""
    assert Counter(each.planned for each in calls).most_common(1)[0][1] == 1
    assert not [each for each in calls if each.planned > each.clock and each.planned < right + 1_000 * HOUR]

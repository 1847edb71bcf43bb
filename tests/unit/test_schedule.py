"""Schedules: their instants, and what becomes of late ones."""

from datetime import UTC

import pytest

from bide import BadOption, BadTime
from bide.core.cron import LATE, MOST, Called, CronStep, Missed, Schedule, Timing, interval

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NOON = 20_000 * DAY + 12 * HOUR


def schedule(text: str, **more: object) -> Schedule:
    return Schedule("s", Timing(text, **more), UTC)  # type: ignore[arg-type]


def test_an_interval_counts_from_1970_or_from_its_start() -> None:
    assert schedule("1h").after(NOON + 5) == NOON + HOUR
    assert schedule("1h").after(NOON) == NOON + HOUR
    assert schedule("1h", start=NOON + 7).after(NOON + HOUR) == NOON + HOUR + 7
    assert schedule("1h", start=NOON + 7).after(0) == NOON + 7


def test_nothing_is_planned_after_the_end_or_before_the_start() -> None:
    limited = schedule("0 12 * * *", start=NOON, end=NOON + DAY)
    assert [limited.after(NOON - DAY), limited.after(NOON), limited.after(NOON + DAY)] == [NOON, NOON + DAY, None]


def test_jitter_moves_the_due_time_by_the_same_for_all_and_not_the_instant() -> None:
    due = [schedule("1m", jitter=10_000).due(NOON + n * MINUTE) - (NOON + n * MINUTE) for n in range(200)]
    assert due == [schedule("1m", jitter=10_000).due(NOON + n * MINUTE) - (NOON + n * MINUTE) for n in range(200)]
    assert min(due) >= 0
    assert max(due) <= 10_000
    assert len(set(due)) > 100
    assert schedule("1m", jitter=10_000).after(NOON) == NOON + MINUTE


@pytest.mark.parametrize("text", ["1m", "* * * * *", "0,1,7 9 * * *"])
@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_jitter_longer_than_the_time_to_the_next_instant_makes_none_late(missed: Missed, text: str) -> None:
    plan, planned = schedule(text, jitter=10 * HOUR, missed=missed), NOON
    for _ in range(200):
        following = plan.after(planned)
        assert following is not None
        assert planned <= plan.due(planned) < following
        assert plan.step(planned, plan.due(planned)) == CronStep(True, following)
        planned = following


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_an_instant_in_time_is_handled_and_followed_by_the_next(missed: Missed) -> None:
    assert schedule("1h", missed=missed).step(NOON, NOON + LATE) == CronStep(True, NOON + HOUR)


@pytest.mark.parametrize(
    ("missed", "step"),
    [
        ("skip", CronStep(False, NOON + 4 * HOUR)),
        ("once", CronStep(True, NOON + 4 * HOUR)),
        ("all", CronStep(True, NOON + HOUR)),
    ],
)
def test_late_instants_are_left_out_or_handled_once_or_all_of_them(missed: Missed, step: CronStep) -> None:
    assert schedule("1h", missed=missed).step(NOON, NOON + 3 * HOUR + 5) == step


@pytest.mark.parametrize(("missed", "call"), [("skip", False), ("once", True), ("all", True)])
def test_a_minute_after_its_time_an_instant_is_late_before_the_next_has_passed(missed: Missed, call: bool) -> None:
    assert schedule("1h", missed=missed).step(NOON, NOON + LATE + 1) == CronStep(call, NOON + HOUR)


def test_an_instant_is_late_when_the_next_has_passed_within_a_minute() -> None:
    assert schedule("1s", missed="skip").step(NOON, NOON + 999) == CronStep(True, NOON + 1000)
    assert schedule("1s", missed="skip").step(NOON, NOON + 1000) == CronStep(False, NOON + 2000)


@pytest.mark.parametrize(("text", "each"), [("1m", MINUTE), ("* * * * *", MINUTE), ("0 * * * *", HOUR), ("0 12 * * *", DAY)])
def test_of_very_many_late_instants_the_latest_thousand_are_handled(text: str, each: int) -> None:
    every = schedule(text, missed="all")
    assert every.step(NOON, NOON + (MOST - 1) * each) == CronStep(True, NOON + each)
    assert every.step(NOON, NOON + MOST * each) == CronStep(False, NOON + each, dropped=True)
    assert every.step(NOON, NOON + 5 * MOST * each + 1) == CronStep(False, NOON + (4 * MOST + 1) * each, dropped=True)


def test_a_clock_that_was_set_back_brings_no_instant_again_that_was_called_without_a_gap() -> None:
    hourly, called = schedule("1h"), Called(NOON, NOON + 3 * HOUR)
    assert hourly.next(NOON + 3 * HOUR + 5, called) == NOON + 4 * HOUR
    assert hourly.next(NOON + HOUR, called) == NOON + 4 * HOUR
    assert hourly.next(NOON - 1, called) == NOON + 4 * HOUR
    assert hourly.next(NOON - HOUR - 1, called) == NOON - HOUR
    assert hourly.next(NOON, None) == NOON + HOUR


def test_instants_are_called_without_a_gap_until_one_is_passed_over() -> None:
    hourly = schedule("1h")
    called = hourly.with_call(hourly.with_call(None, NOON), NOON + HOUR)
    assert called == Called(NOON, NOON + HOUR)
    assert hourly.with_call(called, NOON + DAY) == Called(NOON + DAY, NOON + DAY)


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_an_instant_that_is_ahead_of_the_clock_is_followed_by_the_next_of_the_clock(missed: Missed) -> None:
    hourly = schedule("1h", missed=missed)
    assert hourly.step(NOON + DAY, NOON + 5) == CronStep(True, NOON + HOUR)
    assert hourly.step(NOON + DAY, NOON + 5, Called(NOON, NOON + DAY - HOUR)) == CronStep(True, NOON + DAY + HOUR)


def test_at_the_end_nothing_follows() -> None:
    assert schedule("1h", end=NOON).step(NOON, NOON) == CronStep(True, None)
    assert schedule("1h", end=NOON + HOUR).step(NOON, NOON + 5 * HOUR) == CronStep(True, None)


@pytest.mark.parametrize(("text", "ms"), [("5m", 5 * MINUTE), ("1h 30m", 90 * MINUTE), ("200ms", 200), ("0 9 * * *", None)])
def test_what_is_an_interval(text: str, ms: int | None) -> None:
    assert interval(text) == ms


def test_what_can_never_run_is_refused() -> None:
    with pytest.raises(BadTime, match="100ms"):
        schedule("99ms")
    with pytest.raises(BadTime, match="end is before start"):
        schedule("1h", start=NOON, end=NOON - 1)
    with pytest.raises(BadOption, match="50 years"):
        schedule("0 0 31 4 *")
    with pytest.raises(BadOption, match="missed"):
        schedule("1h", missed="never")
    with pytest.raises(BadOption, match="five fields"):
        schedule("5 minutes")

"""The core: decisions that pencil and paper could make."""

import contextlib
import math
import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_UP, Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bide import BadOption, BadTime, Duration, exponential, steps
from bide.clock import ManualClock, Monotonic, epoch_ms, moment
from bide.core import lifecycle
from bide.core.backoff import DEFAULT, wait_ms
from bide.core.times import MAX_DELAY_MS, duration_ms, instant_ms


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        (0, 0), (90, 90_000), (1.1, 1_100), (0.0004, 1), (1e-9, 1), (timedelta(minutes=15), 900_000), (timedelta(0), 0),
        (-0.0, 0), ("1h30m", 5_400_000), ("1h 30m", 5_400_000), ("15m", 900_000), ("1.5s", 1_500), ("250ms", 250), ("0.1ms", 1),
        ("2d", 172_800_000), ("1w", 604_800_000), ("36525d", MAX_DELAY_MS), (timedelta(microseconds=1), 1),
    ],
)  # fmt: skip
def test_durations_are_read_and_rounded_up(written: float | str | timedelta, ms: int) -> None:
    assert duration_ms(written) == ms


SECONDS = st.floats(0, 1.49e9) | st.floats(2.5e9, 3e9)  # what is between them looks like a time


@given(SECONDS | st.builds(math.nextafter, st.integers(0, 1_490_000_000_000).map(lambda ms: ms / 1000), st.floats(0, 1.49e9)))
def test_a_duration_in_seconds_counts_the_digits_that_people_see(seconds: float) -> None:
    exact = Decimal(repr(seconds)) * 1000
    assert duration_ms(seconds) == int(exact.to_integral_value(ROUND_UP))


@given(SECONDS)
def test_a_duration_in_seconds_is_never_early_and_less_than_a_millisecond_late(seconds: float) -> None:
    assert 0 <= duration_ms(seconds) - seconds * 1000 <= 1.001


@pytest.mark.parametrize("written", [1_795_888_408, 1_795_888_408.25, 1_500_000_000])
def test_a_time_since_1970_is_no_delay(written: float) -> None:
    with pytest.raises(BadTime, match=rf"delay is {written:.0f} seconds, \d\d years: it looks like a time.*at= takes"):
        duration_ms(written)


@given(st.integers(0, MAX_DELAY_MS))
def test_a_timedelta_of_whole_milliseconds_is_exact(ms: int) -> None:
    assert duration_ms(timedelta(milliseconds=ms)) == ms


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(BadTime):
        assert 0 <= duration_ms(text) <= MAX_DELAY_MS


def test_instants_are_the_same_in_every_zone() -> None:
    when = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert instant_ms(when) == instant_ms(when.astimezone(ZoneInfo("Australia/Lord_Howe"))) == 1_782_907_200_000
    assert moment(1_782_907_200_000) == when
    assert epoch_ms(when + timedelta(microseconds=1)) == 1_782_907_200_001


EVERY_ZONE = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)


@given(st.datetimes(timezones=EVERY_ZONE))
@example(datetime(2528, 1, 1, 0, 0, 0, 124, timezone(timedelta(microseconds=543123))))
@example(datetime.min.replace(tzinfo=timezone(timedelta(hours=23))))
@example(datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))))
def test_any_instant_is_read_to_the_millisecond_and_one_before_1970_counts_as_1970(when: datetime) -> None:
    ms = instant_ms(when)
    assert ms >= 0
    assert ms == 0 if when < moment(0) else timedelta(milliseconds=ms - 1) < when - moment(0) <= timedelta(milliseconds=ms)


def test_exponential_doubles_up_to_its_cap() -> None:
    wait = exponential("1s", cap="10s", jitter=0)
    assert [wait(attempt) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    assert wait(10_000) == 10


@given(st.integers(1, 10_000), st.integers())
def test_jitter_stays_within_its_share(attempt: int, seed: int) -> None:
    backoff = exponential("1s", cap="10m", jitter=0.2, chance=random.Random(seed).random)
    plain = min(600_000, 1_000 * 2 ** min(attempt - 1, 60))
    assert 0.8 * plain - 1 <= wait_ms(backoff, attempt) <= 1.2 * plain + 1
    assert wait_ms(backoff, attempt, by_chance=False) == plain


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(0, 1))
def test_no_wait_is_above_the_cap_and_those_at_the_cap_are_spread(attempt: int, jitter: float, chance: float) -> None:
    ms = wait_ms(exponential("1s", cap="10m", jitter=jitter, chance=lambda: chance), attempt)
    assert 0 <= ms <= 600_000
    if attempt > 20:
        assert abs(ms - 600_000 * (1 - jitter * abs(2 * chance - 1))) <= 1


@given(st.integers(1, MAX_DELAY_MS))
def test_a_backoff_gives_seconds_that_are_exact_to_the_millisecond(ms: int) -> None:
    first = timedelta(milliseconds=ms)
    for backoff in (steps(first), exponential(first, cap=first, jitter=0), exponential(first, cap=first, chance=lambda: 0.5)):
        assert wait_ms(backoff, 1) == ms
        assert backoff(1) == ms / 1000


@pytest.mark.parametrize(("wait", "ms"), [(30, 30_000), (0.25, 250), (timedelta(minutes=1), 60_000), ("1h30m", 5_400_000)])
def test_a_function_as_backoff_gives_a_duration_like_any_other(wait: Duration, ms: int) -> None:
    assert wait_ms(lambda attempt: wait, 1) == ms


def test_the_usual_wait_is_about_a_second_and_doubles() -> None:
    assert 800 <= DEFAULT(1) <= 1_200
    assert 3_200 <= DEFAULT(3) <= 4_800


def test_steps_repeat_the_last() -> None:
    wait = steps("1s", "30s")
    assert [wait(attempt) for attempt in (1, 2, 3, 99)] == [1, 30, 30, 30]


def test_bad_backoffs_are_refused() -> None:
    with pytest.raises(BadOption, match="steps"):
        steps()
    with pytest.raises(BadOption, match="jitter"):
        exponential(jitter=2)
    with pytest.raises(BadTime, match="cap"):
        exponential(cap="soon")


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_engine_time_never_goes_back_and_never_runs_faster_than_the_clock(readings: list[int]) -> None:
    time = Monotonic()
    for raw in readings:
        old_raw, old_mark = time.raw, time.mark
        assert time.read(raw) >= raw
        assert 0 <= time.mark - old_mark <= max(0, raw - old_raw)


def test_engine_time_runs_at_half_speed_until_the_clock_has_caught_up() -> None:
    time = Monotonic(1_000, 1_000)
    assert time.read(400) == 1_000  # set back by 600
    assert time.read(600) == 1_100
    assert time.read(1_600) == 1_600  # they have met
    assert time.read(1_700) == 1_700


def test_every_stage_is_reached_and_left() -> None:
    begins = {begin for begin, _, _ in lifecycle.LIFE}
    ends = {end for _, _, end in lifecycle.LIFE}
    assert begins - ends == {"new"}
    assert ends - begins == lifecycle.ENDS
    assert len({(begin, step) for begin, step, _ in lifecycle.LIFE}) == len(lifecycle.LIFE)
    with pytest.raises(KeyError):
        lifecycle.follow("done", "claim")
    assert "[*] --> scheduled: send" in lifecycle.diagram()


def test_a_manual_clock_moves_when_told_and_tells() -> None:
    told: list[int] = []
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    clock.on_jump(lambda: told.append(clock.now_ms))
    clock.advance(1.5)
    clock.advance(timedelta(seconds=-1))
    assert clock.now() == datetime(2026, 3, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    assert told == [1_772_323_201_500, 1_772_323_200_500]
    with pytest.raises(ValueError, match="naive"):
        ManualClock(datetime(2026, 3, 1))

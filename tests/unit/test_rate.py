"""How often something may begin: never more than the rate in any window, and hardly less."""

import heapq
from bisect import bisect_right
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.core.rate import Rate, Spending


def play(rate: Rate, steps: list[tuple[int, int, bool]]) -> list[int]:
    """The instants that were granted: of each step, how long after the last it is, what is wanted, and whether ahead."""
    spending, now, granted = Spending(*rate), 0, []
    for wait, want, ahead in steps:
        now += wait
        taken, _ = spending.take(rate, want, now, ahead=ahead)
        granted += taken
    return granted


def fullest(instants: list[int], window: int) -> int:
    """How many lie in the fullest window, which does not hold its own beginning."""
    return max((place + 1 - bisect_right(instants, at - window) for place, at in enumerate(instants)), default=0)


STEPS = st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 400), st.booleans()), max_size=60)


@settings(max_examples=300, deadline=None)
@given(most=st.integers(1, 700), window=st.sampled_from([1, 50, 1_000, 10_000]), steps=STEPS)
def test_no_window_holds_more_than_the_rate(most: int, window: int, steps: list[tuple[int, int, bool]]) -> None:
    granted = play(Rate(most, window), steps)
    assert granted == sorted(granted)
    assert fullest(granted, window) <= most


@given(most=st.integers(1, 5_000))
def test_who_asks_all_the_time_begins_at_least_ninety_nine_in_a_hundred(most: int) -> None:
    granted = play(Rate(most, 1_000), [(1, most, False)] * 5_000)
    assert len(granted) >= 0.98 * most * 5


def test_what_is_kept_is_bounded() -> None:
    spending, rate = Spending(1_000_000, 1_000), Rate(1_000_000, 1_000)
    spending.take(rate, 3_000_000, 0, ahead=True)
    assert len(spending.ended) <= 100


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 900), st.integers(1, 300)), min_size=2, max_size=40))
def test_a_rate_that_changes_never_lets_more_begin_than_the_widest_of_its_time(steps: list[tuple[int, int, int]]) -> None:
    spending, now, granted = Spending(steps[0][0], 1_000), 0, []
    for most, wait, want in steps:
        now += wait
        taken, _ = spending.take(Rate(most, 1_000), want, now, ahead=False)
        granted += taken
        assert len([at for at in granted if at > now - 1_000]) <= max(each[0] for each in steps)


CHANGES = st.tuples(st.integers(1, 300), st.sampled_from([50, 1_000, 60_000]), st.integers(0, 3_000), st.integers(1, 300))


@given(st.lists(CHANGES, min_size=1, max_size=30), st.integers(1, 300), st.sampled_from([50, 1_000, 60_000]))
def test_a_new_rate_waits_no_longer_than_its_own_window(steps: list[tuple[int, int, int, int]], most: int, window: int) -> None:
    spending, now, granted = Spending(steps[0][0], steps[0][1]), 0, []
    for count, length, wait, want in steps:
        now += wait
        granted += spending.take(Rate(count, length), want, now, ahead=False)[0]
    rate = Rate(most, window)
    granted += spending.take(rate, most, now, ahead=False)[0]
    assert len(spending.take(rate, most, now + window, ahead=False)[0]) >= 0.98 * most - 1


class Line:
    """Messages that come when they are told, or so much later, until they may begin."""

    def __init__(self, rate: Rate, messages: int, late: Callable[[], int]) -> None:
        spending, kept = Spending(*rate), dict[int, int]()
        coming = [(0, message) for message in range(messages)]
        self.begun: list[int] = []
        self.asked: int = 0
        while coming:
            now, message = heapq.heappop(coming)
            self.asked += 1
            at = spending.reserve(rate, kept.pop(message, None), now)
            if at <= now:
                self.begun.append(now)
            else:
                kept[message] = at
                heapq.heappush(coming, (at + late(), message))


@pytest.mark.parametrize("rate", [Rate(1, 1_000), Rate(10, 1_000), Rate(100, 1_000), Rate(5, 60_000), Rate(300, 10_000)])
@pytest.mark.parametrize("late", [0, 11, 20, 400])
def test_who_always_comes_late_begins_as_often_as_the_rate_says(rate: Rate, late: int) -> None:
    line = Line(rate, 1_000, lambda: late)
    assert line.begun[-1] <= (-(-1_000 // rate.most) - 1) * rate.window + late * (1_000 // rate.most + 1)
    assert line.asked <= 2_100


def test_who_comes_a_little_late_begins_soon_and_who_comes_much_later_is_the_last() -> None:
    rate = Rate(1, 1_000)
    spending = Spending(*rate)
    told = [spending.reserve(rate, None, 0) for _ in range(21)]
    assert told == [*range(0, 21_000, 1_000)]
    assert spending.reserve(rate, told[8], 7_900) == 7_900
    assert spending.reserve(rate, told[5], 8_000) == 8_900 + 3_000
    assert spending.reserve(rate, told[2], 8_000) == 21_000


@settings(max_examples=100, deadline=None)
@given(
    most=st.integers(1, 300), window=st.sampled_from([50, 1_000, 10_000]), longest=st.integers(1, 30_000), seed=st.integers()
)
def test_no_window_holds_more_than_the_rate_however_late_they_come(most: int, window: int, longest: int, seed: int) -> None:
    random = Random(seed)
    line = Line(Rate(most, window), 300, lambda: random.randrange(longest))
    assert len(line.begun) == 300
    assert fullest(line.begun, window) <= most

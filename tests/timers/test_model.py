"""The wheel against a sorted list: whatever is scheduled, cancelled and let go by, the same fires in the same order."""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bide.timers import Timer, TimerWheel
from bide.timers.levels import Levels

LOCK = threading.RLock()
DELAYS = st.one_of(st.integers(0, 40), st.integers(0, 5_000), st.integers(0, 36_525 * 86_400_000))  # milliseconds
STEPS = st.one_of(st.integers(0, 40), st.integers(0, 5_000), st.integers(0, 10**9))


class Planned(NamedTuple):
    tick: int
    number: int
    timer: Timer


class WheelMachine(RuleBasedStateMachine):
    @initialize(tick=st.sampled_from([1, 3, 10, 1_000]), slots=st.sampled_from([2, 4, 512]))
    def begin(self, tick: int, slots: int) -> None:
        self.tick = tick
        self.wheel = TimerWheel(f"{tick}ms", slots)
        self.now = 0  # milliseconds
        self.planned: list[Planned] = []
        self.scheduled = 0
        self.fired: list[int] = []

    @rule(delay=DELAYS, times=st.integers(1, 3))
    def schedule(self, delay: int, times: int) -> None:
        for _ in range(times):
            timer = self.wheel.schedule(f"{delay}ms", self.fired.append, self.scheduled)
            self.planned.append(Planned(-(-(self.now + delay) // self.tick), self.scheduled, timer))
            self.scheduled += 1

    @precondition(lambda self: self.planned)
    @rule(which=st.integers(0, 1_000))
    def cancel(self, which: int) -> None:
        gone = self.planned.pop(which % len(self.planned))
        assert gone.timer.cancel() is True
        assert gone.timer.cancel() is False

    @rule(step=STEPS)
    def advance(self, step: int) -> None:
        self.move_to(self.now + step)

    @precondition(lambda self: self.planned)
    @rule(which=st.integers(0, 1_000), off=st.sampled_from([-1, 0]))
    def advance_to_the_edge_of_a_timer(self, which: int, off: int) -> None:
        self.move_to(max(self.now, self.planned[which % len(self.planned)].tick * self.tick + off))

    def move_to(self, now: int) -> None:
        self.now = now
        due = sorted(each[:2] for each in self.planned if each.tick * self.tick <= now)
        self.planned = [each for each in self.planned if each.tick * self.tick > now]
        self.fired.clear()
        assert self.wheel.advance(now / 1_000) == len(due)
        assert self.fired == [number for _, number in due]

    @invariant()
    def sleeps_no_longer_than_to_the_first_timer(self) -> None:
        present = self.now // self.tick
        first = min((each.tick for each in self.planned if each.tick > present), default=None)
        turn = self.wheel._levels.next_turn(present)
        assert first is None or turn <= first

    def teardown(self) -> None:
        if hasattr(self, "wheel"):
            assert [timer.args[0] for timer in self.wheel.close()] == [each.number for each in sorted(self.planned)]


WheelMachine.TestCase.settings = settings(stateful_step_count=40, deadline=None)
TestTheWheelDoesWhatASortedListWould = WheelMachine.TestCase


@given(
    st.sampled_from([0.001, 0.01, 1]),
    st.sampled_from([2, 512]),
    st.lists(st.tuples(st.integers(0, 10**11), st.integers(0, 10**10)), min_size=1, max_size=20),
)
def test_no_timer_fires_early_to_the_nanosecond(tick: float, slots: int, plan: Sequence[tuple[int, int]]) -> None:
    wheel, now = TimerWheel(tick, slots), 0
    early: list[int] = []
    fired: list[int] = []

    def fire(due: int) -> None:
        fired.append(due)
        if now < due:
            early.append(due)

    for delay, step in plan:
        wheel.schedule(delay / 1e9, fire, now + delay)
        now += step
        wheel.advance(now / 1e9)
    assert early == []
    now = 10**13
    assert wheel.advance(now / 1e9) + len(fired) >= len(plan)
    assert len(fired) == len(plan)


@given(
    st.sampled_from([2, 4, 64]),
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 60), st.booleans()), min_size=1, max_size=300),
)
def test_a_thread_that_turns_in_small_steps_and_sleeps_between_is_on_time_and_in_order(
    slots: int, plan: Sequence[tuple[int, int, bool]]
) -> None:
    """As the thread does it: between two turns time goes on without the wheel, and timers come and go."""
    levels, now, asleep = Levels(slots, 1), 0, 0
    planned: list[Timer] = []
    for delay, step, cancelled in plan:
        timer = Timer(LOCK, now + delay, print, ())
        planned.append(timer)
        if levels.add(timer, now):
            asleep = now
        if cancelled:
            planned.remove(timer)
            assert timer.cancel()
        now += step
        if now < asleep:
            continue  # asleep, with nothing due
        levels.turn(now)
        asleep = levels.next_turn(now)
        turns = 0
        while asleep <= now:
            turns += 1
            levels.turn(now)
            asleep = levels.next_turn(now)
            assert turns < 10_000
        due = [each for each in planned if each._due <= now]
        planned = [each for each in planned if each._due > now]
        taken = list(iter(levels.due.take_first, None))
        assert taken == sorted(due, key=lambda timer: timer._due)
    assert levels.take_all() == sorted(planned, key=lambda timer: timer._due)


def added(levels: Levels, due: int, now: int) -> Timer:
    timer = Timer(LOCK, due, print, ())
    levels.add(timer, now)
    return timer


def turned(levels: Levels, now: int) -> list[Timer]:
    while levels.turn(now):
        pass
    return list(iter(levels.due.take_first, None))


def test_what_comes_into_a_slot_that_has_moved_down_early_still_fires_in_order() -> None:
    levels = Levels(512, 1)
    late = added(levels, 700, 0)
    assert turned(levels, 300) == []  # the slot from 512 on moves down, long before its time
    soon, last = added(levels, 600, 300), added(levels, 700, 300)
    assert turned(levels, 1_000) == [soon, late, last]


def test_a_timer_that_comes_before_a_belated_turn_does_not_overtake() -> None:
    levels = Levels(512, 1)
    first = added(levels, 600, 0)
    added(levels, 5_000, 550)  # into a slot that nobody was in
    second = added(levels, 600, 550)
    assert turned(levels, 600) == [first, second]


def test_a_long_sleep_does_not_make_later_timers_take_the_long_way() -> None:
    levels = Levels(512, 1)
    timer = added(levels, 1_000_005, 1_000_000)
    assert levels.next_turn(1_000_000) == 1_000_005
    assert turned(levels, 1_000_005) == [timer]

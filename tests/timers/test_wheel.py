"""The timer wheel: never early, in order, cancelled for good, and nobody waits for a callback that is stuck."""

import gc
import logging
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from bide import BadOption, BadTime, ConfigError, Unavailable
from bide.timers import Timer, TimerWheel, callbacks
from bide.timers.levels import Levels

A_WHILE = 30.0  # seconds after which a test gives up
HUNDRED_YEARS = 36_525 * 86_400


def nothing() -> None: ...


@pytest.fixture
def wheel() -> TimerWheel:
    return TimerWheel()


@pytest.fixture
def running() -> Iterator[TimerWheel]:
    with TimerWheel(tick="1ms") as wheel:
        yield wheel


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds callbacks up; opened at the end of the test, so that none is left behind."""
    event = threading.Event()
    yield event
    event.set()


class InPlace(Executor):
    """Runs what it is given at once."""

    def __init__(self) -> None:
        self.given: list[Callable[..., Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        self.given.append(fn)
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **named))
        except Exception as error:
            future.set_exception(error)
        return future


# Turned by hand.


def test_a_timer_fires_at_its_time_and_not_before(wheel: TimerWheel) -> None:
    fired: list[str] = []
    wheel.schedule(1.1, fired.append, "a")
    assert wheel.advance(1.099999) == 0
    assert wheel.advance(1.1) == 1
    assert fired == ["a"]
    assert wheel.advance(1e9) == 0


def test_a_delay_is_rounded_up_to_a_tick(wheel: TimerWheel) -> None:
    wheel.advance(0.004)
    wheel.schedule(0.001, nothing)
    assert wheel.advance(0.009999) == 0
    assert wheel.advance(0.010) == 1


@pytest.mark.parametrize("delay", [90, 90.0, "1m30s", timedelta(seconds=90)])
def test_a_delay_may_be_written_in_many_ways(wheel: TimerWheel, delay: Any) -> None:
    wheel.schedule(delay, nothing)
    assert wheel.advance(89.99) == 0
    assert wheel.advance(90) == 1


def test_what_is_due_fires_by_tick_and_first_come_first_within_a_tick(wheel: TimerWheel) -> None:
    fired: list[int] = []
    for number, delay in enumerate([30.0, 0.5, 30.0, 0, 0.5, 3600]):
        wheel.schedule(delay, fired.append, number)
    assert wheel.advance(3600) == 6
    assert fired == [3, 1, 4, 0, 2, 5]


def test_timers_of_one_tick_keep_their_order_through_all_levels() -> None:
    wheel, fired = TimerWheel(tick="1ms", slots=2), list[int]()
    for number in range(64):
        wheel.advance(number / 1000)
        wheel.schedule((64 - number) / 1000, fired.append, number)
    wheel.advance(0.064)
    assert fired == list(range(64))


def test_a_hundred_years_fit_whatever_the_slots() -> None:
    for slots in (2, 512, 65_536):
        wheel, fired = TimerWheel(tick="1ms", slots=slots), list[str]()
        wheel.schedule("36525d", fired.append, "late")
        wheel.schedule(1, fired.append, "soon")
        assert wheel.advance(HUNDRED_YEARS - 0.001) == 1
        assert wheel.advance(HUNDRED_YEARS) == 1
        assert fired == ["soon", "late"]


def test_cancel_is_true_once_and_then_it_never_runs(wheel: TimerWheel) -> None:
    timer = wheel.schedule(1, nothing)
    assert timer.cancel() is True
    assert timer.cancel() is False
    assert wheel.advance(10) == 0


def test_what_has_fired_or_is_firing_can_not_be_cancelled(wheel: TimerWheel) -> None:
    answers: list[bool] = []
    timers: list[Timer] = []
    timers.append(wheel.schedule(1, lambda: answers.append(timers[0].cancel())))
    wheel.advance(1)
    assert answers == [False]
    assert timers[0].cancel() is False


def test_a_callback_can_cancel_one_that_is_due_in_the_same_tick(wheel: TimerWheel) -> None:
    answers: list[bool] = []
    timers: list[Timer] = []
    wheel.schedule(1, lambda: answers.append(timers[0].cancel()))
    timers.append(wheel.schedule(1, nothing))
    assert wheel.advance(1) == 1
    assert answers == [True]


def test_what_a_callback_schedules_fires_in_a_later_call(wheel: TimerWheel) -> None:
    again: list[int] = []

    def once_more() -> None:
        again.append(len(again))
        wheel.schedule(0, once_more)

    wheel.schedule(0, once_more)
    assert [wheel.advance(0), wheel.advance(0), wheel.advance(5)] == [1, 1, 1]
    assert again == [0, 1, 2]


def test_an_exception_in_a_callback_is_logged_and_goes_no_further(wheel: TimerWheel, caplog: pytest.LogCaptureFixture) -> None:
    fired: list[str] = []
    wheel.schedule(1, int, "no number")
    wheel.schedule(1, fired.append, "next")
    assert wheel.advance(1) == 2
    assert fired == ["next"]
    [record] = caplog.records
    assert (record.name, record.levelno) == ("bide.timers", logging.ERROR)
    assert "no number" in (record.exc_text or "")


def test_an_interrupt_leaves_the_wheel_and_loses_nothing(wheel: TimerWheel) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    fired: list[str] = []
    wheel.schedule(1, interrupt)
    wheel.schedule(1, fired.append, "next")
    with pytest.raises(KeyboardInterrupt):
        wheel.advance(1)
    assert wheel.advance(1) == 1
    assert fired == ["next"]


class Thing:
    def touch(self) -> None: ...


@pytest.mark.parametrize("end", ["cancel", "fire"])
def test_a_timer_that_has_ended_keeps_nothing_alive(wheel: TimerWheel, end: str) -> None:
    thing = Thing()
    seen = weakref.ref(thing)
    timer = wheel.schedule(1, thing.touch)
    del thing
    gc.disable()  # it has to be free without the collector
    try:
        assert seen() is not None
        assert timer.cancel() if end == "cancel" else wheel.advance(1)
        assert seen() is None
    finally:
        gc.enable()
    assert (timer.fn, timer.args) == (None, ())
    assert repr(timer) == "<Timer, ended>"


def test_cancelled_timers_leave_memory_at_once(wheel: TimerWheel) -> None:
    def living() -> int:
        return sum(type(each) is Timer for each in gc.get_objects())

    gc.collect()
    before = living()
    timers = [wheel.schedule(1 + number % 977, nothing) for number in range(20_000)]
    for number, timer in enumerate(timers):
        assert number % 20 == 0 or timer.cancel()
    gc.disable()
    try:
        del timers, timer
        assert living() - before == 1_000
    finally:
        gc.enable()
    assert wheel.advance(1_000) == 1_000
    assert living() == before


def test_a_destructor_may_come_back_to_the_wheel(wheel: TimerWheel) -> None:
    class Watched(Thing):
        def __del__(self) -> None:
            wheel.schedule(1, nothing)
            other.cancel()

    other = wheel.schedule(1, nothing)
    timer = wheel.schedule(1, Watched().touch)
    assert timer.cancel()
    assert other.cancel() is False
    assert wheel.advance(1) == 1


# Bad input and the end.


@pytest.mark.parametrize("delay", [-1, -0.001, float("nan"), float("inf"), "soon", None, True, HUNDRED_YEARS + 1, 10**30])
def test_a_bad_delay_is_refused(wheel: TimerWheel, delay: Any) -> None:
    with pytest.raises(BadTime, match="delay is"):
        wheel.schedule(delay, nothing)


def test_what_can_not_be_called_is_refused(wheel: TimerWheel) -> None:
    with pytest.raises(BadOption, match="Give a function"):
        wheel.schedule(1, "nothing")  # type: ignore[arg-type]


@pytest.mark.parametrize("tick", [0, -1, "never", float("nan")])
def test_a_bad_tick_is_refused(tick: Any) -> None:
    with pytest.raises(BadTime, match="tick is"):
        TimerWheel(tick=tick)


@pytest.mark.parametrize("slots", [0, 1, 3, 500, -512, 131_072, True, 512.0, "512"])
def test_slots_that_are_no_power_of_two_are_refused(slots: Any) -> None:
    with pytest.raises(BadOption, match="Give a power of two"):
        TimerWheel(slots=slots)


def test_an_executor_has_to_be_one() -> None:
    with pytest.raises(BadOption, match=r"concurrent\.futures"):
        TimerWheel(executor=print)  # type: ignore[arg-type]


@pytest.mark.parametrize("now", [float("nan"), float("inf"), "1", None, True, 0.5])
def test_advance_refuses_what_is_no_later_time(wheel: TimerWheel, now: Any) -> None:
    wheel.advance(1)
    with pytest.raises(BadTime, match="now is"):
        wheel.advance(now)


def test_close_gives_what_had_not_fired_in_order(wheel: TimerWheel) -> None:
    for delay in (3600, 1, 30, 1e6, 1):
        wheel.schedule(delay, print, delay)
    cancelled = wheel.schedule(5, nothing)
    cancelled.cancel()
    wheel.advance(2)
    left = wheel.close()
    assert [(timer.fn, timer.args) for timer in left] == [(print, (30,)), (print, (3600,)), (print, (1e6,))]
    assert not any(timer.cancel() for timer in left)
    assert wheel.close() == []


def test_a_callback_that_closes_the_wheel_gets_what_is_due_too(wheel: TimerWheel) -> None:
    left: list[Timer] = []
    wheel.schedule(1, lambda: left.extend(wheel.close()))
    wheel.schedule(1, print, "same tick")
    wheel.schedule(2, print, "later")
    assert wheel.advance(1) == 1
    assert [timer.args for timer in left] == [("same tick",), ("later",)]


def test_a_closed_wheel_refuses_everything(wheel: TimerWheel) -> None:
    wheel.close()
    for use in (lambda: wheel.schedule(1, nothing), lambda: wheel.advance(1), wheel.start):
        with pytest.raises(Unavailable, match="The wheel is closed"):
            use()


def test_a_started_wheel_is_not_advanced_by_hand(running: TimerWheel) -> None:
    running.start()  # once more changes nothing
    with pytest.raises(ConfigError, match="not both"):
        running.advance(1)


# Turned by its thread.


def test_a_started_wheel_fires_by_itself(running: TimerWheel) -> None:
    fired = threading.Event()
    running.schedule(0.002, fired.set)
    assert fired.wait(A_WHILE)


def test_time_goes_on_from_where_advance_left_it() -> None:
    wheel, fired = TimerWheel(tick="1ms"), threading.Event()
    wheel.advance(1_000)
    wheel.schedule(0.001, fired.set)
    with wheel:
        assert fired.wait(A_WHILE)


def test_an_earlier_timer_wakes_the_thread(running: TimerWheel) -> None:
    fired = threading.Event()
    running.schedule("1h", nothing)
    for delay in (60, 30, 0.001):
        running.schedule(delay, fired.set)
    assert fired.wait(A_WHILE)


def test_the_thread_sleeps_while_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    turn = Levels.turn

    def counted(self: Levels, now: int) -> bool:
        turns.append(now)
        return turn(self, now)

    monkeypatch.setattr(Levels, "turn", counted)
    with TimerWheel(tick="1ms") as wheel:
        for delay in range(1, 5_000):
            wheel.schedule(delay, nothing).cancel()
        for _ in range(3):
            fired = threading.Event()
            wheel.schedule(0.050, fired.set)  # 50 ticks
            assert fired.wait(A_WHILE)
    assert len(turns) < 60


def stick(stuck: threading.Event | threading.Semaphore, gate: threading.Event) -> None:
    stuck.release() if isinstance(stuck, threading.Semaphore) else stuck.set()
    gate.wait(A_WHILE)


def test_a_stuck_callback_delays_no_other(running: TimerWheel, gate: threading.Event) -> None:
    stuck = threading.Event()
    running.schedule(0, stick, stuck, gate)
    assert stuck.wait(A_WHILE)
    for _ in range(10):
        fired = threading.Event()
        running.schedule(0, fired.set)
        assert fired.wait(A_WHILE)


def test_more_threads_come_while_callbacks_are_stuck(running: TimerWheel, gate: threading.Event) -> None:
    together = threading.Barrier(41)

    def meet() -> None:
        together.wait(A_WHILE)
        gate.wait(A_WHILE)

    for _ in range(40):
        running.schedule(0.001, meet)
    together.wait(A_WHILE)
    fired = threading.Event()
    running.schedule(0, fired.set)
    assert fired.wait(A_WHILE)


def test_no_more_threads_come_than_the_limit_and_the_rest_waits(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    monkeypatch.setattr(callbacks, "MOST_THREADS", 4)
    running = threading.Semaphore(0)
    with TimerWheel(tick="1ms") as wheel:
        for _ in range(4):
            wheel.schedule(0, stick, running, gate)
        for _ in range(4):
            assert running.acquire(timeout=A_WHILE)
        last = threading.Event()
        waiting = wheel.schedule(0, nothing)
        wheel.schedule(0, last.set)
        assert waiting.cancel() is True  # due, but not begun
        assert not last.is_set()
        gate.set()
        assert last.wait(A_WHILE)


def test_threads_with_nothing_to_do_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "LINGER", 0.001)
    workers: queue.Queue[threading.Thread] = queue.Queue()
    with TimerWheel(tick="1ms") as wheel:
        for _ in range(3):
            wheel.schedule(0, lambda: workers.put(threading.current_thread()))
            worker = workers.get(timeout=A_WHILE)
            worker.join(A_WHILE)
            assert not worker.is_alive()


def test_a_callback_that_calls_exit_ends_nothing_but_itself(running: TimerWheel) -> None:
    fired = threading.Event()
    for _ in range(5):
        running.schedule(0, sys.exit)
    running.schedule(0.001, fired.set)
    assert fired.wait(A_WHILE)


def test_fifty_thousand_in_one_tick_can_be_cancelled_while_they_fire(running: TimerWheel) -> None:
    fired: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go_on.wait(A_WHILE)

    blockers = [running.schedule(0.3, first) for _ in range(300)]  # more than there can be threads
    timers = [running.schedule(0.3, fired.append, number) for number in range(50_000)]
    assert begun.wait(A_WHILE)
    cancelled = {number for number in range(0, 50_000, 2) if timers[number].cancel()}
    go_on.set()
    for blocker in blockers:
        blocker.cancel()
    ended = threading.Event()
    running.schedule(0, ended.set)
    assert ended.wait(A_WHILE)
    left = running.close()
    assert cancelled
    assert cancelled.isdisjoint(fired)
    assert len(cancelled) + len(set(fired)) + len(left) >= 50_000 - callbacks.MOST_THREADS
    assert len(set(fired)) == len(fired)


def test_many_threads_may_schedule_and_cancel(running: TimerWheel) -> None:
    fired: list[tuple[int, int]] = []
    kept: list[tuple[int, int]] = []

    def use(mine: int) -> None:
        for number in range(2_000):
            timer = running.schedule(number % 7 / 1000, fired.append, (mine, number))
            if number % 3 or not timer.cancel():
                kept.append((mine, number))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = threading.Event()
    running.schedule(0.008, ended.set)
    assert ended.wait(A_WHILE)
    left = running.close()
    while len(fired) + len(left) < len(kept):  # a callback that was taken may still be about to run
        threading.Event().wait(0.001)
    assert sorted(fired + [timer.args[0] for timer in left]) == sorted(kept)


def test_close_joins_the_thread_and_a_callback_may_close() -> None:
    wheel, closed = TimerWheel(tick="1ms"), threading.Event()
    wheel.start()

    def close() -> None:
        wheel.close()
        closed.set()

    wheel.schedule(0, close)
    assert closed.wait(A_WHILE)
    wheel.close()
    assert wheel._thread is not None
    assert not wheel._thread.is_alive()


def test_the_interpreter_ends_while_callbacks_are_stuck() -> None:
    code = """
import threading, time
from bide.timers import TimerWheel
stuck = threading.Event()
wheel = TimerWheel(tick="1ms")
wheel.start()
wheel.schedule(0, lambda: stuck.set() or time.sleep(3600))
wheel.schedule(3600, print)
stuck.wait()
print("ended")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("ended\n", "")


# With an executor.


def test_with_an_executor_advance_hands_over_instead_of_running() -> None:
    executor = InPlace()
    wheel, fired = TimerWheel(executor=executor), list[int]()
    for number in range(3):
        wheel.schedule(1, fired.append, number)
    assert wheel.advance(1) == 3
    assert len(executor.given) == 3
    assert fired == [0, 1, 2]


def test_a_started_wheel_uses_the_executor() -> None:
    fired = threading.Event()
    with ThreadPoolExecutor(1, "mine") as executor, TimerWheel(tick="1ms", executor=executor) as wheel:
        names: list[str] = []
        wheel.schedule(0, lambda: names.append(threading.current_thread().name))
        wheel.schedule(0.001, fired.set)
        assert fired.wait(A_WHILE)
    assert names[0].startswith("mine")


def test_an_exception_in_an_executor_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    wheel = TimerWheel(executor=InPlace())
    wheel.schedule(1, int, "no number")
    wheel.advance(1)
    [record] = caplog.records
    assert record.name == "bide.timers"
    assert "no number" in (record.exc_text or "")


def test_an_executor_that_has_been_shut_down_is_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    wheel = TimerWheel(executor=executor)
    wheel.schedule(1, nothing)
    assert wheel.advance(1) == 1
    assert "did not take" in caplog.text


@pytest.mark.parametrize("by_hand", [True, False])
def test_an_executor_is_not_flooded(monkeypatch: pytest.MonkeyPatch, by_hand: bool) -> None:
    monkeypatch.setattr(callbacks, "MOST_SUBMITTED", 10)
    fired: list[int] = []
    most: list[int] = []
    ended = threading.Event()
    with ThreadPoolExecutor(2) as executor:
        wheel = TimerWheel(tick="1ms", executor=executor)

        def fire(number: int) -> None:
            most.append(executor._work_queue.qsize())
            fired.append(number)
            if len(fired) == 1_000:
                ended.set()

        for number in range(1_000):
            wheel.schedule(0.001, fire, number)
        if by_hand:
            assert wheel.advance(1) == 1_000
        else:
            wheel.start()
        assert ended.wait(A_WHILE)
        wheel.close()
    assert max(most) <= 10
    assert sorted(fired) == list(range(1_000))


def test_a_wheel_that_could_not_be_started_can_be_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    fired = threading.Event()
    wheel = TimerWheel(tick=0.001)
    with monkeypatch.context() as patched:

        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            wheel.start()
    wheel.start()
    wheel.schedule(0.001, fired.set)
    assert fired.wait(10)
    wheel.close()

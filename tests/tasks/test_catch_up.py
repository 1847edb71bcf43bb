"""What becomes of overdue messages, in time travel: all are called, the newest only, or all at a rate."""

from collections.abc import Callable
from typing import Any

import pytest

from bide import BadOption, ManualClock, Outgoing, Retry, Snooze, current

HOUR = 3_600


@pytest.fixture(params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, make_queue: Any, clock: ManualClock, tmp_path: Any) -> Any:
    return make_queue("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db", clock=clock)


def outcomes(handled: Any) -> list[str]:
    return [each.outcome for each in handled]


@pytest.fixture
def places(queue: Any, do: Any) -> Callable[[], None]:
    """Sends where three cars were, minute by minute, and lets an hour pass."""

    def send() -> None:
        for minute in range(4):
            for car in "abc":
                if (minute, car) != (3, "c"):
                    do(queue.send("car.at", {"car": car, "place": minute}, delay=60 * minute))
        queue.session.setup.clock.advance(HOUR)

    return send


def test_all_are_called_unless_the_task_says_otherwise(queue: Any, do: Any, places: Any) -> None:
    called: list[tuple[str, int]] = []

    @queue.task("car.at", catch_up="all")
    def car_at(car: str, place: int) -> None:
        called.append((car, place))

    places()
    do(queue.testing.advance(0))
    assert len(called) == 11


def test_the_newest_of_each_value_is_called(queue: Any, do: Any, places: Any, caplog: pytest.LogCaptureFixture) -> None:
    called: list[tuple[str, int]] = []

    @queue.task("car.at", catch_up="latest", per="{car}")
    def car_at(car: str, place: int = 0) -> None:
        called.append((car, place))

    places()
    handled = do(queue.testing.advance(0))
    assert called == [("c", 2), ("a", 3), ("b", 3)]
    assert outcomes(handled).count("left out") == 8
    assert "leaves out 1 overdue message; 1 so far" in caplog.text
    assert do(queue.stats("car.at")).pending == 0


def test_the_newest_of_the_topic_is_called_without_per(queue: Any, do: Any, places: Any) -> None:
    called: list[tuple[str, int]] = []

    @queue.task("car.at", catch_up="latest")
    def car_at(car: str, place: int) -> None:
        called.append((car, place))

    places()
    do(queue.testing.advance(0))
    assert called == [("b", 3)]


def test_a_message_that_is_not_late_is_always_called(queue: Any, do: Any, clock: ManualClock) -> None:
    called: list[int] = []

    @queue.task("t", catch_up="latest")
    def t(n: int) -> None:
        called.append(n)

    do(queue.send_many("t", [{"n": 0}, {"n": 1}]))
    do(t.after(30).send(n=2))
    clock.advance(60)
    do(queue.testing.advance(0))
    assert called == [0, 1, 2]
    # And one that is late is left out for a newer one that is not
    do(t.send(n=3))
    do(t.after(61).send(n=4))
    clock.advance(61)
    do(queue.testing.advance(0))
    assert called == [0, 1, 2, 4]


def test_what_is_not_due_yet_or_was_tried_before_leaves_nothing_out(queue: Any, do: Any, clock: ManualClock) -> None:
    called: list[tuple[int, int]] = []

    @queue.task("t", catch_up="latest", max_attempts=2)
    def t(n: int) -> None:
        called.append((n, current().attempt))
        if n == 0 and current().attempt == 1:
            raise Retry("1h")

    do(t.send(n=0))
    do(queue.testing.advance(0))  # fails, and is tried again in an hour
    do(t.after(10).send(n=1))
    do(t.after("2h").send(n=2))
    clock.advance(HOUR + 120)
    do(queue.testing.advance(0))
    assert sorted(called) == [(0, 1), (0, 2), (1, 1)]


def test_a_retry_that_is_late_is_called_although_there_are_newer_ones(queue: Any, do: Any, clock: ManualClock) -> None:
    called: list[tuple[int, int]] = []

    @queue.task("t", catch_up="latest", max_attempts=2)
    def t(n: int) -> None:
        called.append((n, current().attempt))
        if n == 0 and current().attempt == 1:
            raise Retry("1h")

    do(t.send(n=0))
    do(queue.testing.advance(0))
    do(t.after("90m").send(n=1))
    do(t.after("100m").send(n=2))
    clock.advance(2 * HOUR)
    do(queue.testing.advance(0))
    assert sorted(called) == [(0, 1), (0, 2), (2, 1)]


def test_a_message_that_does_not_fit_is_told_as_always(queue: Any, do: Any, clock: ManualClock) -> None:
    called: list[int] = []

    @queue.task("t", catch_up="latest", per="{n}")
    def t(n: int) -> None:
        called.append(n)

    do(queue.send_many("t", [{"n": "text"}, {"n": 1}, [1]]))
    clock.advance(HOUR)
    assert sorted(outcomes(do(queue.testing.advance(0, raise_errors=False)))) == ["dead", "dead", "done"]


def test_overdue_ones_get_new_times_at_a_rate_and_fresh_ones_go_on(queue: Any, do: Any, clock: ManualClock) -> None:
    called: list[tuple[int, float]] = []
    start = clock.now_ms

    @queue.task("t", catch_up="2/10s")
    def t(n: int) -> None:
        called.append((n, (clock.now_ms - start) / 1000))

    do(t.send_many({"n": n} for n in range(6)))
    clock.advance(HOUR)
    do(t.after(5).send(n=6))
    handled = do(queue.testing.advance("1m"))
    assert called == [(0, HOUR), (1, HOUR), (6, HOUR + 5), (2, HOUR + 10), (3, HOUR + 10), (4, HOUR + 20), (5, HOUR + 20)]
    assert outcomes(handled).count("waits") == 4


def test_what_would_expire_before_its_turn_is_left_out_and_hardly_lengthens_the_line(
    queue: Any, do: Any, clock: ManualClock
) -> None:
    called: list[tuple[str, float]] = []
    start = clock.now_ms

    @queue.task("t", catch_up="1/10s")
    def t(n: str) -> None:
        called.append((n, (clock.now_ms - start) / 1000))

    life = HOUR + 15
    do(queue.send_many("t", [Outgoing({"n": f"short {n}"}, expires_in=life) for n in range(5)]))
    do(queue.send_many("t", [{"n": "long"}]))
    clock.advance(HOUR)
    handled = do(queue.testing.advance("1h"))
    assert called == [("short 0", HOUR), ("short 1", HOUR + 10), ("long", HOUR + 30)]
    assert outcomes(handled).count("left out") == 3


@pytest.mark.parametrize("options", [{"lock": "{n}"}, {"concurrency": 1, "per": "{n}"}])
def test_a_rate_and_a_line_that_calls_are_not_for_one_task(queue: Any, options: Any) -> None:
    with pytest.raises(BadOption, match="would be put off again"):
        queue.task("t", catch_up="1/s", **options)(lambda n: None)
    queue.task("t", catch_up="latest", **options)(lambda n: None)


def test_what_catch_up_is_not_is_told(queue: Any) -> None:
    with pytest.raises(BadOption, match=r"catch_up is 'newest'\. Give 'all', 'latest', or a rate"):
        queue.task("t", catch_up="newest")(lambda: None)
    with pytest.raises(BadOption, match="per= says of what"):
        queue.task("t", catch_up="1/s", per="{n}")(lambda n: None)


def test_late_instants_of_a_schedule_are_for_its_missed(queue: Any, do: Any, clock: ManualClock) -> None:
    called: list[float] = []

    @queue.every("10m", missed="all", topic="t", catch_up="latest")
    def t() -> None:
        called.append(clock.now_ms)

    do(queue.testing.advance(0))
    clock.advance(HOUR)
    do(queue.testing.advance("1s"))
    assert len(called) >= 6


def test_the_time_until_its_turn_does_not_count_for_max_wait(queue: Any, do: Any, clock: ManualClock) -> None:
    @queue.task("t", catch_up="1/10m")
    def t(n: int) -> None:
        raise Snooze("1m", max_wait="5m")

    do(t.send_many({"n": n} for n in range(2)))
    clock.advance(HOUR)
    assert outcomes(do(queue.testing.advance(0, raise_errors=False))) == ["snoozed", "waits"]
    assert outcomes(do(queue.testing.advance("10m", raise_errors=False)))[-1] == "snoozed"  # the other one, in its first call
    assert do(queue.stats("t")).scheduled == 1


def test_an_attempt_before_the_outage_counts_for_max_wait(queue: Any, do: Any, clock: ManualClock) -> None:
    @queue.task("t", catch_up="1/10m")
    def t(n: int) -> None:
        raise Snooze("1m", max_wait="1h")

    do(t.send_many({"n": n} for n in range(2)))
    assert outcomes(do(queue.testing.advance(0, raise_errors=False))) == ["snoozed"] * 2
    clock.advance(HOUR)
    handled = do(queue.testing.advance("10m", raise_errors=False))
    assert outcomes(handled) == ["dead", "waits", "dead"]

"""Schedules in virtual time: what is planned, what late instants become, and what operators change; sync and async."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bide import BadOption, BadTime, ConfigError, ManualClock, Queue, Retry, current

Do = Callable[[Any], Any]
START = datetime(2026, 1, 1, tzinfo=UTC)


def at(text: str) -> list[datetime]:
    """Instants of the first day: "01:00 02:00"."""
    return [datetime.fromisoformat(f"2026-01-01 {each}").replace(tzinfo=UTC) for each in text.split()]


class Seen(list[datetime]):
    """The planned instants that a handler was called for, since it was last asked."""

    def __call__(self) -> None:
        planned = current().planned_at
        assert planned is not None
        self.append(planned)

    def take(self) -> list[datetime]:
        taken, self[:] = list(self), []
        return taken


@pytest.fixture
def seen() -> Seen:
    return Seen()


def hourly(queue: Any, seen: Seen, **options: Any) -> Any:
    @queue.every("1h", **{"topic": "tick", **options})
    def tick() -> None:
        seen()

    return tick


def test_a_daily_job_runs_on_each_weekday_of_a_year(queue: Any, do: Do, seen: Seen) -> None:
    @queue.every("0 9 * * mon-fri", timezone="Asia/Shanghai")
    def daily() -> None:
        seen()

    handled = do(queue.testing.advance("365d"))
    days = [START + timedelta(days=n, hours=1) for n in range(365)]
    assert seen == [day for day in days if day.weekday() < 5]
    assert [each.outcome for each in handled] == ["done"] * len(seen)


def test_two_schedules_of_one_function_and_a_task_that_has_one(queue: Any, do: Do, seen: Seen) -> None:
    @queue.every("0 3 * * *", name="night")
    @queue.every("0 1 * * *")
    @queue.task("tick", max_attempts=7)
    def tick() -> None:
        seen()
        assert current().max_attempts == 7

    do(queue.testing.advance("4h"))
    assert seen == at("01:00 03:00")
    assert [each.name for each in do(queue.schedules())] == ["night", "tick"]
    do(tick.send())
    with pytest.raises(AssertionError):
        do(queue.testing.advance(0))  # sent by hand, so nothing planned it


def test_an_interval_begins_at_its_start_and_nothing_comes_after_its_end(queue: Any, do: Do, seen: Seen) -> None:
    hourly(queue, seen, start=START + timedelta(hours=5, minutes=10), end=START + timedelta(hours=7, minutes=10))
    do(queue.testing.advance("2d"))
    assert seen == at("05:10 06:10 07:10")
    [info] = do(queue.schedules())
    assert info.next is None


def test_jitter_moves_the_delivery_and_not_the_instant(queue: Any, do: Do, clock: ManualClock) -> None:
    late: list[timedelta] = []

    @queue.every("1h", jitter="10m")
    def tick() -> None:
        planned = current().planned_at
        assert planned.minute == 0
        late.append(clock.now() - planned)

    do(queue.testing.advance("1d"))
    assert len(late) == 23 + (late[-1] == timedelta())
    assert len(set(late)) > 12
    assert all(timedelta() <= each <= timedelta(minutes=10) for each in late)


LATE = {"skip": "", "once": "01:00", "all": "01:00 02:00 03:00"}


@pytest.mark.parametrize("missed", LATE)
def test_when_the_topic_was_paused_late_instants_become_what_missed_says(queue: Any, do: Do, seen: Seen, missed: str) -> None:
    hourly(queue, seen, missed=missed)
    do(queue.testing.advance("10m"))
    do(queue.pause("tick"))
    do(queue.testing.advance("3h"))
    do(queue.resume("tick"))
    do(queue.testing.advance(0))
    assert seen.take() == at(LATE[missed])
    do(queue.testing.advance("2h"))
    assert seen == at("04:00 05:00")


@pytest.mark.parametrize("missed", LATE)
def test_a_clock_that_jumps_ahead_makes_instants_late(queue: Any, do: Do, seen: Seen, clock: ManualClock, missed: str) -> None:
    hourly(queue, seen, missed=missed)
    do(queue.testing.advance("10m"))
    clock.advance(3 * 3600)
    do(queue.testing.advance(0))
    assert seen.take() == at(LATE[missed])


def test_a_clock_that_is_set_back_repeats_nothing(queue: Any, do: Do, seen: Seen, clock: ManualClock) -> None:
    hourly(queue, seen)
    do(queue.testing.advance("2h30m"))
    clock.advance(-2 * 3600)
    do(queue.testing.advance("2h"))
    do(queue.testing.advance("2h"))
    assert seen == at("01:00 02:00 03:00 04:00")


def test_an_instant_that_comes_again_after_the_clock_was_ahead_is_paused_as_any_other(
    queue: Any, do: Do, seen: Seen, clock: ManualClock
) -> None:
    hourly(queue, seen, missed="skip")
    do(queue.testing.advance("10m"))
    clock.advance(86_400)
    do(queue.testing.advance("2h"))
    do(queue.pause_schedule("tick"))
    do(queue.resume_schedule("tick"))
    clock.advance(-86_400)
    do(queue.testing.advance("24h"))
    last = seen.take()[-1]
    do(queue.pause_schedule("tick"))
    do(queue.testing.advance("3h"))
    assert (last, seen) == (START + timedelta(hours=26), [])


@pytest.mark.parametrize("missed", LATE)
def test_what_a_clock_passed_over_that_was_a_year_ahead_comes_in_its_time(
    queue: Any, do: Do, seen: Seen, clock: ManualClock, missed: str
) -> None:
    hourly(queue, seen, missed=missed)
    do(queue.testing.advance("10m"))
    clock.advance(365 * 86_400)
    do(queue.testing.advance("2h"))
    assert seen.take()
    clock.advance(-365 * 86_400)
    do(queue.testing.advance("3h"))
    assert seen == at("03:00 04:00 05:00")


def test_of_two_thousand_late_instants_the_latest_thousand_are_handled(queue: Any, do: Do, seen: Seen) -> None:
    @queue.every("1m", missed="all", topic="tick")
    def tick() -> None:
        seen()

    do(queue.testing.advance(0))
    do(queue.pause("tick"))
    do(queue.testing.advance("2000m"))
    do(queue.resume("tick"))
    do(queue.testing.advance(0))
    assert seen == [START + timedelta(minutes=n) for n in range(1001, 2001)]


def test_an_instant_that_a_handler_cancels_on_the_way_is_planned_again(queue: Any, do: Do, seen: Seen) -> None:
    plain = queue if isinstance(queue, Queue) else queue.sync

    def tick() -> None:
        seen()
        if len(seen) == 2:
            assert plain.purge("tick", state="scheduled") == 1

    queue.every("1h", topic="tick")(tick)
    do(queue.testing.advance("5h"))
    assert seen == at("01:00 02:00 03:00 04:00 05:00")


@pytest.mark.parametrize("how", ["purge", "cancel"])
def test_a_planned_message_that_was_removed_is_planned_again(queue: Any, do: Do, seen: Seen, how: str) -> None:
    tick = hourly(queue, seen)
    do(queue.testing.advance("10m"))
    if how == "purge":
        assert do(queue.purge("tick", state="scheduled")) == 1
    else:
        assert do(tick.cancel(key="every tick"))
    do(queue.testing.advance("2h"))
    assert seen == at("01:00 02:00")


def test_retries_that_last_longer_than_the_interval_hold_no_instant_up(queue: Any, do: Do) -> None:
    calls: list[tuple[datetime, int, str]] = []

    @queue.every("1h", topic="tick", max_attempts=3)
    def tick() -> None:
        calls.append((current().planned_at, current().attempt, current().id))
        if current().planned_at == at("01:00")[0]:
            raise Retry("90m")

    do(queue.testing.advance("5h30m"))
    [one, two, three, four, five] = at("01:00 02:00 03:00 04:00 05:00")
    assert [each[:2] for each in calls] == [(one, 1), (two, 1), (one, 2), (three, 1), (one, 3), (four, 1), (five, 1)]
    assert len({each for _, _, each in calls}) == 5
    assert do(queue.stats("tick")).dead == 1


def test_a_requeued_instant_runs_again_and_plans_nothing(queue: Any, do: Do, seen: Seen) -> None:
    broken = [True]

    @queue.every("1h", topic="tick", max_attempts=1)
    def tick() -> None:
        seen()
        if broken[0]:
            raise ValueError

    do(queue.testing.advance("1h", raise_errors=False))
    broken[0] = False
    assert do(queue.requeue("tick")) == 1
    do(queue.testing.advance("1h"))
    assert seen == at("01:00 01:00 02:00")


def test_a_paused_schedule_plans_nothing_until_it_is_resumed(queue: Any, do: Do, seen: Seen) -> None:
    hourly(queue, seen)
    do(queue.testing.advance("1h10m"))
    do(queue.pause_schedule("tick"))
    [info] = do(queue.schedules())
    assert (info.paused, info.next) == (True, None)
    do(queue.testing.advance("3h"))
    do(queue.resume_schedule("tick"))
    [info] = do(queue.schedules())
    assert (info.paused, info.next_at) == (False, at("05:00")[0])
    do(queue.testing.advance("1h"))
    assert seen == at("01:00 05:00")


def test_an_overdue_instant_of_a_paused_schedule_is_left_out(queue: Any, do: Do, seen: Seen, clock: ManualClock) -> None:
    hourly(queue, seen)
    do(queue.testing.advance(0))
    clock.advance(2 * 3600)
    do(queue.pause_schedule("tick"))
    assert do(queue.testing.advance("2h")) == []
    assert seen == []


def test_a_changed_schedule_counts_until_it_is_changed_back(queue: Any, do: Do, seen: Seen) -> None:
    hourly(queue, seen)
    do(queue.testing.advance("1h10m"))
    do(queue.change_schedule("tick", "30 9 * * *", timezone="Asia/Shanghai"))
    [info] = do(queue.schedules())
    assert (info.schedule, info.timezone, info.changed) == ("30 9 * * *", "Asia/Shanghai", True)
    assert info.next_at == at("01:30")[0]
    do(queue.testing.advance("2h"))
    do(queue.change_schedule("tick", None))
    do(queue.testing.advance("1h"))
    assert seen == at("01:00 01:30 04:00")
    [info] = do(queue.schedules())
    assert (info.schedule, info.changed) == ("1h", False)


def test_run_sends_the_task_now_beside_its_plan(queue: Any, do: Do) -> None:
    calls: list[datetime | None] = []

    @queue.every("1h", topic="tick")
    def tick() -> None:
        calls.append(current().planned_at)

    do(queue.testing.advance("10m"))
    do(queue.pause_schedule("tick"))
    assert do(queue.run_schedule("tick")).topic == "tick"
    do(queue.testing.advance("1h"))
    assert calls == [None]


@pytest.mark.parametrize("verb", ["pause_schedule", "resume_schedule", "run_schedule", "change_schedule"])
def test_a_schedule_that_is_not_there_is_named_with_those_that_are(queue: Any, do: Do, seen: Seen, verb: str) -> None:
    hourly(queue, seen)
    do(queue.testing.advance(0))
    more = ("1h",) if verb == "change_schedule" else ()
    with pytest.raises(BadOption, match=r"There is no schedule tack. There is: tick\."):
        do(getattr(queue, verb)("tack", *more))


@pytest.mark.parametrize("schedule", ["5 minutes", "61 * * * *", "50ms", "0 0 30 2 *"])
def test_a_change_to_what_is_no_schedule_changes_nothing(queue: Any, do: Do, seen: Seen, schedule: str) -> None:
    hourly(queue, seen)
    do(queue.testing.advance(0))
    before = do(queue.schedules())
    with pytest.raises((BadOption, BadTime)):
        do(queue.change_schedule("tick", schedule))
    with pytest.raises(BadOption, match="timezone"):
        do(queue.change_schedule("tick", "0 9 * * *", timezone="Europe/Nowhere"))
    with pytest.raises(BadOption, match="1h is an interval"):
        do(queue.change_schedule("tick", "1h", timezone="Europe/Paris"))
    assert do(queue.schedules()) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schedule": "5 minutes"}, "five fields"),
        ({"schedule": 0}, "shortest interval"),
        ({"schedule": "0 9 * * *", "timezone": "Mars/Base"}, "IANA"),
        ({"schedule": "1h", "timezone": "Asia/Shanghai"}, "For a time of day write cron"),
        ({"schedule": lambda: None}, "Write @queue.every with a schedule in parentheses"),
        ({"schedule": "1h", "missed": "never"}, "missed"),
        ({"schedule": "1h", "start": datetime(2026, 1, 1)}, "timezone"),
        ({"schedule": "1h", "jitter": "-5m"}, "jitter"),
        ({"schedule": "1h", "name": "a b"}, "a b"),
        ({"schedule": "1h", "colour": "red"}, "colour"),
    ],
)
def test_what_is_no_schedule_is_refused_where_it_is_written(queue: Any, options: dict[str, Any], said: str) -> None:
    schedule = options["schedule"]
    with pytest.raises((BadOption, BadTime, ConfigError, ValueError), match=said):

        @queue.every(schedule, **{"topic": "tick", **{name: value for name, value in options.items() if name != "schedule"}})
        def tick() -> None: ...

    assert len(queue.session.setup.schedules) == 0


def test_a_name_is_for_one_schedule_and_a_function_with_arguments_has_none(queue: Any, seen: Seen) -> None:
    tick = hourly(queue, seen)
    with pytest.raises(ConfigError, match="Give each one a name"):
        queue.every("2h")(tick)
    with pytest.raises(ConfigError, match="is a task already"):
        queue.every("2h", name="other", timeout="5s")(tick)
    with pytest.raises(ConfigError, match=r"Write @queue\.every above @queue\.task"):
        queue.task("other", timeout="5s")(tick)
    with pytest.raises(ConfigError, match="needs order"):

        @queue.every("1h", topic="ship")
        def ship(order: int) -> None: ...


def test_what_bide_keeps_does_not_show_among_topics(queue: Any, do: Do, seen: Seen) -> None:
    hourly(queue, seen)
    do(queue.testing.advance("1h"))
    do(queue.pause_schedule("tick"))
    do(queue.change_schedule("tick", "2h"))
    do(queue.resume_schedule("tick"))
    assert do(queue.topics()) == ["tick"]
    assert do(queue.stats()).scheduled == 1
    assert list(do(queue.stats()).topics) == ["tick"]
    assert sum(each.messages for each in do(queue.timeline(end=START + timedelta(days=30)))) == 1


def test_middleware_and_a_handler_see_the_instant(queue: Any, do: Do) -> None:
    planned: list[datetime | None] = []

    async def look(delivery: Any, handle: Any) -> None:
        planned.append(delivery.planned_at)
        await handle()

    queue.testing.middleware = [look]

    @queue.every("1h", topic="tick")
    async def tick() -> None:
        planned.append(current().planned_at)

    do(queue.testing.advance("1h"))
    assert planned == at("01:00 01:00")


def test_an_option_that_there_is_not_is_told_with_those_that_there_are(queue: Any) -> None:
    with pytest.raises(
        BadOption, match=r"tiemout is no option of a schedule or a task\. There is: aliases, .*, jitter, .*, topic"
    ):
        queue.every("5m", tiemout="1s")

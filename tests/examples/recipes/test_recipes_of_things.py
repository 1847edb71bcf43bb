"""Time travel through the recipes of things: rides, devices, locks, indexes, counters."""

from datetime import UTC, datetime, timedelta

import pytest
from freezegun import freeze_time

from examples.recipes import device_timer, likes, lock_conflict, ride_dispatch, search_index, spread
from tests.examples.recipes.travelling import Travels

Printed = pytest.CaptureFixture[str]
DRIVERS = "insert into drivers values ('near', 0.5, 0), ('far', 4, 0), ('farther', 6, 8)"
OFFERED = "select driver from offers order by rowid"


def test_a_ride_is_offered_in_wider_circles_until_nobody_is_left(travels: Travels, capsys: Printed) -> None:
    trip = travels(ride_dispatch)
    trip.executes(DRIVERS)
    ride_dispatch.call(1, 0, 0)
    trip.passes("0s")
    assert trip.rows(OFFERED) == ["near"]
    trip.passes("30s")
    assert trip.rows(OFFERED) == ["near"]
    trip.passes("30s")
    assert trip.rows(OFFERED) == ["near", "far"]
    trip.passes("30s")
    assert trip.rows(OFFERED) == ["near", "far", "farther"]
    trip.passes("30s")
    assert trip.rows("select state from rides") == ["nobody"]
    assert capsys.readouterr().out == "ride 1: there is no driver\n"
    assert trip.queue.stats().pending == 0


def test_the_first_driver_gets_the_ride_and_the_circle_stays(travels: Travels) -> None:
    trip = travels(ride_dispatch)
    trip.executes(DRIVERS)
    ride_dispatch.call(1, 0, 0)
    trip.passes("0s")
    assert [ride_dispatch.accept(1, who) for who in ("near", "far")] == [True, False]
    assert trip.outcomes("1h") == []
    assert trip.rows("select state, driver from rides") == [("taken", "near")]


def test_a_driver_who_accepts_while_the_circle_widens_has_the_ride(travels: Travels) -> None:
    trip = travels(ride_dispatch)
    trip.executes(DRIVERS)
    ride_dispatch.call(1, 0, 0)
    trip.passes("0s")
    trip.clock.advance(30)
    [delivery] = trip.queue.receive("ride.offer")
    assert ride_dispatch.accept(1, "near")
    delivery.release()
    assert trip.outcomes("1h") == ["done"]
    assert trip.rows(OFFERED) == ["near"]


def dusk() -> tuple[datetime, datetime]:
    return datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) + timedelta(hours=9)


def test_a_lamp_goes_on_and_off_by_its_last_plan(travels: Travels, capsys: Printed) -> None:
    with freeze_time("2030-06-01 20:00"):
        trip = travels(device_timer)
        device_timer.plan("lamp", *dusk())
        device_timer.plan("lamp", *(each + timedelta(hours=1) for each in dusk()))
        assert trip.outcomes("1h 59m") == []
        assert trip.outcomes("1m") == ["done"]
        assert trip.outcomes("8h") == ["done"]
    assert capsys.readouterr().out == "lamp is on\nlamp is off\n"


def test_the_switch_on_the_wall_has_the_last_word(travels: Travels, capsys: Printed) -> None:
    with freeze_time("2030-06-01 20:00"):
        trip = travels(device_timer)
        device_timer.plan("lamp", *dusk())
        trip.clock.advance(3600)
        [delivery] = trip.queue.receive("device.switch")  # it is about to be switched on
        device_timer.by_hand("lamp", "off")
        delivery.release()
        assert trip.outcomes("1d") == ["done"]
    assert trip.rows("select state from devices") == ["off"]
    assert capsys.readouterr().out == ""


def test_a_lamp_is_not_switched_on_when_the_night_is_over(travels: Travels, capsys: Printed) -> None:
    with freeze_time("2030-06-01 20:00"):
        trip = travels(device_timer)
        device_timer.plan("lamp", *dusk())
        trip.clock.advance(10 * 3600)  # no worker runs all night
        assert trip.outcomes("0s") == ["done"]
    assert capsys.readouterr().out == "lamp is off\n"


def test_a_lock_that_is_taken_is_answered_in_three_ways(travels: Travels, capsys: Printed) -> None:
    trip = travels(lock_conflict)
    with trip.queue.lock("order:1"):
        for task in (lock_conflict.ship, lock_conflict.recount, lock_conflict.refund):
            task.send(1)
        assert trip.outcomes("0s", raise_errors=False) == ["waits", "waits", "dead"]
        assert capsys.readouterr().out.startswith("order 1 can't be refunded now: ")
    trip.passes("0s")
    assert capsys.readouterr().out == "order 1 is shipped\n"
    trip.passes("1s")
    assert capsys.readouterr().out == "order 1 is counted again\n"


def test_a_page_is_indexed_once_when_it_is_left_alone(travels: Travels, capsys: Printed) -> None:
    trip = travels(search_index)
    for text in ("H", "He", "Hello"):
        search_index.edit(1, text)
        assert trip.outcomes("1s") == []
    assert trip.outcomes("1s") == ["done"]
    assert capsys.readouterr().out == "page 1, version 3, is indexed: Hello\n"


def test_a_page_that_is_never_left_alone_is_indexed_every_thirty_seconds(travels: Travels) -> None:
    trip = travels(search_index)
    handled: list[str] = []
    for second in range(61):
        search_index.edit(1, f"text {second}")
        handled += trip.outcomes("1s")
    assert handled == ["done", "done"]


def test_an_edit_while_the_page_is_indexed_is_indexed_too(travels: Travels) -> None:
    trip = travels(search_index)
    search_index.edit(1, "old")
    trip.clock.advance(2)
    [delivery] = trip.queue.receive("search.index")  # a worker has read the old text
    search_index.edit(1, "new")
    search_index.write(1, "old", 1)
    delivery.ack()
    assert trip.outcomes("2s") == ["done"]
    assert trip.rows("select text, version from search") == [("new", 2)]
    search_index.write(1, "old", 1)  # a slow worker
    assert trip.rows("select text, version from search") == [("new", 2)]


def test_likes_are_written_five_hundred_at_a_time(travels: Travels, capsys: Printed) -> None:
    trip = travels(likes)
    trip.executes("insert into posts (id) values (1)")
    likes.write.send_many(likes.Like(f"user {number}", post=1) for number in range(1_200))
    assert trip.outcomes("1s") == ["done"] * 1_200
    assert capsys.readouterr().out == "500 likes are written\n500 likes are written\n200 likes are written\n"
    assert trip.rows("select likes from posts") == [1_200]


def test_a_like_that_comes_twice_counts_once(travels: Travels) -> None:
    trip = travels(likes)
    trip.executes("insert into posts (id) values (1)")
    for _ in range(2):
        likes.write.send(likes.Like("ada", post=1))
        trip.passes("1s")
    assert trip.rows("select likes from posts") == [1]


def test_counters_are_written_within_the_hour_and_each_once(travels: Travels) -> None:
    trip = travels(spread)
    trip.executes(
        "insert into posts (id) with recursive n (i) as (select 1 union all select i + 1 from n where i < 200) select i from n",
        "insert into likes values ('a', 7), ('b', 7)",
    )
    spread.recount_all()
    spread.recount_all()
    quarters = [len(trip.outcomes("15m")) for _ in range(4)]
    assert sum(quarters) == 200
    assert min(quarters) > 20  # 50 on average: fewer than 21 in one of four is rarer than one run in a million
    assert trip.rows("select likes from posts where id in (6, 7)") == [0, 2]

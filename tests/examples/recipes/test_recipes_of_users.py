"""Time travel through the recipes of users: reminders, recalls, pushes, messages that go out."""

from datetime import datetime
from email.message import Message
from typing import Any
from urllib.error import HTTPError
from zoneinfo import ZoneInfo

import pytest
from freezegun import freeze_time

from examples.recipes import push_after_login, recall, remind_at_nine, retry_ladder, sms
from tests.examples.recipes.travelling import Travels

Printed = pytest.CaptureFixture[str]


def test_a_reminder_comes_at_nine_in_the_users_own_zone(travels: Travels, capsys: Printed) -> None:
    with freeze_time("2030-06-01 12:00"):
        trip = travels(remind_at_nine)
        for user, zone in (("ada", "Asia/Shanghai"), ("bob", "America/New_York")):
            remind_at_nine.remind_me(user, zone)
            due = remind_at_nine.remind.get(key=user)
            assert due is not None
            assert due.due_at == datetime(2030, 6, 1 + (user == "ada"), 9, tzinfo=ZoneInfo(zone))
        trip.passes("1d")
    assert capsys.readouterr().out == "good morning, bob\ngood morning, ada\n"


def test_nine_is_nine_also_on_the_day_on_which_clocks_change() -> None:
    with freeze_time("2030-03-30 20:00"):  # in Berlin the clock jumps that night
        assert remind_at_nine.next_morning("Europe/Berlin") == datetime(2030, 3, 31, 7, tzinfo=ZoneInfo("UTC"))


def test_who_travels_is_reminded_at_nine_where_she_is(travels: Travels, capsys: Printed) -> None:
    with freeze_time("2030-06-01 12:00"):
        trip = travels(remind_at_nine)
        remind_at_nine.remind_me("ada", "Asia/Shanghai")
        remind_at_nine.move_to("ada", "America/New_York")  # where it is eight
        trip.passes("59m")
        assert capsys.readouterr().out == ""
        trip.passes("1m")
        assert capsys.readouterr().out == "good morning, ada\n"
        assert trip.outcomes("2d") == []


def test_a_reminder_that_comes_twice_is_sent_once(travels: Travels, capsys: Printed) -> None:
    trip = travels(remind_at_nine)
    remind_at_nine.remind_me("ada", "UTC")
    trip.queue.send("user.remind", {"user": "ada"})
    trip.queue.send("user.remind", {"user": "ada"})
    trip.passes("0s")
    assert capsys.readouterr().out == "good morning, ada\n"


def test_each_visit_starts_the_thirty_days_again(travels: Travels, capsys: Printed) -> None:
    trip = travels(recall)
    recall.visited("ada")
    trip.passes("29d")
    recall.visited("ada")
    assert trip.outcomes("29d") == []
    assert trip.outcomes("1d") == ["done"]
    assert capsys.readouterr().out == "we miss you, ada\n"


def test_who_comes_at_the_moment_of_the_mail_gets_none(travels: Travels, capsys: Printed) -> None:
    trip = travels(recall)
    recall.visited("ada")
    trip.clock.advance(30 * 86_400)
    [delivery] = trip.queue.receive("user.recall")
    recall.visited("ada")
    delivery.release()
    assert trip.outcomes("0s") == ["done"]
    assert capsys.readouterr().out == ""
    trip.passes("30d")
    assert capsys.readouterr().out == "we miss you, ada\n"


def test_one_push_a_user_to_the_devices_where_she_still_is(travels: Travels, capsys: Printed) -> None:
    trip = travels(push_after_login)
    for device in ("phone", "laptop", "tablet"):
        push_after_login.log_in(device, "ada")
    push_after_login.log_out("laptop")
    assert trip.outcomes("9s") == []
    assert trip.outcomes("1s") == ["done"]
    assert capsys.readouterr().out == "push to phone: welcome back, ada\npush to tablet: welcome back, ada\n"


def test_who_logs_in_again_within_the_hour_gets_no_second_push(travels: Travels) -> None:
    trip = travels(push_after_login)
    push_after_login.log_in("phone", "ada")
    assert trip.outcomes("59m") == ["done"]
    push_after_login.log_in("laptop", "ada")
    assert trip.outcomes("1m") == []
    push_after_login.log_in("tablet", "ada")
    assert trip.outcomes("1m") == ["done"]


def test_a_push_that_is_a_minute_late_is_dropped(travels: Travels, capsys: Printed) -> None:
    trip = travels(push_after_login)
    push_after_login.log_in("phone", "ada")
    trip.clock.advance(71)  # no worker runs
    assert trip.outcomes("0s") == []
    assert (capsys.readouterr().out, trip.queue.stats().pending) == ("", 0)


def test_a_webhook_climbs_the_ladder_then_is_a_dead_letter(
    travels: Travels, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    trip = travels(retry_ladder)
    began, tried, ids = trip.clock.now(), [], set()

    def refuse(request: Any, timeout: float) -> None:
        tried.append((trip.clock.now() - began).total_seconds())
        ids.add(request.get_header("Idempotency-key"))
        raise ConnectionRefusedError("no")

    monkeypatch.setattr(retry_ladder, "urlopen", refuse)
    retry_ladder.post.send("http://shop.example/paid", 1)
    assert trip.outcomes("2m", raise_errors=False) == ["retry"] * 4 + ["dead"]
    assert tried == [0, 1, 6, 16, 76]
    assert len(ids) == 1
    assert capsys.readouterr().out == ("webhook for order 1 is given up after 5 attempts: ConnectionRefusedError: no\n")
    assert trip.queue.requeue("webhook.post") == 1


@pytest.mark.parametrize(
    ("code", "outcomes"), [(404, ["dead"]), (429, ["retry"] * 4 + ["dead"]), (503, ["retry"] * 4 + ["dead"])]
)
def test_an_answer_that_will_not_change_is_not_asked_for_again(
    travels: Travels, monkeypatch: pytest.MonkeyPatch, code: int, outcomes: list[str]
) -> None:
    trip = travels(retry_ladder)

    def answer(request: Any, timeout: float) -> None:
        raise HTTPError(request.full_url, code, "no", Message(), None)

    monkeypatch.setattr(retry_ladder, "urlopen", answer)
    retry_ladder.post.send("http://shop.example/paid", 1)
    assert trip.outcomes("2m", raise_errors=False) == outcomes


def test_a_hundred_sms_a_minute_and_codes_first(travels: Travels, capsys: Printed) -> None:
    trip = travels(sms)
    sms.send_sms.send_many({"number": str(number), "text": "Everything must go!"} for number in range(150))
    sms.send_code("777", "271828")
    trip.passes("0s")
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[0]) == (100, "777: Your code is 271828")
    trip.passes("59s")
    assert capsys.readouterr().out == ""
    trip.passes("2s")
    assert len(capsys.readouterr().out.splitlines()) == 51


def test_a_code_that_is_five_minutes_late_is_not_sent(travels: Travels, capsys: Printed) -> None:
    trip = travels(sms)
    sms.send_code("777", "271828")
    trip.clock.advance(301)
    assert trip.outcomes("0s") == []
    assert capsys.readouterr().out == ""

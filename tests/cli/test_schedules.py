"""`bide schedules`: what is listed, and what its actions say and do."""

import json

import pytest

from bide import Queue
from bide.cli import schedules as command
from bide.queue.sync.planner import Planner
from tests.cli.running import Bide


@pytest.fixture
def announced(queue: Queue) -> Queue:
    """A queue with the schedules of a worker that has begun."""

    @queue.every("0 9 * * mon-fri", timezone="Asia/Shanghai", topic="report.make", name="report.daily")
    def make_report() -> None: ...

    @queue.every("5m", topic="cart.sweep")
    def sweep_carts() -> None: ...

    Planner(queue.session.engine(), queue.session.setup).announce(queue.session.setup.schedules, begins=True)
    return queue


def test_schedules_are_listed_with_their_next_instants(bide: Bide, announced: Queue) -> None:
    ended = bide("schedules")
    assert (ended.code, ended.err) == (0, "")
    head, first, second = ended.out.splitlines()
    assert head.split() == ["name", "task", "schedule", "timezone", "next", "announced", "state"]
    assert first.startswith("cart.sweep    cart.sweep   5m")
    assert second.startswith("report.daily  report.make  0 9 * * mon-fri  Asia/Shanghai  in ")


def test_as_json_a_schedule_is_a_line(bide: Bide, announced: Queue) -> None:
    lines = [json.loads(line) for line in bide("schedules", "--json").out.splitlines()]
    assert [each["name"] for each in lines] == ["cart.sweep", "report.daily"]
    info = announced.schedules()[1]
    assert lines[1] == {
        "name": "report.daily",
        "topic": "report.make",
        "schedule": "0 9 * * mon-fri",
        "timezone": "Asia/Shanghai",
        "missed": "once",
        "next": lines[1]["next"],
        "next_ms": info.next,
        "announced": lines[1]["announced"],
        "announced_ms": info.announced,
        "paused": False,
        "changed": False,
    }
    assert lines[1]["next"].endswith("T01:00:00.000Z")


def test_a_schedule_is_paused_and_resumed(bide: Bide, announced: Queue) -> None:
    assert bide("schedules", "pause", "cart.sweep").out == "Paused cart.sweep; nothing is planned until you resume it.\n"
    assert bide("schedules").out.splitlines()[1].endswith("paused")
    assert announced.stats("cart.sweep").pending == 0
    assert json.loads(bide("schedules", "resume", "cart.sweep", "--json").out) == {"name": "cart.sweep", "action": "resume"}
    assert announced.stats("cart.sweep").pending == 1


def test_a_schedule_is_changed_and_changed_back(bide: Bide, announced: Queue) -> None:
    ended = bide("schedules", "change", "report.daily", "30 7 * * *", "--timezone", "Europe/Paris")
    assert ended.out == "Changed report.daily to 30 7 * * *.\n"
    [_, info] = announced.schedules()
    assert (info.schedule, info.timezone, info.changed) == ("30 7 * * *", "Europe/Paris", True)
    assert bide("schedules").out.splitlines()[2].endswith("changed")
    assert bide("schedules", "change", "report.daily").out == "report.daily has its application's times again.\n"
    assert not announced.schedules()[1].changed


def test_a_schedule_is_run_now(bide: Bide, announced: Queue) -> None:
    said = bide("schedules", "run", "report.daily").out
    [message] = announced.messages("report.make", state="ready")
    assert said == f"Sent {message.id}: the task of report.daily, due now.\n"


def test_one_that_nobody_announces_any_more_is_silent(bide: Bide, announced: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SILENT", -60_000)
    assert all(line.endswith("silent") for line in bide("schedules").out.splitlines()[1:])


def test_without_schedules_the_command_says_where_they_come_from(bide: Bide, queue: Queue) -> None:
    queue.send("a")
    ended = bide("schedules")
    assert (ended.code, ended.out) == (0, "")
    assert "Workers announce theirs" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["pause"], 2, "Name the schedule: bide schedules pause NAME"),
        (["pause", "cart.sweep", "5m"], 2, "belong to change"),
        (["pause", "cart.swep"], 1, "There is no schedule cart.swep. There is: cart.sweep, report.daily."),
        (["change", "cart.sweep", "5 minutes"], 1, "five fields"),
        (["change", "cart.sweep", "--timezone", "UTC"], 1, "timezone"),
        (["stop", "cart.sweep"], 2, "stop"),
    ],
)
def test_what_does_not_work_is_said(bide: Bide, announced: Queue, arguments: list[str], code: int, said: str) -> None:
    before = announced.schedules()
    ended = bide("schedules", *arguments)
    assert ended.code == code
    assert said in ended.err
    assert announced.schedules() == before

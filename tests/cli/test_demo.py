"""The demo: one real run, what it tells, and that its judge finds what is planted."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from rich.console import Console

from bide.cli.demo import run as demo
from bide.cli.demo.plan import WORKER_1, plan
from bide.cli.demo.screen import ROWS, Board, Screen, ShownOrder, percentile
from bide.cli.demo.verdict import Verdict, as_dict, judge
from tests.unit.prove.book import Book

BIDE = [sys.executable, "-m", "bide"]


def started(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([*BIDE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def runs() -> dict[str, "subprocess.CompletedProcess[str]"]:
    """One day told in plain lines and one as JSON, at the same time."""
    begun = {"lines": started("demo", "--seed", "7"), "json": started("demo", "--json")}
    ended = {}
    for name, process in begun.items():
        out, err = process.communicate(timeout=60)
        ended[name] = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    return ended


@pytest.fixture(scope="module")
def summary(runs: dict[str, "subprocess.CompletedProcess[str]"]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(runs["json"].stdout)
    return found


@pytest.mark.always
def test_the_demo_ends_well_and_in_twenty_seconds(
    runs: dict[str, "subprocess.CompletedProcess[str]"], summary: dict[str, Any]
) -> None:
    for run in runs.values():
        assert (run.returncode, run.stderr) == (0, "")
    assert summary["seconds"] < 20


def test_every_message_is_accounted_for(summary: dict[str, Any]) -> None:
    assert summary["kept"] is True
    assert set(summary["promises"].values()) == {True}
    assert summary["sent"] == summary["delivered"] + summary["cancelled"] > 400
    assert summary["held_by_stopped_worker"] == summary["recovered"] > 0
    assert (summary["retried"], summary["late_acks_refused"]) == (2, 1)
    assert (summary["lost"], summary["left"], summary["early"], summary["unexplained"]) == (0, 0, 0, 0)
    assert 0 <= summary["lateness_ms"]["p50"] <= summary["lateness_ms"]["p99"] <= summary["lateness_ms"]["max"]


def test_piped_output_is_plain_lines(runs: dict[str, "subprocess.CompletedProcess[str]"]) -> None:
    told = runs["lines"].stdout
    assert "\x1b" not in told
    assert "\r" not in told
    assert "worker 1 is killed with -9" in told
    assert "Every promise was kept" in told


def test_ctrl_c_ends_it_with_a_word_and_130() -> None:
    process = started("demo")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "Stopped.\n")


def test_without_typer_the_command_names_the_pip_line() -> None:
    code = "import sys; sys.modules['typer'] = None; from bide.cli import main; sys.exit(main())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == 'The bide command needs the typer package: pip install "bide[cli]"\n'


def test_the_help_has_examples() -> None:
    ended = subprocess.run(
        [*BIDE, "demo", "--help"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "100"}
    )
    assert "bide demo --json" in ended.stdout


# the judge

Day: TypeAlias = dict[str, Callable[[Book], object]]


def good_day() -> Day:
    """A small run that keeps every promise: one cancelled, one retried, one held by a worker that is killed."""
    return {
        "send": lambda book: [book.send(id) for id in ("cancelled", "retried", "held")],
        "cancel": lambda book: book.act("cancel", "cancelled"),
        "hand out": lambda book: book.receive("retried", token="1"),
        "fail": lambda book: book.act("retry", "retried", token="1"),
        "take": lambda book: book.receive("held", token="1", process=WORKER_1),
        "kill": lambda book: book.act("fault", None, kind="kill a worker"),
        "hand out again": lambda book: book.receive("retried", token="2", attempt=2),
        "ack": lambda book: book.act("ack", "retried", token="2"),
        "bring back": lambda book: book.receive("held", token="2", attempt=2, due=book.now, now=book.now + 1_500),
        "late ack": lambda book: book.act("ack", "held", "fail", token="1", outcome="LeaseLost"),
        "ack held": lambda book: book.act("ack", "held", token="2"),
        "look": lambda book: book.look(counts={}),
    }


def written(day: Day, folder: Path) -> None:
    book = Book(folder / "day.jsonl")
    for step in day.values():
        step(book)
    book.file.close()


def judged(day: Day, folder: Path) -> Verdict:
    written(day, folder)
    return judge(folder)


def test_the_judge_passes_a_good_run(tmp_path: Path) -> None:
    verdict = judged(good_day(), tmp_path)
    assert verdict.kept, str(verdict.report)
    told = as_dict(verdict)
    assert (told["sent"], told["cancelled"], told["delivered"], told["retried"]) == (3, 1, 2, 1)
    assert (told["held_by_stopped_worker"], told["recovered"], told["late_acks_refused"]) == (1, 1, 1)
    assert verdict.back == {"held": 1_500}


def then(day: Day, step: Callable[[Book], object]) -> None:
    """One step more, before the look at what is left."""
    look = day.pop("look")
    day |= {"planted": step, "look": look}


def _lose(day: Day) -> None:
    then(day, lambda book: book.send("never seen again"))


def _deliver_early(day: Day) -> None:
    day["hand out"] = lambda book: book.receive("retried", token="1", due=book.now + 9)


def _move_the_due_time_forward(day: Day) -> None:
    day["hand out"] = lambda book: book.receive("retried", token="1", due=1_000)


def _retry_early(day: Day) -> None:
    day["hand out again"] = lambda book: book.receive("retried", token="2", attempt=2, due=book.now + 9)


def _deliver_what_nobody_sent(day: Day) -> None:
    then(day, lambda book: book.receive("unknown", token="3"))


def _deliver_the_cancelled(day: Day) -> None:
    then(day, lambda book: book.receive("cancelled", token="3"))


def _end_twice(day: Day) -> None:
    then(day, lambda book: book.act("ack", "cancelled", token="3"))


def _ack_twice(day: Day) -> None:
    then(day, lambda book: book.act("ack", "held", token="2"))


def _leave_something(day: Day) -> None:
    day["look"] = lambda book: book.look({"id": "held", "tag": "held", "body": "body of held"}, counts={"t": {"scheduled": 1}})


def _never_look_what_is_left(day: Day) -> None:
    del day["look"]


def _accept_the_stale_ack(day: Day) -> None:
    day["late ack"] = lambda book: book.act("ack", "held", token="1")


def _repeat_without_reason(day: Day) -> None:
    then(day, lambda book: book.receive("retried", token="3", attempt=3))


def _give_it_back_to_the_stopped_worker(day: Day) -> None:
    day["bring back"] = lambda book: book.receive(
        "held", token="2", attempt=2, due=book.now, now=book.now + 1_500, process=WORKER_1
    )


def _give_up(day: Day) -> None:
    del day["ack"]


def _nobody_stops(day: Day) -> None:
    del day["take"], day["late ack"]
    day["bring back"] = lambda book: book.receive("held", token="2")


def _nobody_is_late(day: Day) -> None:
    del day["late ack"]


def _the_kill_fails(day: Day) -> None:
    day["kill"] = lambda book: book.act("fault", None, "unknown", kind="kill a worker")


def _nothing_happens(day: Day) -> None:
    day.clear()


@pytest.mark.parametrize(
    "plant",
    [
        _lose,
        _deliver_early,
        _move_the_due_time_forward,
        _retry_early,
        _deliver_what_nobody_sent,
        _deliver_the_cancelled,
        _end_twice,
        _ack_twice,
        _leave_something,
        _never_look_what_is_left,
        _accept_the_stale_ack,
        _repeat_without_reason,
        _give_it_back_to_the_stopped_worker,
        _give_up,
        _nobody_stops,
        _nobody_is_late,
        _the_kill_fails,
        _nothing_happens,
    ],
)
def test_the_judge_finds_what_is_planted(plant: Callable[[Day], None], tmp_path: Path) -> None:
    day = good_day()
    plant(day)
    assert not judged(day, tmp_path).kept


@pytest.mark.parametrize(
    ("plant", "promise"),
    [
        (_lose, "every accepted message ended exactly once"),
        (_leave_something, "nothing is left in the engine"),
        (_deliver_early, "none was handed out early"),
        (_deliver_the_cancelled, "what was cancelled was never delivered"),
        (_give_up, "what failed was tried again until it was done"),
        (_give_it_back_to_the_stopped_worker, "what a stopped worker held came back"),
        (_accept_the_stale_ack, "its late ack was refused"),
        (_repeat_without_reason, "every repeated delivery has a reason"),
    ],
)
def test_a_broken_promise_is_called_by_its_name(plant: Callable[[Day], None], promise: str, tmp_path: Path) -> None:
    day = good_day()
    plant(day)
    assert judged(day, tmp_path).promises[promise] is False


def test_the_counts_name_the_lost_and_the_early(tmp_path: Path) -> None:
    day = good_day()
    _lose(day)
    _deliver_early(day)
    told = as_dict(judged(day, tmp_path))
    assert (told["lost"], told["early"]) == (1, 1)


def test_a_broken_promise_ends_with_1_and_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def bad_day(seed: int, board: Board, folder: Path) -> None:
        day = good_day()
        _lose(day)
        written(day, folder)

    monkeypatch.setattr(demo, "_open_shop", bad_day)
    assert demo.run(1) == 1
    told = capsys.readouterr().out
    assert "BROKEN: every accepted message ended exactly once" in told
    assert "never seen again: was accepted, has had no end, and is not there any more" in told
    assert demo.run(1, as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["lost"] == 1


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile([], 0.5) is None
    assert [percentile([1, 2, 3, 4], share) for share in (0.0, 0.5, 0.51, 0.99, 1)] == [1, 2, 3, 4, 4]


# the plan and the screen


def test_the_same_number_plans_the_same_day() -> None:
    assert plan(1) == plan(1) != plan(2)


def test_every_day_has_its_whole_story() -> None:
    for seed in range(200):
        day = plan(seed)
        behaviours = [customer.behaviour for customer in day.customers]
        assert {"pays", "forgets", "pays late", "asks for time"} == set(behaviours)
        assert max(customer.arrives + max(customer.window, customer.acts) for customer in day.customers) < 13


def test_the_screen_fits_eighty_columns() -> None:
    board = Board()
    board.orders = {
        number: ShownOrder(number, "ink and pen", round(time.time() * 1000) + 4_000, 5.0) for number in range(41, 55)
    }
    board.mark(42, "paid, packed", "good")
    board.say("a line that is far too long for the room that there is beside the orders")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(Screen(board, console).frame())
    lines = console.export_text().splitlines()
    assert len(lines) == ROWS + 4
    assert max(len(line) for line in lines) == 80
    assert any("42 ink and pen paid, packed" in line for line in lines)

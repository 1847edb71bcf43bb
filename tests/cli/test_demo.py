"""The demo: one real run, what it tells, and that its judge finds what is planted."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from bide.cli import demo
from bide.cli.demo.board import Board, Order
from bide.cli.demo.plan import plan
from bide.cli.demo.record import Handing, Record
from bide.cli.demo.screen import ROWS, Screen
from bide.cli.demo.tally import judge, percentile

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


def good() -> Record:
    """A small run that keeps every promise: one cancelled, one retried, one held by a worker that stops."""
    record = Record()
    record.promised = {"cancelled": 100, "retried": 200, "held": 300}
    record.cancelled = {"cancelled": 0}
    record.handings = [
        Handing("retried", "b", 1, 200, 201),
        Handing("held", "a", 1, 300, 300),
        Handing("retried", "b", 2, 400, 402),
        Handing("held", "b", 2, 300, 1_800),
    ]
    record.failed = ["retried"]
    record.held, record.stopped = [("held", "a")], 2
    record.acked = [("retried", "b"), ("held", "b")]
    record.stale_refused = 1
    record.left = 0
    return record


def test_the_judge_passes_a_good_run() -> None:
    tally = judge(good())
    assert tally.kept
    assert (tally.sent, tally.delivered, tally.recovered, tally.back_after) == (3, 2, 1, 1.5)
    assert tally.lateness == [0, 1]


def _lose(record: Record) -> None:
    record.promised["never seen again"] = 500


def _deliver_early(record: Record) -> None:
    record.handings[0] = Handing("retried", "b", 1, 200, 199)


def _move_the_due_time_forward(record: Record) -> None:
    record.handings[0] = Handing("retried", "b", 1, 150, 160)


def _retry_early(record: Record) -> None:
    record.handings[2] = Handing("retried", "b", 2, 400, 399)


def _deliver_what_nobody_sent(record: Record) -> None:
    record.handings.append(Handing("unknown", "b", 1, 100, 100))


def _deliver_the_cancelled(record: Record) -> None:
    record.handings.append(Handing("cancelled", "b", 1, 100, 100))


def _end_twice(record: Record) -> None:
    record.acked.append(("cancelled", "b"))


def _ack_twice(record: Record) -> None:
    record.acked.append(("held", "b"))


def _leave_something(record: Record) -> None:
    record.left = 1


def _never_look_what_is_left(record: Record) -> None:
    record.left = None


def _accept_the_stale_ack(record: Record) -> None:
    record.stale_accepted = 1


def _repeat_without_reason(record: Record) -> None:
    record.handings.append(Handing("retried", "b", 3, 200, 205))


def _give_it_back_to_the_stopped_worker(record: Record) -> None:
    record.handings[3] = Handing("held", "a", 2, 300, 1_800)


def _give_up(record: Record) -> None:
    record.acked.remove(("retried", "b"))


def _nobody_stops(record: Record) -> None:
    record.held, record.stopped = [], None


def _nothing_happens(record: Record) -> None:
    record.__init__()  # type: ignore[misc]


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
        _nothing_happens,
    ],
)
def test_the_judge_finds_what_is_planted(plant: Callable[[Record], None]) -> None:
    record = good()
    plant(record)
    assert not judge(record).kept


def test_the_counts_name_the_lost_and_the_early() -> None:
    record = good()
    _lose(record)
    _deliver_early(record)
    tally = judge(record)
    assert (tally.lost, tally.early) == (1, 1)


def test_a_broken_promise_ends_with_1_and_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def bad_day(seed: int, board: Board) -> None:
        board.record = good()
        _lose(board.record)

    monkeypatch.setattr(demo, "_open_shop", bad_day)
    assert demo.run(1) == 1
    assert "BROKEN: every accepted message ended exactly once" in capsys.readouterr().out
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
    board.orders = {number: Order(number, "ink and pen", round(time.time() * 1000) + 4_000, 5.0) for number in range(41, 55)}
    board.mark(42, "paid, packed", "good")
    board.say("a line that is far too long for the room that there is beside the orders")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(Screen(board, console).frame())
    lines = console.export_text().splitlines()
    assert len(lines) == ROWS + 4
    assert max(len(line) for line in lines) == 80
    assert any("42 ink and pen paid, packed" in line for line in lines)

"""`make bench-peers`: its arithmetic, its tables, and that nothing is left out without a word."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers import report, results
from benchmarks.peers.install import NotInstalled, environment
from benchmarks.peers.peer import PROGRAMS, pins
from benchmarks.peers.quiet import busy
from benchmarks.peers.registry import BIDE, BIDE_ON_POSTGRES, BOTH, PEERS, beside
from benchmarks.peers.rounds import installed
from benchmarks.peers.running import Record
from benchmarks.peers.summary import Middle, Rounds, bars, bide_of
from benchmarks.peers.table import tables
from benchmarks.peers.works import CRASH, WORKS, after_the_crash

RATE = "a second"


def rounds(mine: list[float], ours: list[float]) -> Rounds:
    return Rounds([{RATE: value} for value in mine], [{RATE: value} for value in ours])


def test_a_figure_is_the_median_of_its_rounds_with_the_lowest_and_the_highest() -> None:
    assert rounds([30, 10, 20, 50, 40], [1, 1, 1, 1, 1]).of(RATE) == Middle(30, 10, 50)


def test_a_ratio_is_taken_in_each_round_before_the_median() -> None:
    # The machine was ten times as slow in the second round; that is not the peer's doing.
    assert rounds([100, 10, 100], [300, 40, 500]).ratio(RATE) == Middle(4, 3, 5)


def test_a_round_without_a_figure_of_one_is_left_out_for_both() -> None:
    found = Rounds([{RATE: 1.0}, {}, {RATE: 3.0}], [{RATE: 10.0}, {RATE: 20.0}, {}]).paired()
    assert found == Rounds([{RATE: 1.0}], [{RATE: 10.0}])
    assert Rounds([], []).of(RATE) is None


def test_bide_is_summed_up_over_the_rounds_beside_all_peers() -> None:
    found = {"celery": rounds([1, 1], [10, 20]), "rq": rounds([1], [60])}
    assert bide_of(found, RATE) == Middle(20, 10, 60)
    assert bide_of({"bide": rounds([5], [])}, RATE) == Middle(5, 5, 5)


def test_bars_tell_what_is_reached_missed_and_not_measured() -> None:
    lines = [bar.line() for bar in bars({"drain": {"bullmq": rounds([10], [36]), "celery": rounds([1], [34])}})]
    assert [line.rpartition(": ")[2] for line in lines[:2]] == ["reached", "MISSED"]
    assert all("not measured" in line for line in lines[2:])


def test_a_killed_worker_s_messages_are_counted() -> None:
    killed = 1_000.0
    done = [Record("done", number, 0.0, 999.0) for number in range(CRASH - 3)]
    records = [
        *done,
        Record("done", 0, 0.0, 1_001.0),  # again
        Record("started", CRASH - 1, 0.0, 999.9),
        Record("done", CRASH - 1, 0.0, 1_016.5),
    ]
    assert after_the_crash(records, {CRASH - 1, CRASH - 2}, killed) == {
        "held": 2,
        "not handled": 2,
        "held and not handled": 1,
        "done twice": 1,
        "back after s": 16.5,
    }
    assert "back after s" not in after_the_crash(done, {CRASH - 1}, killed)


def test_every_program_has_a_peer_and_every_peer_a_program_with_pinned_packages() -> None:
    programs = {path.stem.removeprefix("on_") for path in PROGRAMS.glob("on_*.*") if path.suffix in (".py", ".js")}
    homes = {peer.home for peer in PEERS.values()}
    assert programs == {BIDE.name, *homes}
    assert {path for path in (peer.program for peer in PEERS.values()) if not path.exists()} == set()
    assert pins().keys() - {"plots"} == homes
    assert all(peer.version for peer in PEERS.values())
    unpinned = [
        pin for kinds in pins().values() for pin in [*kinds.get("pip", []), *kinds.get("npm", [])] if not pin[-1].isdigit()
    ]
    assert unpinned == []


def test_a_peer_that_can_t_be_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.peers.install.BUILD", tmp_path)
    monkeypatch.setattr("benchmarks.peers.install.shutil.which", lambda _: None)
    found, missing = installed([PEERS["bullmq"]])
    assert (found, missing) == ([], {"bullmq": "node is not on the PATH"})
    assert "BullMQ is left out: node is not on the PATH" in capsys.readouterr().err


def test_a_peer_that_needs_a_newer_python_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.install.BUILD", tmp_path)
    monkeypatch.setattr("benchmarks.peers.install.PYENV", tmp_path)
    with pytest.raises(NotInstalled, match=r"it needs Python 3\.98 or 3\.99, which is not here"):
        environment("some", {"pip": [], "python": ["3.98", "3.99"]})


def test_a_peer_on_postgresql_is_measured_beside_bide_on_postgresql() -> None:
    assert {beside(peer) for peer in PEERS.values() if peer.server == "postgresql"} == {BIDE_ON_POSTGRES}
    assert {beside(peer) for peer in PEERS.values() if peer.server != "postgresql"} == {BIDE}
    found = {"celery": rounds([1], [10]), "pgqueuer": rounds([1], [3])}
    assert bide_of(found, RATE) == Middle(10, 10, 10)
    assert bide_of(found, RATE, BIDE_ON_POSTGRES) == Middle(3, 3, 3)


def test_bide_is_not_summed_up_over_rounds_beside_other_programs() -> None:
    found = {"celery": rounds([1], [10]), "docket": replace(rounds([1], [2]), busy=2.0)}
    assert bide_of(found, RATE) == Middle(10, 10, 10)
    assert bide_of({"docket": found["docket"]}, RATE) == Middle(2, 2, 2)


def test_the_machine_is_looked_at_between_the_rounds() -> None:
    assert 0 <= busy(0.02) <= (os.cpu_count() or 1)


def test_figures_of_a_part_leave_those_of_the_others() -> None:
    older = {"drain": {"rq": rounds([1], [2]), "huey": rounds([3], [4])}, "single": {"rq": rounds([5], [6])}}
    newer = {"drain": {"huey": rounds([7], [8])}}
    assert results.merged(older, newer) == {
        "drain": {"rq": rounds([1], [2]), "huey": rounds([7], [8])},
        "single": {"rq": rounds([5], [6])},
    }


def test_kept_figures_are_what_was_measured(tmp_path: Path) -> None:
    kept = tmp_path / "results.json"
    results.keep("drain", {"rq": rounds([250.126], [50_000])}, kept)
    results.keep("drain", {"huey": rounds([1], [2])}, kept)
    results.keep("drain", {"rq": rounds([251.126], [50_000])}, kept)
    assert results.load(kept) == {"drain": {"rq": rounds([251.13], [50_000]), "huey": rounds([1], [2])}}


def test_a_table_has_each_peer_that_was_measured_and_the_command_that_prints_it() -> None:
    measured = rounds([250, 200, 300], [50_000, 50_000, 60_000])
    text = tables({"drain": {"rq": replace(measured, version=PEERS["rq"].version, date="2026-11-30")}}, "2 cores")
    assert "| RQ | 250 (200–300) | 50,000 (50,000–60,000) | 200 (200–250) | 2026-11-30 |" in text
    assert "`python -m benchmarks.peers --work drain`" in text
    assert all(f"| {peer.title} |" in text for peer in (*BOTH, *PEERS.values()))


def test_a_table_tells_of_a_busy_machine_and_of_another_version() -> None:
    text = tables({"drain": {"rq": replace(rounds([250], [50_000]), version="2.0", date="2026-11-30", busy=0.84)}}, "2 cores")
    assert "| 2026-11-30, version 2.0, 0.8 cores busy |" in text


def test_a_table_has_the_peers_on_postgresql_apart() -> None:
    text = tables({"drain": {"rq": rounds([1], [20]), "oban": rounds([1], [5])}}, "2 cores")
    apart = text.index("bide on PostgreSQL over all rounds: 5.00 (5.00–5.00).")
    assert text.index("bide over all rounds: 20.0 (20.0–20.0).") < text.index("| RQ | 1.00 ") < apart
    assert apart < text.index("| oban-py | 1.00 ")


def test_the_page_shows_the_figures_that_are_kept() -> None:
    page = report.PAGE.read_text(encoding="utf-8")
    quoted = results.load(results.QUOTED)
    assert set() < quoted.keys() <= WORKS.keys()
    assert report.written(page, quoted, results.machine(results.QUOTED)) == page, (
        "run python -m benchmarks.peers --kept --write"
    )

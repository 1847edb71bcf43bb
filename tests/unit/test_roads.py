"""The page on ways to delay a message: each program is on it, tested and measured, and the tables tell what was kept."""

import re
from pathlib import Path

import pytest

from benchmarks.roads import results
from benchmarks.roads.program import SIZE, body, send
from benchmarks.roads.table import spreads, table
from benchmarks.roads.ways import ALL_WAYS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "roads.md").read_text(encoding="utf-8")
PROGRAMS = {path.stem for path in (ROOT / "examples" / "roads").glob("*.py") if not path.stem.startswith("__")}
FIGURES = {
    "p50 ms": 1.25,
    "p99 ms": 20.0,
    "sent a second": 12_345.0,
    "handled a second": 6_789.0,
    "bytes stored": 219.0,
    "bytes in the consumer": 5_164.0,
    "CPU of the consumer, %": 0.5,
    "CPU of the server, %": 0.25,
    "commands a second": 19.8,
    "not handled": 0.0,
    "burst not handled": 1.0,
}


def test_every_program_is_on_the_page_is_measured_and_has_a_test() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "roads").glob("test_*.py"))
    assert set(re.findall(r"<!-- generated: road (\w+) -->", PAGE)) == PROGRAMS
    assert {way.program for way in ALL_WAYS} == PROGRAMS
    assert {name for name in PROGRAMS if not re.search(rf"\b{name}\b", tests)} == set()


def test_the_tests_that_the_page_names_are_there() -> None:
    named = re.findall(r"`pytest (tests/\S+)`", PAGE)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_kept_figures_are_of_all_ways() -> None:
    kept, machine = results.load(results.QUOTED)
    assert list(kept) == [way.name for way in ALL_WAYS]
    assert "cores" in machine


def test_a_table_has_medians_and_the_other_one_spreads() -> None:
    rounds = [FIGURES, {**FIGURES, "p50 ms": 1.5, "not handled": 7.0}, {**FIGURES, "p50 ms": 9.0}]
    [line] = [line for line in table({"celery_eta": rounds}, "2 cores").splitlines() if "Celery" in line]
    assert line.endswith("| 1.5 / 20 | 12,300 | 6,790 | 219 + 5,160 | 0.8 | 20 |")
    [line] = [line for line in spreads({"celery_eta": rounds}).splitlines() if "Celery" in line]
    assert line.startswith("| Celery's ETA | 1.5 (1.2–9.0) |")
    assert line.endswith("| 8 |")


def test_what_is_measured_is_kept(tmp_path: Path) -> None:
    results.save({"zset_lua": [{"p50 ms": 1.23456}]}, "2 cores", tmp_path / "roads" / "results.json")
    assert results.load(tmp_path / "roads" / "results.json") == ({"zset_lua": [{"p50 ms": 1.235}]}, "2 cores")


@pytest.mark.parametrize("at", [0.0, 4e9])
def test_a_sender_tells_each_message_when_it_is_due(at: float) -> None:
    sent: list[tuple[str, float]] = []

    class Way:
        @staticmethod
        def send(place: object, body: str, delay: float) -> None:
            sent.append((body, delay))

    send(Way, None, "spread", [3_600.0, 7_200.0], 0.0, at)
    assert [len(each) for each, _ in sent] == [SIZE, SIZE]
    for number, (text, delay) in enumerate(sent):
        work, found, due, _ = text.split(":")
        assert (work, int(found)) == ("spread", number)
        assert float(due) == pytest.approx(at) if at else delay == pytest.approx(3_600.0 * (number + 1), abs=60)


def test_a_body_has_its_size() -> None:
    assert len(body("wait", 4_999, 4e9)) == SIZE

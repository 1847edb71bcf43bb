"""Kept results in a file: what a message that is done costs does not grow with what waits for other messages."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bide.clock import ManualClock
from bide.engines.base import NewMessage, Settings, Tended
from bide.engines.results import Arrival, Dependent, Expected, Kept
from bide.engines.sqlite import file, source
from bide.engines.sqlite.sync import Sqlite
from bide.engines.sqlite.transaction import SQL, _statements
from tests.sqlite.test_gates import steps

RESULTS = _statements(Path(file.__file__).with_name("results.sql").read_text(encoding="utf-8"))
VALUES = dict.fromkeys(("space", "message", "other", "until", "value", "now", "limit", "token"), 1)
UNTIL = 10**15


@pytest.fixture
def engine(url: str) -> Iterator[Sqlite]:
    with closing(source(Settings(url=url, clock=ManualClock())).sync()) as engine:
        engine.open()
        yield engine


@pytest.mark.parametrize("name", RESULTS)
def test_no_statement_of_results_walks_through_a_table(name: str, engine: Sqlite, path: Path) -> None:
    assert SQL[name] == RESULTS[name]
    with closing(sqlite3.connect(path)) as client:
        plan = [row[3] for row in client.execute(f"explain query plan {RESULTS[name]}", VALUES)]
    assert [step for step in plan if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"] == []


def life(engine: Sqlite, others: int) -> int:
    """What the last part of a dependent message costs, when so many other messages wait for others."""
    part, *waiting = [each.id for each in engine.put([NewMessage("t", b"", delay=10**9)] * (others + 2))]
    results = engine.results
    results.expect([Expected(part, UNTIL)])
    results.expect([Dependent(each, (f"of {each}",), UNTIL) for each in waiting[1:]])

    def done() -> None:
        results.expect([Dependent(waiting[0], (part,), UNTIL)])
        assert results.fulfil([Kept(part, 1_000, b"7")]) == [[waiting[0]]]
        assert results.arrive([Arrival(waiting[0], part)]) == [True]
        results.arrive([Arrival(waiting[0], None)])
        assert engine.tend() == Tended()

    return steps(engine, done)


def test_what_waits_makes_nothing_slower_that_others_wait_for(engine: Sqlite) -> None:
    few, many = life(engine, 5), life(engine, 900)
    assert 0 < many < 1.2 * few

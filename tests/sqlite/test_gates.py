"""Gates in a file: what they cost when many wait, and the release before, which does not know them."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bide import Queue
from bide.clock import MS, ManualClock
from bide.engines.base import Settings
from bide.engines.gates import Entry, Held, Spend
from bide.engines.sqlite import file, source
from bide.engines.sqlite.sync import Sqlite
from bide.engines.sqlite.transaction import SQL, _statements

GATES = _statements(Path(file.__file__).with_name("gates.sql").read_text(encoding="utf-8"))


@pytest.fixture
def engine(url: str) -> Iterator[Sqlite]:
    with closing(source(Settings(url=url, clock=ManualClock())).sync()) as engine:
        engine.open()
        yield engine


def values_of(statement: str) -> Any:
    """A value for each place of a statement."""
    places = statement.count("?")
    names = ("space", "name", "now", "limit", "gate", "places", "taken", "waiting", "ends", "next", "spending", "holder", "at")
    return [1] * places if places else dict.fromkeys((*names, "asks_by", "before"), 1)


@pytest.mark.parametrize("name", GATES)
def test_no_statement_of_gates_walks_through_a_table(name: str, engine: Sqlite, path: Path) -> None:
    assert SQL[name] == GATES[name]
    with closing(sqlite3.connect(path)) as client:
        plan = [row[3] for row in client.execute(f"explain query plan {GATES[name]}", values_of(GATES[name]))]
    assert [step for step in plan if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"] == []


def steps(engine: Sqlite, work: Callable[[], object]) -> int:
    """How many instructions SQLite runs for it."""
    assert engine._executor is not None
    connection: Any = engine._executor.database.writer._connection
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    connection.set_progress_handler(count, 1)
    try:
        work()
    finally:
        connection.set_progress_handler(None, 0)
    return counted


def crowded(engine: Sqlite, gate: str, waiters: int) -> int:
    """How much it costs to leave a gate at which so many wait, and to enter it as the next."""
    gates = engine.gates
    [entered] = gates.enter([Entry(gate, "first", 60_000)])
    for begin in range(0, waiters, 1_000):
        gates.enter([Entry(gate, f"h{n}", 60_000, waiter=f"w{n}") for n in range(begin, min(begin + 1_000, waiters))])

    def pair() -> None:
        [called] = gates.leave([Held(gate, "first", entered.token)]).called
        [let_in, refused] = gates.enter([Entry(gate, "x", 60_000, waiter=called.waiter), Entry(gate, "y", 60_000)])
        assert (called.waiter, let_in.token is None, refused.token) == ("w0", False, None)

    return steps(engine, pair)


def test_who_waits_makes_a_gate_no_slower(engine: Sqlite) -> None:
    few, many = crowded(engine, "few", 10), crowded(engine, "many", 10_000)
    assert 0 < many < 1.1 * few


@contextmanager
def release_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without gates, and without a word about additions."""
    with monkeypatch.context() as before:
        before.setattr(file, "ADDITIONS", ())
        yield


def test_the_release_before_uses_a_file_with_gates_at_the_same_time(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with release_before(monkeypatch), closing(Queue(url)) as queue:
        queue.send("t", "from before")
        with closing(sqlite3.connect(path)) as client:
            assert client.execute("select count(*) from sqlite_schema where name like 'bide_gate%'").fetchone() == (0,)
    with closing(source(Settings(url=url)).sync()) as engine:
        engine.open()
        [entered] = engine.gates.enter([Entry("g", "a", 60_000)])
        with release_before(monkeypatch), closing(Queue(url)) as queue:
            assert [each.body for each in queue.receive("t", limit=9)] == ["from before"]
            queue.send("t", "with gates")
        assert engine.gates.leave([Held("g", "a", entered.token)]).answers == [True]
    with closing(Queue(url)) as queue:
        assert queue.stats("t").ready == 1
    with closing(sqlite3.connect(path)) as client:
        assert client.execute("pragma user_version").fetchone() == (len(file.MIGRATIONS),)
        assert client.execute("select number from bide_added").fetchall() == [(len(file.ADDITIONS),)]


def test_nothing_is_left_of_gates_in_the_file(engine: Sqlite, path: Path) -> None:
    now = 10_000
    [a, _, _] = engine.gates.enter([Entry("g", "a", 50), Entry("g", "b", 50, waiter="w"), Entry("h", "c", 50)], now=now)
    engine.gates.leave([Held("g", "a", a.token)], now=now)
    engine.gates.spend([Spend("r", 1, 100, holder=each) for each in "abc"], now=now)
    while (next_in := engine.tend(now=now).next_in) is not None:
        now += next_in
    with closing(sqlite3.connect(path)) as client:
        for table in ("bide_gate", "bide_gate_place", "bide_gate_line", "bide_gate_rate", "bide_gate_instant"):
            assert client.execute(f"select count(*) from {table}").fetchone() == (0,), table


def test_places_and_rates_are_set_back_with_the_time_of_the_file(url: str) -> None:
    clock, hour = ManualClock(), 3_600_000
    begin = clock.now_ns() // MS
    place = source(Settings(url=url, clock=clock))
    with closing(place.sync()) as ahead:
        ahead.open()
        ahead.gates.enter([Entry("g", "a", 60_000), Entry("g", "w", 60_000, waiter="w", asks=3_000)], now=begin + hour)
        ahead.gates.spend([Spend("r", 1, 10_000)], now=begin + hour)
    [mended] = place.mend()
    assert mended.name == "mended"
    with closing(place.sync()) as engine:
        engine.open()
        next_in = engine.tend().next_in
        assert next_in is not None
        assert next_in <= 10_000
        [refused] = engine.gates.enter([Entry("g", "b", 60_000)], now=begin + 59_000)
        [let_in] = engine.gates.enter([Entry("g", "b", 60_000)], now=begin + 61_000)
        assert (refused.token is None, let_in.token is None) == (True, False)

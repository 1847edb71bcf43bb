"""Gates in PostgreSQL: its arithmetic of rates, what gates cost when many wait, repeated calls, and the release before."""

from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

import psycopg
import pytest

from bide import Queue
from bide.core.rate import Rate, Spending
from bide.engines.base import Settings
from bide.engines.gates import Entry, Held, Spend
from bide.engines.postgres import source
from bide.engines.postgres.layout import OURS, named
from bide.engines.postgres.sync.engine import Postgres
from tests.postgres.reading import read

FAR = 4_000_000_000_000


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Postgres]:
    with closing(source(Settings(url=postgres_url)).sync()) as engine:
        engine.open()
        yield engine


@pytest.fixture
def client(postgres_url: str, engine: Postgres) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url) as client:
        yield client


@pytest.mark.parametrize("seed", range(4))
def test_the_server_reckons_rates_as_the_core_does(engine: Postgres, seed: int) -> None:
    random, now = Random(seed), FAR
    rates = [Rate(random.choice([1, 3, 99, 100, 101, 250, 999]), random.choice([1, 50, 1_000, 10_000])) for _ in range(3)]
    known: dict[str, Spending] = {}
    kept: dict[tuple[str, str], int] = {}
    for step in range(200):
        now += random.choice([0, 0, 1, 7, 49, 50, 400, 999, 1_000, 9_000])
        spends = [
            Spend(random.choice("rs"), *random.choice(rates), random.choice([1, 2, 90, 400]), random.choice([None, *"abcdef"]))
            for _ in range(random.choice([1, 4]))
        ]
        for spend, spent in zip(spends, engine.gates.spend(spends, now=now), strict=True):
            rate = Rate(spend.count, spend.window)
            spending = known.setdefault(spend.gate, Spending(*rate))
            if spend.holder is None:
                at, next_at = spending.take(rate, spend.want, now, ahead=False)
            else:
                at = [spending.reserve(rate, kept.pop((spend.gate, spend.holder), None), now)]
                if at[0] > now:
                    kept[spend.gate, spend.holder] = at[0]
                _, next_at = spending.take(rate, 0, now, ahead=False)
            assert (spent.at, spent.next_at, spent.now) == (at, next_at, now), (seed, step, spend)


INDEXES = ("gate_pkey", "gate_place_pkey", "gate_line_pkey", "gate_first", "gate_called", "gate_asking", "gate_next")
TABLES = ("gate", "gate_place", "gate_line")


LEAVE = "select bide.leave('request', array[%s], '{first}', array[%s::bigint], 5000, 1000, null)"
ENTER = "select bide.enter(array[%s], '{x}', '{60000}', '{1}', '{w0}', '{3000}', null)"
RECALL = "select bide.recall_gates(1000, 5000, 1000, %s)"


def crowded(engine: Postgres, client: psycopg.Connection[Any], gate: str, waiters: int) -> dict[str, int]:
    """How many entries of each index, and rows of each table, are read to leave a gate at which so many wait, and to enter."""
    [entered] = engine.gates.enter([Entry(gate, "first", 600_000)])
    for begin in range(0, waiters, 1_000):
        engine.gates.enter([Entry(gate, f"h{n}", 600_000, waiter=f"w{n}") for n in range(begin, min(begin + 1_000, waiters))])
    found = {f"leave {name}": read(client, name, LEAVE, gate, entered.token) for name in (*INDEXES, *TABLES)}
    found |= {f"recall {name}": read(client, name, RECALL, FAR) for name in (*INDEXES, *TABLES)}
    [called] = engine.gates.leave([Held(gate, "first", entered.token)]).called
    assert called.waiter == "w0"
    return {**found, **{f"enter {name}": read(client, name, ENTER, gate) for name in (*INDEXES, *TABLES)}}


def test_who_waits_makes_a_gate_no_slower(engine: Postgres, client: psycopg.Connection[Any]) -> None:
    """Nor with the plans that a connection has made while the tables were empty."""
    for n in range(10):
        crowded(engine, client, f"g{n}", 1)
    many = crowded(engine, client, "many", 10_000)
    assert many["leave gate_first"] >= 1
    line = {what: read for what, read in many.items() if what.split()[1] in INDEXES[2:6]}
    assert {what: read for what, read in line.items() if read > 30} == {}  # recall looks at eleven gates


def test_a_place_that_was_left_is_left_once_also_when_the_answer_was_lost(
    engine: Postgres, client: psycopg.Connection[Any]
) -> None:
    [entered, _] = engine.gates.enter([Entry("g", "a", 60_000), Entry("g", "b", 60_000, waiter="w")])
    leave = "select * from bide.leave('request', '{g}', '{a}', array[%s::bigint], 5000, 1000, null)"
    answers = [client.execute(leave.encode(), [entered.token]).fetchall() for _ in range(2)]
    assert answers == [[(1, True, None, None), (1, None, "g", "w")]] * 2


def test_an_entry_that_is_repeated_gets_the_same_token(engine: Postgres) -> None:
    first, again = (engine.gates.enter([Entry("g", "a", 60_000), Entry("h", "a", 60_000)]) for _ in range(2))
    assert first == again


def test_tokens_rise_also_when_the_gate_was_forgotten_at_once(engine: Postgres) -> None:
    now, tokens = FAR, []
    for _ in range(5):
        entered = engine.gates.enter([Entry("g", f"h{n}", 1, places=50) for n in range(50)], now=now)
        tokens += [each.token or "" for each in entered]
        now += 1
        engine.tend(now=now)
    assert tokens == sorted(set(tokens))


def test_the_release_before_moves_messages_until_the_migration_is_finished(
    engine: Postgres, client: psycopg.Connection[Any], postgres_url: str
) -> None:
    move = "select * from bide.reschedule(null, array[%s::bigint], '{null}', '{null}', '{5000}', '{null}', 9000, null)"
    with Queue(postgres_url) as queue:
        sent = queue.send("t", 1)
        # New tables are without the second parts' leftovers, so they are made as an update leaves them
        client.execute(named(OURS.functions, "bide").encode())
        client.execute("update bide.layout set finished = 2")
        assert client.execute(move.encode(), [int(sent.id, 16)]).fetchall() == [("moved",)]
        client.commit()
        assert queue.stats("t").scheduled == 1
        assert source(Settings(url=postgres_url)).migrating().finish() is True
        with pytest.raises(psycopg.errors.UndefinedFunction):
            client.execute(move.encode(), [int(sent.id, 16)])
        assert queue.reschedule(sent.id, delay=0)


def test_nothing_is_left_of_gates_in_the_tables(engine: Postgres, client: psycopg.Connection[Any]) -> None:
    now = FAR
    [a, _, _] = engine.gates.enter([Entry("g", "a", 50), Entry("g", "b", 50, waiter="w"), Entry("h", "c", 50)], now=now)
    engine.gates.leave([Held("g", "a", a.token)], now=now)
    engine.gates.spend([Spend("r", 1, 100, holder=each) for each in "abc"], now=now)
    while (next_in := engine.tend(now=now).next_in) is not None:
        now += next_in
    for table in ("gate", "gate_place", "gate_line", "gate_rate", "gate_instant"):
        assert client.execute(f"select count(*) from bide.{table}".encode()).fetchone() == (0,), table

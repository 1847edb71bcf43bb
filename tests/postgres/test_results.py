"""Kept results in PostgreSQL: in the caller's own transaction, and under the locks of others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from bide import Queue, ResultCancelled, ResultUnknown
from bide.engines.base import Settings
from bide.engines.postgres import source
from bide.engines.postgres.sync.engine import Postgres
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept

FAR = 4_000_000_000_000


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Postgres]:
    made = source(Settings(url=postgres_url)).sync()
    made.open()
    yield made
    made.close()


@pytest.fixture
def own(postgres_url: str, engine: Postgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url) as connection:
        yield connection
        connection.rollback()


def until_somebody_waits_for_a_lock(other: psycopg.Connection, unless: Any) -> None:
    waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    while other.execute(waiting).fetchone() is None:
        assert not unless.done()


def test_a_group_is_sent_with_the_callers_commit(postgres_url: str, own: psycopg.Connection) -> None:
    with Queue(postgres_url) as queue:
        part = queue.task("part", keep="1h")(_part)
        whole = queue.task("whole", keep="1h")(_whole)
        for end in (own.rollback, own.commit):
            parts = part.options(connection=own).send_many({"n": n} for n in range(3))
            last = whole.options(depends_on=parts, connection=own).send()
            end()
            if end == own.rollback:
                with pytest.raises(ResultUnknown):
                    queue.result(last, timeout=0)
        results = queue.session.engine().results
        told = results.fulfil([Kept(each.id, 60_000, b"1") for each in parts])
        assert told == [[last.id]] * 3
        assert results.arrive([Arrival(last.id, each.id) for each in parts])[-1]
        assert queue.cancel(last)
        with pytest.raises(ResultCancelled):
            queue.result(last, timeout=0)


def _part(n: int) -> int:
    return n


def _whole() -> None: ...


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_what_is_done_while_a_transaction_waits_for_it_finds_who_waits(
    engine: Postgres, own: psycopg.Connection, other: psycopg.Connection, end: str
) -> None:
    engine.results.expect([Expected("a", FAR)])
    assert engine.results.follow([Follow("", "a", 0)], connection=own) == [False]
    engine.results.expect([Dependent("d", ("a",), FAR)], connection=own)
    with ThreadPoolExecutor(1) as threads:
        fulfilling = threads.submit(engine.results.fulfil, [Kept("a", 60_000, b"1")])
        until_somebody_waits_for_a_lock(other, fulfilling)
        getattr(own, end)()
        assert fulfilling.result() == [["d"] if end == "commit" else []]


def test_two_that_arrive_at_once_are_seen_by_one_of_them(
    postgres_url: str, engine: Postgres, own: psycopg.Connection, other: psycopg.Connection
) -> None:
    engine.results.expect([Dependent("d", ("a", "b"), FAR)])
    own.execute("select * from bide.arrive(array['d'], array['a'], null)")
    with ThreadPoolExecutor(1) as threads:
        arriving = threads.submit(engine.results.arrive, [Arrival("d", "b")])
        until_somebody_waits_for_a_lock(other, arriving)
        own.commit()
        assert arriving.result() == [True]


def test_what_is_over_is_removed_though_others_hold_a_part_of_it(
    engine: Postgres, own: psycopg.Connection, other: psycopg.Connection
) -> None:
    engine.results.expect([Expected(id, 1) for id in ("a", "b", "c")])
    engine.results.expect([Dependent(id, ("a", "b"), 1) for id in ("d", "e")])
    own.execute("select from bide.result where message = 'b' for update")
    while engine.tend(1).more:
        pass
    assert other.execute("select message from bide.result").fetchall() == [("b",)]
    assert other.execute("select count(*) from bide.waiting").fetchone() == (0,)
    own.rollback()
    assert not engine.tend().more
    assert other.execute("select count(*) from bide.result").fetchone() == (0,)

"""Statements that a connection has asked before: what it knows of them may have changed meanwhile."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from bide import OutcomeUnknown
from bide.engines.base import Claimed, End, NewMessage
from bide.engines.postgres.failures import is_forgotten
from bide.engines.postgres.statements import Limited
from bide.engines.postgres.sync.engine import Postgres
from tests.postgres.test_lock_order import opened

ASKED = "select * from f(%s::int)"
ALWAYS_PREPARED = 7  # calls: more than psycopg waits for


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Postgres]:
    made = opened(f"{postgres_url}{'&' if '?' in postgres_url else '?'}timeout=1")
    yield made
    made.close()


def fresh(engine: Postgres, count: int) -> list[Claimed]:
    engine.put([NewMessage("t", b"%d" % number) for number in range(count)])
    return list(engine.claim(["t"], count, 600_000).messages)


def ack(engine: Postgres, messages: list[Claimed]) -> list[str]:
    return list(engine.settle([End(each.topic, each.id, each.token, "done") for each in messages]))


def asked_anew(ours: Limited) -> list[Any]:
    """As the engine does by another connection."""
    with pytest.raises(psycopg.errors.FeatureNotSupported) as told:
        ours.ask(ASKED, [7])
    assert is_forgotten(told.value)
    ours.execute("deallocate all")
    ours._statements = None
    return ours.ask(ASKED, [7])


def used(engine: Postgres) -> None:
    for _ in range(ALWAYS_PREPARED):
        assert ack(engine, fresh(engine, 2)) == ["done", "done"]


@pytest.mark.parametrize("calls", [1, 2, ALWAYS_PREPARED])
@pytest.mark.parametrize("pooled", [False, True])
def test_columns_may_change_while_a_connection_is_open(postgres_url: str, calls: int, pooled: bool) -> None:
    """A release to come may change what a function returns. psycopg reads beyond the end of what it has not looked at."""
    make = "drop function if exists f(int); create function f(a int) returns table ({}) language sql as $$select {}$$"
    with psycopg.connect(postgres_url, autocommit=True) as other, Limited.connect(postgres_url, autocommit=True) as ours:
        if pooled:
            ours.prepare_threshold = None
        for columns, values, answer in [
            ("x int", "a", (7,)),
            ("x int, y text, z bigint", "a, 'abc', 5000000000", (7, "abc", 5_000_000_000)),
            ("x bigint", "5000000000", (5_000_000_000,)),
            ("x int", "a", (7,)),
            ("x text", "'abcde'", ("abcde",)),
        ]:
            other.execute(make.format(columns, values).encode())
            prepared_before = not pooled and ours._statements is not None and ours._statements._prepared > 0
            for _ in range(calls):
                rows = asked_anew(ours) if prepared_before else ours.ask(ASKED, [7])
                prepared_before = False
                assert rows == [answer]


@pytest.mark.parametrize("what", ["deallocate all", "discard all"])
def test_a_connection_that_has_forgotten_its_statements_is_left(engine: Postgres, what: str) -> None:
    used(engine)
    forgetful = list(engine._connections._idle)
    for each in forgetful:
        each.execute(what.encode())
    used(engine)
    assert forgetful
    assert all(each.closed for each in forgetful)


def test_statements_that_the_server_does_not_prepare_take_no_place(postgres_url: str) -> None:
    with Limited.connect(postgres_url, autocommit=True) as ours:
        for _ in range(ALWAYS_PREPARED):
            ours.ask("select %s::int", [1])
        assert ours._statements is not None
        before = ours._statements._prepared
        for _ in range(2 * ALWAYS_PREPARED):
            with pytest.raises(psycopg.errors.UndefinedTable):
                ours.ask("select * from gone_by_now where %s", [True])
        assert (before, ours._statements._prepared) == (1, 1)


def test_an_ack_that_comes_late_ends_nothing_that_its_caller_was_told_has_not_ended(
    engine: Postgres, postgres_url: str
) -> None:
    """The server's process stands still before it reads the ack, which is asked again meanwhile, while a message is locked."""
    used(engine)
    first, second = sorted(fresh(engine, 2), key=lambda message: message.id)
    [connection] = engine._connections._idle
    pid = connection.info.backend_pid
    with psycopg.connect(postgres_url) as other:
        other.execute("update bide.message set until = until + 1 where id = (select max(id) from bide.message)")
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(OutcomeUnknown) as told:
                ack(engine, [first, second])
            other.commit()
        finally:
            os.kill(pid, signal.SIGCONT)
        _until_gone(other, pid)
    assert told.value.answers == ["done", None]
    assert ack(engine, [second]) == ["done"]


def _until_gone(other: "psycopg.Connection[object]", pid: int) -> None:
    while other.execute("select 1 from pg_stat_activity where pid = %s", [pid]).fetchone():
        other.commit()

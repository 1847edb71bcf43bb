"""The PgBouncer that tests start lends server connections for a transaction."""

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.servers.fixtures import NewPgBouncer, NewPostgres
from tests.servers.pgbouncer import PgBouncer
from tests.servers.processes import ended

BACKEND = "SELECT pg_backend_pid()"


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True, prepare_threshold=None)


def backends(*clients: psycopg.Connection) -> list[int]:
    """Which server connection serves each, asked by turns."""
    return [row[0] for client in clients if (row := client.execute(BACKEND).fetchone())]


def test_it_lends_a_server_connection_for_a_transaction(new_postgres: NewPostgres, new_pgbouncer: NewPgBouncer) -> None:
    url = new_pgbouncer(new_postgres()).url
    with connect(url) as first, connect(url) as second:
        assert len(set(backends(first, second, first))) == 1
        with first.transaction():
            assert len(set(backends(first, second, first))) == 2


def test_settings_reach_it(new_postgres: NewPostgres, new_pgbouncer: NewPgBouncer) -> None:
    url = new_pgbouncer(new_postgres(), pool_mode="session").url
    with connect(url) as first, connect(url) as second:
        assert len(set(backends(first, second, first))) == 2


def test_only_those_with_the_password_may_enter(new_postgres: NewPostgres, new_pgbouncer: NewPgBouncer) -> None:
    pool = new_pgbouncer(new_postgres(password="a:b"))
    with connect(pool.url) as client:
        assert backends(client)
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        connect(pool.url.replace(":a%3Ab", ":wrong"))


def test_a_shared_one_leads_to_the_database_of_the_test(pgbouncer_url: str, postgres_url: str) -> None:
    assert pgbouncer_url != postgres_url
    with connect(pgbouncer_url) as pooled, connect(postgres_url) as direct:
        pooled.execute("CREATE TABLE things ()")
        assert direct.execute("TABLE things").fetchall() == []


def test_a_restart_keeps_the_port(new_postgres: NewPostgres, new_pgbouncer: NewPgBouncer) -> None:
    pool = new_pgbouncer(new_postgres())
    before, url = pool.pid, pool.url
    with closing(connect(url)) as client:
        pool.restart()
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    assert (pool.pid != before, pool.url) == (True, url)
    with connect(url) as client:
        assert backends(client)


@pytest.mark.usefixtures("new_pgbouncer")
@pytest.mark.parametrize("state", ["running", "killed"])
def test_nothing_is_left_of_it(new_postgres: NewPostgres, state: str) -> None:
    with PgBouncer(new_postgres()) as pool:
        pid, folder = pool.pid, pool.folder
        assert Path(f"/proc/{pid}").stat().st_uid != 0
        if state == "killed":
            pool.kill()
    assert ended(pid)
    assert not folder.exists()

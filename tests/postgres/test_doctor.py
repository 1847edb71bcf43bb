"""What `bide doctor` says of a database."""

from collections.abc import Mapping

import psycopg

from bide import Queue
from bide.engines.base import Finding, Settings
from bide.engines.postgres import source


def examined(url: str) -> Mapping[str, Finding]:
    return {each.name: each for each in source(Settings(url=url)).examine()}


def test_a_new_database_is_looked_at_and_left_alone(postgres_url: str) -> None:
    found = examined(postgres_url)
    assert found["server"].value.startswith("PostgreSQL ")
    assert "no schema bide yet" in found["layout"].value
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("select 1 from pg_namespace where nspname = 'bide'").fetchone() is None


def test_a_queue_at_work_is_well(postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        queue.send("t", 1, delay="1h")
        found = examined(postgres_url)
    assert found["layout"].value == "1 of 1"
    assert found["rights"].value == "all that a worker needs"
    assert found["plan of a claim"].value == "a walk along the index by due time"
    assert found["engine time"].value == "as the server's clock"
    assert {"table message", "table dead", "table answer", "locks", "oldest overdue", "autovacuum"} <= set(found)
    assert [each for each in found.values() if each.level == "bad" and each.name != "fsync"] == []  # the tests' server is fast


def test_an_old_transaction_is_named(postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        queue.send("t", 1)
    with psycopg.connect(postgres_url, application_name="report") as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select pg_sleep(1.1)")
        told = examined(postgres_url)["oldest transaction"].value
        assert f"pid {other.info.backend_pid}" in told
    assert "program report, idle in transaction" in told


def test_engine_time_that_is_ahead_is_told(postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        queue.send("t", 1)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("select setval('bide.mark', last_value + 3600000000) from bide.mark")
    told = examined(postgres_url)["engine time"]
    assert (told.level, "ahead of the server's clock" in told.value) == ("warn", True)


def test_rights_that_are_missing_are_named(postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        queue.send("t", 1)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create role modest login")
        connection.execute("grant usage on schema bide to modest")
        connection.execute("grant select on all tables in schema bide to modest")
        host, port = connection.info.host, connection.info.port
        database = connection.info.dbname
    told = examined(f"postgres://modest@{host}:{port}/{database}")["rights"]
    assert told.level == "bad"
    assert "message" in told.value

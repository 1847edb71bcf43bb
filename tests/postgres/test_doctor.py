"""What `bide doctor` says of a database."""

from collections.abc import Mapping

import psycopg
import pytest

from bide import Queue
from bide.engines.base import Finding, Settings
from bide.engines.postgres import source
from bide.engines.postgres.layout import OURS
from tests.servers.fixtures import NewPostgres, NewStandby


def examined(url: str, namespace: str = "bide") -> Mapping[str, Finding]:
    return {each.name: each for each in source(Settings(url=url, namespace=namespace)).examine()}


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
    assert found["layout"].value == f"{OURS.number} of {OURS.number}"
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


@pytest.mark.parametrize("namespace", ["bide", "My-Shop.1"])
def test_a_queue_at_work_gives_no_warning_in_any_namespace(namespace: str, postgres_url: str) -> None:
    with Queue(postgres_url, namespace=namespace) as queue, psycopg.connect(postgres_url) as mine:
        queue.send("t", 1, delay="1h")
        queue.send("t", 1, delay="1h", key="k", connection=mine)
        found = examined(postgres_url, namespace)
    assert {"rights", "locks", "layout", "plan of a claim", "engine time", "oldest overdue", "connections"} <= set(found)
    assert [each for each in found.values() if each.level != "ok" and each.name != "fsync"] == []


def test_a_transaction_that_has_written_and_waits_is_named(postgres_url: str) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as other:
        queue.send("t", 1, connection=other)
        other.execute("select pg_sleep(1.1)")
        assert f"pid {other.info.backend_pid}" in examined(postgres_url)["oldest transaction"].value


def test_a_user_who_sees_no_other_ones_is_told_so(postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        queue.send("t", 1)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create role modest login")
    told = examined(postgres_url.replace("postgres@", "modest@"))
    assert "pg_read_all_stats" in told["oldest transaction"].value
    assert "pg_read_all_stats" not in examined(postgres_url)["oldest transaction"].value


def test_a_user_who_may_not_make_the_tables_is_told_so(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create role modest login")
    assert "made on first use" in examined(postgres_url)["layout"].value
    for url in (postgres_url.replace("postgres@", "modest@"), f"{postgres_url}?migrate=0"):
        told = examined(url)["layout"]
        assert (told.level, "run `bide migrate` as a user who may create it" in told.advice) == ("bad", True)


def test_a_refused_login_is_not_taken_for_a_server_that_is_down(postgres_url: str) -> None:
    told = examined(f"{postgres_url.rpartition('/')[0]}/nowhere")["state"]
    assert (told.level, told.advice) == ("bad", "change the URL, or the user's rights on the server")


@pytest.mark.parametrize("name", OURS.indexes("bide"))
def test_an_index_that_is_missing_is_named_with_its_cure(name: str, postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        queue.send("t", 1)
    assert f"index {name}" not in examined(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        if name.endswith("_pkey"):
            connection.execute(f"alter table bide.{name.removesuffix('_pkey')} drop constraint {name}".encode())
        else:
            connection.execute(f"drop index bide.{name}".encode())
        told = examined(postgres_url)[f"index {name}"]
        assert told.level == "bad"
        connection.execute(told.advice.partition("run: ")[2].encode())
    assert f"index {name}" not in examined(postgres_url)


def test_a_table_that_is_never_vacuumed_is_named(postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        queue.send("t", 1)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("alter table bide.message set (autovacuum_enabled = off)")
    assert examined(postgres_url)["autovacuum of message"].level == "bad"


def test_a_right_to_call_functions_that_is_missing_is_named(postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        queue.send("t", 1)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create role modest login")
        connection.execute("grant usage on schema bide to modest")
        connection.execute("grant select, insert, update, delete on all tables in schema bide to modest")
        connection.execute("grant select, usage, update on all sequences in schema bide to modest")
        modest = postgres_url.replace("postgres@", "modest@")
        assert examined(modest)["rights"].value == "all that a worker needs"
        connection.execute("revoke execute on function bide.tend from public")
    told = examined(modest)["rights"]
    assert (told.level, told.value) == ("bad", "lacking: tend()")


def test_what_a_server_lacks_is_named(new_postgres: NewPostgres, new_standby: NewStandby) -> None:
    server = new_postgres(max_connections=12, max_prepared_transactions=5)
    with Queue(server.url) as queue:
        queue.send("t", 1, delay="1h")
        well = examined(server.url)
        assert [each for each in well.values() if each.level != "ok" and each.name != "fsync"] == []
        server.ask("begin; create table x (); prepare transaction 'x'")
        assert examined(server.url)["prepared transactions"].level == "ok"
        others = [server.client() for _ in range(7)]
        assert examined(server.url)["connections"].level == "warn"
        for each in others:
            each.close()
        server.ask("select pg_create_physical_replication_slot('left', true)")
        assert "replication slot" not in examined(server.url)
        server.ask("alter system set synchronous_standby_names = 'one'")
        server.ask("select pg_reload_conf()")
        with server.client() as waiting:
            waiting.execute("set synchronous_commit = local")
            while waiting.execute("show synchronous_standby_names").fetchone() != ("one",):
                pass
        told = examined(server.url)["replicas"]
        assert (told.level, told.value) == ("bad", "none that is synchronous, of 0")


def test_a_question_that_takes_too_long_is_told(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as other:
        queue.send("t", 1)
        other.execute("lock table bide.topic in access exclusive mode")
        monkeypatch.setattr("bide.engines.postgres.doctor.PATIENCE", 0.3)
        assert "took too long" in examined(postgres_url)["oldest overdue"].value


def test_a_question_that_takes_too_long_hides_no_other_finding(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as other:
        queue.send("t", 1)
        other.execute("lock table bide.message in access exclusive mode")
        monkeypatch.setattr("bide.engines.postgres.doctor.PATIENCE", 0.5)
        found = examined(postgres_url)
    assert "took too long" in found["tables"].value
    assert found["engine time"].value == "as the server's clock"


def test_what_a_user_may_not_ask_is_not_known(postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        queue.send("t", 1)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create role modest login")
    found = examined(postgres_url.replace("postgres@", "modest@"))
    assert found["layout"].value == "not known: the question took too long, or this user may not ask it"
    assert found["rights"].level == "bad"

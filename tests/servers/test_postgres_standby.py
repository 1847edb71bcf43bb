"""The standby that tests start follows its primary, and takes its place."""

from contextlib import closing

import psycopg
import pytest

from tests.servers.fixtures import NewPostgres, NewStandby

WAITS_FOR = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"


def test_it_follows_its_primary_and_takes_no_writes(new_postgres: NewPostgres, new_standby: NewStandby) -> None:
    primary = new_postgres(password="secret", work_mem="1MB")
    standby = new_standby(primary)
    primary.ask("CREATE TABLE things ()")
    standby.wait_until_caught_up()
    with psycopg.connect(standby.url, autocommit=True) as client:
        assert client.execute("TABLE things").fetchall() == []
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            client.execute("DROP TABLE things")
    assert standby.ask("SHOW work_mem") == [("1MB",)]


def test_it_takes_the_place_of_a_killed_primary(new_postgres: NewPostgres, new_standby: NewStandby) -> None:
    primary = new_postgres()
    standby = new_standby(primary)
    primary.ask("CREATE TABLE things ()")
    standby.wait_until_caught_up()
    primary.kill()
    standby.promote()
    standby.ask("DROP TABLE things")
    standby.restart()
    assert standby.ask("SELECT pg_is_in_recovery(), to_regclass('things') IS NULL") == [(False, True)]


def test_a_commit_waits_for_a_synchronous_one(new_postgres: NewPostgres, new_standby: NewStandby) -> None:
    primary = new_postgres()
    standby = new_standby(primary)
    standby.make_synchronous()
    primary.ask("CREATE TABLE things (number int)")
    standby.freeze()
    with closing(psycopg.connect(primary.url, autocommit=True)) as client:
        client.pgconn.send_query(b"INSERT INTO things VALUES (1)")
        while primary.ask(WAITS_FOR, client.info.backend_pid) != [("SyncRep",)]:
            pass
        standby.thaw()
        results = [client.pgconn.get_result(), client.pgconn.get_result()]
        assert [result and result.command_status for result in results] == [b"INSERT 0 1", None]
    primary.kill()
    standby.promote()
    assert standby.ask("TABLE things") == [(1,)]

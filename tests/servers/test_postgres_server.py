"""The PostgreSQL servers that tests start do what they are told."""

import os
import signal
import socket
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.servers import postgres_data, programs
from tests.servers import server as servers
from tests.servers.fixtures import NewPostgres
from tests.servers.postgres import DATABASES, PostgresServer
from tests.servers.processes import children, ended
from tests.servers.programs import needs_postgres, postgres_folder
from tests.servers.server import HOST, NotStarted, free_port


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True)


def test_it_answers_at_its_url_and_at_its_socket(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    with connect(server.url) as client:
        row = client.execute("SELECT current_user, current_database(), inet_server_port()").fetchone()
        assert row == ("postgres", "postgres", server.port)
    assert server.ask("SELECT inet_server_addr()") == [(None,)]
    assert "ready to accept connections" in server.log_text()


def test_it_does_not_run_as_root(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    assert Path(f"/proc/{server.pid}").stat().st_uid == server.data.stat().st_uid != 0


def test_settings_reach_it(new_postgres: NewPostgres) -> None:
    server = new_postgres(work_mem="1MB", fsync=True, application_name="it's \\ me", jit=False)
    shown = {name: server.ask(f"SHOW {name}")[0][0] for name in ("work_mem", "fsync", "jit", "max_connections")}
    assert shown == {"work_mem": "1MB", "fsync": "on", "jit": "off", "max_connections": "200"}
    with connect(server.url) as client:
        row = client.execute("SELECT reset_val FROM pg_settings WHERE name = 'application_name'").fetchone()
        assert row == ("it's \\ me",)


def test_nothing_is_synced_unless_asked_for(new_postgres: NewPostgres) -> None:
    assert new_postgres().ask("SHOW fsync") == [("off",)]


def test_only_those_with_the_password_may_enter(new_postgres: NewPostgres) -> None:
    server = new_postgres(password="a:b/c@d")
    for url in (server.url, server.database("other")):
        with connect(url) as client:
            assert client.execute("SELECT 1").fetchone() == (1,)
        for wrong in (url.replace(":a%3Ab%2Fc%40d", ""), url.replace("d@", "e@")):
            assert wrong != url
            with pytest.raises(psycopg.OperationalError, match="password"):
                connect(wrong)
    assert server.ask("SELECT left(rolpassword, 13) FROM pg_authid WHERE rolname = 'postgres'") == [("SCRAM-SHA-256",)]


def test_a_database_is_empty_and_its_own(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    with connect(server.database("first")) as first, connect(server.database("second")) as second:
        first.execute("CREATE TABLE things ()")
        with pytest.raises(psycopg.errors.UndefinedTable):
            second.execute("TABLE things")


@pytest.mark.parametrize("time", ["first", "second"])
def test_each_test_has_an_empty_database_and_no_roles(postgres_server: PostgresServer, postgres_url: str, time: str) -> None:
    with connect(postgres_url) as client:
        client.execute("CREATE TABLE things ()")
        client.execute("CREATE ROLE ann LOGIN")
        client.execute("ALTER TABLE things OWNER TO ann")
        client.execute(b"CREATE DATABASE " + time.encode())
    with connect(postgres_url) as left:  # by a test that does not clean up
        postgres_server.drop_all()
        assert postgres_server.ask(DATABASES) == []
        with pytest.raises(psycopg.errors.AdminShutdown):
            left.execute("SELECT 1")


def test_a_frozen_one_does_not_answer_until_it_thaws(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    with closing(connect(server.url)) as client:
        server.freeze()
        client.pgconn.send_query(b"SELECT 1")
        with socket.socket(fileno=os.dup(client.pgconn.socket)) as line:
            line.settimeout(0.1)
            with pytest.raises(TimeoutError):
                line.recv(1, socket.MSG_PEEK)
            line.settimeout(None)
            server.thaw()
            assert line.recv(1, socket.MSG_PEEK)
    assert server.ask("SELECT 1") == [(1,)]


def test_a_restart_keeps_the_port_the_folder_and_the_data(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    before = server.pid, server.url, server.folder
    server.ask("CREATE TABLE things ()")
    with connect(server.url) as client:
        server.restart()
        with pytest.raises(psycopg.errors.AdminShutdown):
            client.execute("SELECT 1")
    assert server.pid != before[0]
    assert (server.url, server.folder) == before[1:]
    assert server.ask("TABLE things") == []
    assert "database system was shut down at" in server.log_text()


def test_a_kill_ends_all_its_processes_and_loses_no_commit(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    with closing(connect(server.url)) as client, closing(connect(server.url)) as busy:
        client.execute("CREATE TABLE things (number int)")
        client.execute("INSERT INTO things VALUES (1)")
        # One that is not told by the end of the postmaster, since it never waits.
        busy.pgconn.send_query(b"DO 'BEGIN LOOP END LOOP; END'")
        pids = [server.pid, client.info.backend_pid, busy.info.backend_pid, *children(server.pid)]
        server.kill()
        assert all(ended(pid) for pid in pids)
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        connect(server.url)
    server.start()
    assert server.ask("TABLE things") == [(1,)]
    assert "database system was not properly shut down" in server.log_text()


def segments() -> list[str]:
    """What shared memory there is, as its numbers."""
    return [line.split()[1] for line in Path("/proc/sysvipc/shm").read_text(encoding="utf-8").splitlines()[1:]]


@pytest.mark.usefixtures("new_postgres")
@pytest.mark.parametrize("state", ["running", "frozen", "stopped", "killed"])
def test_nothing_is_left_of_it(state: str) -> None:
    with PostgresServer() as server, connect(server.url):
        pids, folder = [server.pid, *children(server.pid)], server.folder
        memory = (server.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[6].split()[1]
        assert memory in segments()
        if state == "frozen":
            server.freeze()
        if state == "stopped":
            server.stop()
        if state == "killed":
            server.kill()
    assert all(ended(pid) for pid in pids)
    assert memory not in segments()
    assert not folder.exists()
    assert not server.running


def test_one_that_does_not_hear_is_ended_all_the_same(new_postgres: NewPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    server = new_postgres(patience=0.5)
    pids = [server.pid, *children(server.pid)]
    monkeypatch.setattr(signal, "SIGINT", signal.SIGCONT)  # so that it is never told
    server.stop()
    assert all(ended(pid) for pid in pids)


def test_a_setting_that_it_refuses_is_told_with_its_log(new_postgres: NewPostgres) -> None:
    with pytest.raises(NotStarted, match=r"(?s)ended at once.*no_such_setting"):
        new_postgres(no_such_setting="1")


def test_a_port_that_was_taken_meanwhile_is_not_the_end(new_postgres: NewPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port()
    with socket.create_server((HOST, 0)) as taken:
        ports = iter([taken.getsockname()[1], free])
        monkeypatch.setattr(servers, "free_port", lambda: next(ports))
        assert new_postgres().port == free


@pytest.mark.usefixtures("postgres_server")
def test_the_data_of_an_empty_server_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[str] = []
    run = postgres_data.run

    def counted(*command: str | Path, cwd: Path) -> None:
        commands.append(Path(command[0]).name)
        run(*command, cwd=cwd)

    monkeypatch.setattr(postgres_data, "run", counted)
    with PostgresServer(), PostgresServer():
        assert commands == ["cp", "cp"]


def test_the_newest_of_debians_is_taken_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "DEBIAN", tmp_path)
    monkeypatch.delenv("BIDE_TEST_POSTGRES", raising=False)
    for version in ("9", "15", "16"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        (folder / "postgres").touch(mode=0o755)
        if version != "16":  # of which only a part is installed
            (folder / "initdb").touch(mode=0o755)
    assert postgres_folder() == tmp_path / "15" / "bin"
    monkeypatch.setenv("BIDE_TEST_POSTGRES", str(tmp_path / "9" / "bin"))
    assert postgres_folder() == tmp_path / "9" / "bin"


def test_a_missing_server_skips_the_test_or_fails_it_under_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDE_TEST_POSTGRES", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="PostgreSQL is not in"):
        needs_postgres()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="PostgreSQL is not in"):
        needs_postgres()
    (tmp_path / "postgres").touch(mode=0o755)
    needs_postgres()


def test_those_that_need_a_server_are_marked(request: pytest.FixtureRequest, postgres_url: str) -> None:
    assert request.node.get_closest_marker("server")

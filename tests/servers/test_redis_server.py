"""The servers that tests start do what they are told."""

import os
import signal
import socket
from pathlib import Path

import pytest
import redis

from tests.servers import server as servers
from tests.servers.certificates import Certificates, make_certificates
from tests.servers.fixtures import NewRedis
from tests.servers.programs import needs_program
from tests.servers.redis import RedisServer
from tests.servers.server import HOST, NotStarted


def test_it_answers_at_its_url_and_at_its_socket(new_redis: NewRedis) -> None:
    server = new_redis()
    with redis.Redis.from_url(server.url) as client, redis.Redis(unix_socket_path=str(server.socket_path)) as local:
        assert client.ping()
        assert local.info("server")["process_id"] == server.pid
    assert "Ready to accept connections" in server.log_text()


def test_settings_reach_it(new_redis: NewRedis) -> None:
    server = new_redis(maxmemory="8mb", requirepass="secret", save=["60 1", "900 2"])
    with server.client() as client:
        assert client.config_get("maxmemory") == {"maxmemory": "8388608"}
        assert client.config_get("save") == {"save": "60 1 900 2"}
    with server.client(password=None) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


def test_users_come_from_a_file(new_redis: NewRedis, tmp_path: Path) -> None:
    file = tmp_path / "users.acl"
    file.write_text("user default off\nuser ann on >secret ~bide:* &* +@all\n", encoding="utf-8")
    with new_redis(aclfile=file).client(username="ann", password="secret") as ann:
        ann.set("bide:1", "x")
        with pytest.raises(redis.exceptions.NoPermissionError):
            ann.set("other", "x")


def test_nothing_is_saved_unless_asked_for(new_redis: NewRedis) -> None:
    for appendonly, left in (("no", None), ("yes", b"x")):
        server = new_redis(appendonly=appendonly)
        with server.client() as client:
            client.set("key", "x")
        server.restart()
        with server.client() as client:
            assert client.get("key") == left


def test_a_frozen_one_does_not_answer_until_it_thaws(new_redis: NewRedis) -> None:
    server = new_redis()
    with server.client(socket_timeout=0.1) as client:
        assert client.ping()
        server.freeze()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.thaw()
    with server.client() as client:
        assert client.ping()


def test_a_restart_keeps_the_port_and_the_folder(new_redis: NewRedis) -> None:
    server = new_redis()
    before = server.pid, server.port, server.folder
    server.restart()
    assert server.pid != before[0]
    assert (server.port, server.folder) == before[1:]
    with server.client() as client:
        assert client.ping()


@pytest.mark.usefixtures("new_redis")
@pytest.mark.parametrize("state", ["running", "frozen", "killed"])
def test_nothing_is_left_of_it(state: str) -> None:
    with RedisServer() as server:
        pid, folder = server.pid, server.folder
        if state == "frozen":
            server.freeze()
        if state == "killed":
            server.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not folder.exists()
    assert not server.running


def test_one_that_does_not_hear_is_ended_all_the_same(new_redis: NewRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    server = new_redis(patience=0.5)
    pid = server.pid
    monkeypatch.setattr(signal, "SIGTERM", signal.SIGCONT)  # so that it is never told
    server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_setting_that_it_refuses_is_told_with_its_log(new_redis: NewRedis) -> None:
    with pytest.raises(NotStarted, match=r"(?s)ended at once.*no-such-setting"):
        new_redis(no_such_setting="1")


def test_a_port_that_was_taken_meanwhile_is_not_the_end(new_redis: NewRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    free = servers.free_port()
    with socket.create_server((HOST, 0)) as taken:
        ports = iter([taken.getsockname()[1], free])
        monkeypatch.setattr(servers, "free_port", lambda: next(ports))
        assert new_redis().port == free


def test_it_counts_commands(redis_server: RedisServer, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("key", "x")
        client.get("key")
        client.get("key")
    counted = redis_server.commandstats()
    assert (counted["set"]["calls"], counted["get"]["calls"]) == (1, 2)


@pytest.mark.parametrize("time", ["first", "second"])
def test_the_shared_one_is_empty_for_each_test(redis_server: RedisServer, redis_url: str, time: str) -> None:
    assert "set" not in redis_server.commandstats()
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        assert client.acl_log() == []
        client.set(time, "x")
        with pytest.raises(redis.AuthenticationError):
            client.execute_command("AUTH", "ann", "wrong")
        assert client.acl_log()


def call(server: RedisServer, trusted: Certificates, shown: Certificates | None = None) -> bool:
    options = {} if shown is None else {"ssl_certfile": str(shown.client), "ssl_keyfile": str(shown.client_key)}
    with redis.Redis.from_url(server.tls_url, ssl_ca_certs=str(trusted.authority), **options) as client:
        return bool(client.ping())


def test_tls_is_spoken_with_those_who_trust_it(new_redis: NewRedis, tmp_path: Path) -> None:
    ours, other = make_certificates(tmp_path / "ours"), make_certificates(tmp_path / "other")
    server = new_redis(tls=ours)
    assert call(server, ours)
    with pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        call(server, other)
    server.restart()
    assert call(server, ours)


def test_tls_refuses_a_stranger(new_redis: NewRedis, tmp_path: Path) -> None:
    ours, other = make_certificates(tmp_path / "ours"), make_certificates(tmp_path / "other")
    server = new_redis(tls=ours, tls_clients=True)
    assert call(server, ours, ours)
    for stranger in (None, other):
        with pytest.raises(redis.ConnectionError):
            call(server, ours, stranger)
    assert call(server, ours, ours)


def test_a_missing_program_skips_the_test_or_fails_it_under_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "redis-server"
    monkeypatch.setenv("PATH", str(tmp_path))
    for ci in ("", None):
        monkeypatch.delenv("CI", raising=False) if ci is None else monkeypatch.setenv("CI", ci)
        with pytest.raises(pytest.skip.Exception, match="redis-server is not on the PATH"):
            needs_program("redis-server")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="redis-server is not on the PATH"):
        needs_program("redis-server")
    program.touch(mode=0o755)
    assert needs_program("redis-server") == str(program)


def test_those_that_need_a_server_are_marked(request: pytest.FixtureRequest, redis_url: str) -> None:
    assert request.node.get_closest_marker("server")

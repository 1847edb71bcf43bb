"""`bide doctor` on a Redis server: it tells, changes nothing, and takes no for an answer."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bide import Finding, Outgoing, Queue
from bide.engines.base import Settings
from bide.engines.redis import location
from bide.engines.redis.doctor import checks, visits
from bide.engines.redis.doctor.visits import Look
from bide.engines.redis.location import read
from bide.engines.redis.namespace import Namespace, ServerClock
from bide.engines.redis.protocol.encoding import LAYOUT
from bide.engines.redis.server import Server
from tests.servers.certificates import make_certificates
from tests.servers.fixtures import NewRedis
from tests.servers.programs import is_redis_6
from tests.servers.redis import RedisServer

NAMES = {
    "server", "mode", "rights", "layout", "memory", "eviction", "persistence", "replicas", "waking", "clock", "engine time",
    "slow scripts", "messages", "connections",
}  # fmt: skip
OF_COPIES = {"lag", "copies", "confirm", "versions"}
OF_CLUSTERS = {"cluster", "slots", "nodes", "shards", "moving"}
OF_PROXIES = {"shards", "not seen"}
OF_SENTINELS = {"sentinels", "master", "quorum", "down-after", "nodes"}
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "redis.md").read_text(encoding="utf-8")
META = "{bide:0}:meta"
BUSY = "local t repeat t = redis.call('TIME') until t[1] * 1000000 + t[2] >= tonumber(ARGV[1]) return 1"


def found(url: str, **options: Any) -> dict[str, Finding]:
    return {each.name: each for each in Queue(url, **options).examine()}


def queue_finding(queue: Queue, name: str) -> Finding:
    [finding] = [each for each in queue.examine() if each.name == name]
    return finding


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "bide", "doctor", *arguments], capture_output=True, text=True, check=False)


def test_a_healthy_server_is_described_and_not_changed(new_redis: NewRedis) -> None:
    server = new_redis(maxmemory="64mb", appendonly="yes", appendfsync="always")
    with Queue(server.url) as queue, server.client() as client:
        queue.send_many("t", range(1_000))
        client.slowlog_reset()  # a busy machine makes scripts slow
        before = {key: client.dump(key) for key in client.scan_iter()}
        seen = {each.name: each for each in queue.examine()}
        assert {key: client.dump(key) for key in client.scan_iter()} == before
        info = client.info("server")
    assert seen.keys() == NAMES
    assert [each for each in seen.values() if each.level != "ok" and not (each.name == "server" and is_redis_6())] == []
    own = f"Valkey {info['valkey_version']} (as Redis {info['redis_version']})" if "valkey_version" in info else ""
    assert seen["server"].value == f"{own or 'Redis ' + info['redis_version']} at {server.url}"
    assert (seen["mode"].value, seen["layout"].value, seen["eviction"].value) == ("standalone", LAYOUT, "noeviction")
    assert seen["rights"].value == "all that a worker needs"
    assert seen["persistence"].value == "an append-only file, synced with each command: a crash loses nothing"
    assert seen["memory"].value.endswith("left of maxmemory")
    assert seen["connections"].value == "1 named bide beside this one, 3 in all"
    kept, _, rest = seen["messages"].value.partition(", about ")
    assert kept == "1,000"
    assert 5 < int(rest.split()[0]) < 500


@pytest.mark.parametrize("keys", [False, True])
def test_what_a_message_takes_is_about_what_all_keys_take(redis_server: RedisServer, redis_url: str, keys: bool) -> None:
    """Though one of some keys is as large as hundreds of the others."""
    with Queue(redis_url) as queue, redis_server.client() as client:
        for i in range(20):
            new = [Outgoing("x" * 100, key=f"order:{i * 1_000 + n}" if keys else None, delay=60 * n) for n in range(1_000)]
            queue.send_many("t", new)
        seen = [queue_finding(queue, "messages").value.rpartition("about ")[2] for _ in range(5)]
        truth = sum(client.memory_usage(key, samples=0) for key in client.scan_iter(count=1_000)) / 20_000
    ratios = sorted(int(each.split()[0]) / truth for each in seen)
    assert 0.85 < ratios[2] < 1.15
    assert 0.7 < ratios[0] <= ratios[-1] < 1.3  # each looks at other keys


def test_an_empty_server_is_fine_and_stays_empty(redis_server: RedisServer, redis_url: str) -> None:
    seen = found(redis_url)
    assert seen["layout"].value == "nothing is there yet: it is made on first use"
    assert seen["messages"].value == "0"
    assert all(each.level != "bad" for each in seen.values())
    with redis_server.client() as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize(
    ("settings", "level", "text"),
    [
        ({"appendonly": "yes", "appendfsync": "everysec"}, "ok", "once a second: a crash may lose about a second"),
        ({"appendonly": "yes", "appendfsync": "no"}, "warn", "when the system likes"),
        ({"save": "3600 1000000"}, "warn", "snapshots only: a crash loses all since the last one, "),
        ({}, "warn", "none: a crash or a restart loses everything"),
    ],
)
def test_what_a_crash_may_lose_is_told(new_redis: NewRedis, settings: dict[str, Any], level: str, text: str) -> None:
    told = found(new_redis(**settings).url)["persistence"]
    assert told.level == level
    assert text in told.value


def test_a_server_that_evicts_is_bad_unless_the_url_allows_it(new_redis: NewRedis) -> None:
    server = new_redis(maxmemory="64mb", maxmemory_policy="allkeys-lru")
    assert found(server.url)["eviction"].level == "bad"
    told = found(server.url + "?allow_eviction=1")["eviction"]
    assert (told.level, told.value) == ("ok", "allkeys-lru, as allow_eviction=1 allows: it may lose messages")


def test_little_memory_and_no_limit_are_told(new_redis: NewRedis) -> None:
    server = new_redis()
    assert found(server.url)["memory"].advice.startswith("it ends when the machine's memory does")
    with server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"])
    assert found(server.url)["memory"].advice == "nearly full: then it takes no more messages"


def test_time_ahead_of_the_clock_and_a_strange_layout_are_told(redis_server: RedisServer, redis_url: str) -> None:
    with redis_server.client() as client:
        seconds, _ = client.time()
        client.hset(META, mapping={"layout": LAYOUT, "raw": seconds * 1_000_000, "mark": (seconds + 100) * 1_000_000})
        told = found(redis_url)
        assert told["engine time"].level == "warn"
        assert 90 < float(told["engine time"].value.split()[0]) <= 100
        client.hset(META.replace("0", "1"), "layout", "99")
        assert found(redis_url)["layout"].level == "ok"
        told = found(redis_url + "?shards=2")
    assert (told["layout"].value, told["layout"].level) == ("99", "bad")


def test_clocks_that_differ_are_told(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(redis_url)["clock"].level == "ok"
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 60)
    told = found(redis_url)["clock"]
    assert told.level == "warn"
    assert 59.5 < float(told.value.split()[0]) < 60.5
    assert "ahead of" in told.value


def test_slow_scripts_of_this_namespace_are_told(redis_server: RedisServer, redis_url: str) -> None:
    with redis_server.client() as client:
        client.slowlog_reset()
        for key in (META, "{other:0}:meta"):
            seconds, rest = client.time()
            client.eval(BUSY, 1, key, seconds * 1_000_000 + rest + 30_000)
        told = found(redis_url)["slow scripts"]
        client.slowlog_reset()
    assert told.level == "warn"
    assert told.value.startswith("1 over 10 ms in the last hour, the longest ")
    assert found(redis_url)["slow scripts"].level == "ok"


def test_replicas_without_a_least_number_are_told(new_redis: NewRedis) -> None:
    master = new_redis()
    replica = new_redis(replicaof=f"127.0.0.1 {master.port}", repl_diskless_sync_delay=0)
    with master.client() as client:
        give_up = time.monotonic() + 30
        while client.info("replication").get("slave0", {}).get("state") != "online":
            assert time.monotonic() < give_up
        assert found(master.url)["replicas"].value == "1, min-replicas-to-write 0"
        assert found(master.url)["replicas"].level == "warn"
        client.config_set("min-replicas-to-write", 1)
        assert found(master.url)["replicas"].level == "ok"
    assert found(replica.url)["replicas"].level == "bad"


def test_a_node_of_a_cluster_is_bad(new_redis: NewRedis) -> None:
    server = new_redis(cluster_enabled="yes")
    told = found(server.url)
    assert told.keys() == {"server", "mode"}  # all else is asked of a whole Cluster
    assert (told["mode"].value, told["mode"].level) == ("cluster", "bad")
    assert f"write redis+cluster://127.0.0.1:{server.port}, or give a RedisCluster as client=" in told["mode"].advice


def test_a_server_that_does_not_announce_what_expires_is_told(new_redis: NewRedis) -> None:
    server = new_redis()
    assert found(server.url)["waking"] == Finding("waking", "wake=list")
    told = found(server.url + "?wake=expiry")["waking"]
    assert (told.value, told.level) == ("wake=expiry", "bad")
    assert "set notify-keyspace-events to Ex" in told.advice
    with server.client() as client:
        client.config_set("notify-keyspace-events", "Ex")
    assert found(server.url + "?wake=expiry")["waking"].level == "ok"


def test_connections_without_names_are_not_counted_by_name(redis_url: str) -> None:
    assert re.fullmatch(r"\d+ in all", found(redis_url + "?wake=poll")["connections"].value)


def test_weak_tls_is_told(new_redis: NewRedis, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    server = new_redis(tls=certificates)
    assert found(f"{server.tls_url}?verify=none")["tls"].level == "warn"
    assert found(f"{server.tls_url}?ca={certificates.authority}")["tls"] == Finding("tls", "on")
    assert "tls" not in found(server.url)


def test_what_is_not_allowed_is_said_and_the_rest_is_told(new_redis: NewRedis) -> None:
    few = "+client|setname +info +time +eval"
    server = new_redis(user=["default on nopass ~* &* +@all", f"ann on >geheim -@all {few}"])
    told = found(server.url.replace("://", "://ann:geheim@"))
    assert told.keys() == NAMES
    assert told["server"].level == ("warn" if is_redis_6() else "ok")
    for name, command in (("layout", "HMGET"), ("slow scripts", "SLOWLOG GET"), ("connections", "CLIENT LIST")):
        assert told[name].value == f"not known: this user may not call {command}"
    assert told["persistence"].value.endswith("is not known: this user may not call CONFIG GET")
    if is_redis_6():
        assert told["rights"].value.startswith("not known: ")
    else:
        assert told["rights"].level == "bad"
        assert "hset" in told["rights"].value


def test_a_server_without_config_is_told_of(new_redis: NewRedis) -> None:
    server = new_redis(rename_command=['CONFIG ""', 'SLOWLOG ""'])
    told = found(server.url)
    assert told["slow scripts"].value == "not known: this server has no SLOWLOG GET"
    assert told["persistence"].value.endswith("is not known: this server has no CONFIG GET")


def test_a_wrong_password_is_not_shown(new_redis: NewRedis) -> None:
    server = new_redis(requirepass="right")
    url = server.url.replace("://", "://:wr%6Fng@")
    [told] = Queue(url).examine()
    assert told.level == "bad"
    assert "refused the user or the password" in told.value
    done = run("--url", url)
    assert done.returncode == 1
    assert "wrong" not in done.stdout + done.stderr
    assert "wr%6Fng" not in done.stdout + done.stderr


def test_a_server_that_is_not_there_is_bad(new_redis: NewRedis) -> None:
    server = new_redis()
    server.stop()
    [told] = Queue(server.url).examine()
    assert told.level == "bad"
    assert f"{server.url} can't be reached: " in told.value
    assert run("--url", server.url).returncode == 1


def test_a_server_that_does_not_answer_is_given_up(new_redis: NewRedis) -> None:
    server = new_redis()
    server.freeze()
    begin = time.monotonic()
    told = Queue(server.url + "?timeout=0.2").examine()
    assert told[-1].level == "bad"
    assert time.monotonic() - begin < 5


def test_a_server_that_is_slow_in_everything_is_given_up(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "LIMIT", 0.0)
    [told] = Queue(redis_url).examine()
    assert told.level == "bad"
    assert "the questions took too long" in told.value


@pytest.fixture
def stranger() -> Iterator[str]:
    """The URL of something that is no Redis."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            line, _ = listener.accept()
            with line:
                line.recv(1_000)
                line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_something_else_at_that_port_is_bad(stranger: str) -> None:
    [told] = Queue(stranger).examine()
    assert told.level == "bad"
    assert "can't be reached" in told.value


@pytest.mark.parametrize(
    ("info", "value", "level"),
    [
        ({"redis_version": "6.0.16"}, "Redis 6.0.16", "bad"),
        ({"redis_version": "6.2.14"}, "Redis 6.2.14", "warn"),
        ({"redis_version": "7.0.0"}, "Redis 7.0.0", "ok"),
        ({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "8.1.0"}, "Valkey 8.1.0 (as Redis 7.2.4)", "ok"),
        ({"redis_version": "7.4.0", "dragonfly_version": "df-v1.2"}, "Dragonfly df-v1.2 (as Redis 7.4.0)", "ok"),
    ],
)
def test_servers_are_called_by_their_names(info: dict[str, str], value: str, level: str) -> None:
    settings = Settings(url="redis://")
    address = read(settings)
    look = Look(Namespace(address, settings), Server(address, ServerClock()), None)
    look._info = info
    [told] = checks.server(look)
    assert (told.value, told.level) == (f"{value} at redis://localhost:6379/0", level)


def test_the_command_prints_a_table_or_json(redis_url: str) -> None:
    plain, as_json = run("--url", redis_url), run("--url", redis_url, "--json")
    assert plain.returncode == as_json.returncode == 0
    assert "all that a worker needs" in plain.stdout
    assert {each["name"] for each in json.loads(as_json.stdout)} == NAMES


def test_the_page_begins_with_code_that_runs(redis_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"<!-- not run -->\n\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert "redis://localhost:6379/0" in code
    exec(code.replace("redis://localhost:6379/0", redis_url), {})
    assert capsys.readouterr().out == "1\n"


def rows(heading: str) -> set[str]:
    """What the first column of the first table under a heading names."""
    lines = PAGE.partition(f"\n{heading}\n")[2].partition("\n#")[0].splitlines()
    return {name for line in lines if line.startswith("| `") for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])}


def test_the_page_names_every_option_and_every_finding() -> None:
    assert {name for name in rows("## The URL") if "://" not in name} == set(location._KNOWN)
    assert rows("### The doctor") == NAMES | {"tls", "last save"} | OF_COPIES | OF_CLUSTERS | OF_PROXIES | OF_SENTINELS

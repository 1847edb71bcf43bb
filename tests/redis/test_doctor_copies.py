"""`bide doctor` on replicas: whether they keep up, and what is lost when one is promoted."""

from collections.abc import Callable
from typing import Any

import pytest

from bide import ConfigError, Finding, Queue
from bide.engines.redis.doctor import copies, rights, visits
from bide.engines.redis.doctor.rights import Use
from bide.engines.redis.doctor.visits import Refusal, ServerTold
from tests.redis.test_confirm import wait_for_link
from tests.redis.test_doctor import found
from tests.servers.fixtures import NewRedis, NewSentinels
from tests.servers.programs import is_redis_6
from tests.servers.redis import RedisServer
from tests.servers.sentinel import SentinelGroup

NewPair = Callable[..., tuple[RedisServer, RedisServer]]


@pytest.fixture
def new_pair(new_redis: NewRedis) -> NewPair:
    """A master, and a replica with settings of its own."""

    def start(of_master: dict[str, Any], of_replica: dict[str, Any]) -> tuple[RedisServer, RedisServer]:
        master = new_redis(repl_diskless_sync_delay=0, **of_master)
        replica = new_redis(replicaof=f"127.0.0.1 {master.port}", **of_replica)
        wait_for_link(replica)
        with master.client() as client:
            while client.info("replication").get("slave0", {}).get("state") != "online":
                client.ping()
        return master, replica

    return start


AOF: dict[str, Any] = {"appendonly": "yes"}


@pytest.mark.parametrize(
    ("of_master", "of_replica", "level", "text"),
    [
        (AOF, AOF, "ok", "saved on the disk, as on the master"),
        (AOF, {"save": "3600 1"}, "ok", "saved on the disk, as on the master"),
        (AOF, {}, "warn", "although the master saves"),
        ({}, AOF, "bad", "the master saves nothing"),
        ({}, {}, "bad", "the master saves nothing"),
    ],
)
def test_persistence_of_replicas(
    new_pair: NewPair, of_master: dict[str, Any], of_replica: dict[str, Any], level: str, text: str
) -> None:
    master, replica = new_pair(of_master, of_replica)
    told = found(master.url)["copies"]
    assert told.level == level
    assert text in told.value
    assert (f"127.0.0.1:{replica.port}" in told.value) == (level == "warn")


def test_a_replica_that_can_not_be_reached_is_named(new_pair: NewPair) -> None:
    master, _ = new_pair(AOF, {"replica_announce_ip": "127.9.9.9", "replica_announce_port": 1})
    told = found(master.url)["copies"]
    assert told == Finding("copies", "127.9.9.9:1 can't be reached from here")


@pytest.mark.parametrize(
    ("confirm", "level", "text"),
    [
        ("replicas:1", "ok", "1 is there"),
        ("replicas:2", "bad", "each change raises ConfirmTimeout"),
        ("aof", "bad", "writes no AOF"),
    ],
)
def test_whether_the_confirmation_that_is_asked_for_can_be_had(new_pair: NewPair, confirm: str, level: str, text: str) -> None:
    master, replica = new_pair({**AOF, "appendfsync": "always"}, {})
    told = found(f"{master.url}?confirm={confirm}")["confirm"]
    assert told.level == level
    assert text in told.value + told.advice
    assert (f"127.0.0.1:{replica.port} writes no AOF" in told.advice) == (confirm == "aof")
    assert found(f"{master.url}?confirm={confirm}")["replicas"].level == ("ok" if "replicas" in confirm else "warn")
    assert "confirm" not in found(master.url)


def test_all_that_could_be_promoted_can_confirm_on_the_disk(new_pair: NewPair) -> None:
    always = {**AOF, "appendfsync": "always"}
    master, _ = new_pair(always, always)
    assert found(f"{master.url}?confirm=aof")["confirm"] == Finding("confirm", "confirm=aof")


def test_a_replica_in_excess_of_those_that_confirm_may_be_promoted(redis_sentinels_url: str) -> None:
    told = found(redis_sentinels_url + "?confirm=replicas:1")["confirm"]
    assert (told.level, told.value) == ("warn", "confirm=replicas:1, and 2 are there")
    assert "ask for replicas:2" in told.advice
    assert found(redis_sentinels_url + "?confirm=replicas:2")["confirm"].level == "ok"


def test_a_replica_that_would_take_messages_alone_is_named(new_sentinels: NewSentinels) -> None:
    group = new_sentinels(replicas=1, sentinels=1, min_replicas_to_write=1)
    assert found(group.url)["replicas"] == Finding("replicas", "1")
    [replica] = group.replicas()
    replica.ask("CONFIG", "SET", "min-replicas-to-write", 0)
    told = found(group.url)["replicas"]
    assert told.level == "warn"
    assert told.value.endswith(f"min-replicas-to-write 0 on {replica.address}:{replica.port}")


def master_with(**replica: object) -> ServerTold:
    told = ServerTold("m:1")
    shown = {"ip": "r", "port": 2, "state": "online", "offset": 100, "lag": 0, **replica}
    link = ",".join(f"{name}={value}" for name, value in shown.items())
    told.info = {"role": "master", "connected_slaves": "1", "master_repl_offset": "100", "slave0": link, "aof_enabled": "1"}
    return told


@pytest.mark.parametrize(
    ("replica", "level", "value"),
    [
        ({"offset": 40}, "ok", "at most 60 bytes"),
        ({"offset": 100 - 11 * 2**20}, "warn", "r:2 is 11.0 MiB behind"),
        ({"lag": 11}, "warn", "r:2 has said nothing for 11 s"),
        ({"state": "send_bulk"}, "warn", "r:2 is being given a whole copy"),
    ],
)
def test_lag(replica: dict[str, Any], level: str, value: str) -> None:
    [lag] = [each for each in copies.check(master_with(**replica), [], "", "memory") if each.name == "lag"]
    assert (lag.level, lag.value) == (level, value)


def test_what_a_server_does_not_tell_is_no_fault() -> None:
    replica, master = ServerTold("r:2"), master_with()
    replica.info, replica.answers["config"] = {"role": "slave", "aof_enabled": "0"}, Refusal("this server has no CONFIG GET")
    assert copies.saves(replica) is None
    assert [each for each in copies.check(master, [replica], "", "memory") if each.name == "copies"] == []


def test_different_versions_are_told() -> None:
    servers = [ServerTold("a:1"), ServerTold("b:1"), ServerTold("c:1")]
    for each, version in zip(servers, ("7.0.15", "7.2.4", "7.0.15"), strict=True):
        each.info = {"redis_version": version}
    [told] = copies.versions(servers)
    assert (told.level, told.value) == ("warn", "7.0.15 on a:1, c:1; 7.2.4 on b:1")
    assert list(copies.versions(servers[::2])) == []


def test_equal_findings_are_told_once_with_their_servers() -> None:
    same, other, last = Finding("a", "1"), Finding("a", "2"), Finding("b", "x")
    told = visits.merged([("p", same), ("p", last), ("q", other), ("q", last), ("r", same), ("r", last)])
    assert told == [Finding("a", "1", where="p, r"), Finding("a", "2", where="q"), Finding("b", "x")]


# -- rights


@pytest.mark.skipif(is_redis_6(), reason="Redis 6.2 checks rights in another way")
@pytest.mark.parametrize(("right", "option"), [("role", ""), ("wait", "?confirm=replicas:2")])
def test_a_worker_of_a_group_has_the_rights_that_are_printed(
    redis_sentinels: SentinelGroup, redis_sentinels_url: str, right: str, option: str
) -> None:
    master = redis_sentinels.master()
    use = Use("list", "Sentinels", "replicas" if option else "memory")
    master.ask(*rights.line("worker", "bide", use).replace("CHANGE-ME", "word").split())
    url = redis_sentinels_url.replace("://", "://bide-worker:word@") + option
    try:
        with Queue(url) as queue:
            queue.send("t", 1)
        assert found(url)["rights"].level == "ok"
        master.ask("ACL", "SETUSER", "bide-worker", f"-{right}")
        assert right in found(url)["rights"].value
    finally:
        master.ask("ACL", "DELUSER", "bide-worker")


@pytest.mark.skipif(is_redis_6(), reason="Redis 6.2 checks rights in another way")
def test_a_worker_of_a_cluster_has_the_rights_that_are_printed(redis_cluster: Any, redis_cluster_url: str) -> None:
    url = redis_cluster_url.replace("://", "://bide-worker:word@")
    try:
        for node in redis_cluster.nodes:
            node.ask(*rights.line("worker", "bide", Use("list", "Cluster")).replace("CHANGE-ME", "word").split())
        with Queue(url) as queue:
            queue.send_many("t", range(10))
            assert queue.receive("t") is not None
        assert found(url)["rights"].level == "ok"
        for node in redis_cluster.nodes:
            node.ask("ACL", "SETUSER", "bide-worker", "-cluster|slots")
        with pytest.raises(ConfigError, match="lacks a right"), Queue(url) as queue:
            queue.send("t", 1)
    finally:
        for node in redis_cluster.nodes:
            node.ask("ACL", "DELUSER", "bide-worker")

"""The Sentinel groups that tests start do what they are told, and lose what real ones lose."""

import os
from typing import Any

import pytest
import redis
from redis.sentinel import Sentinel

from tests.servers.fixtures import NewSentinels
from tests.servers.group import Node
from tests.servers.sentinel import SentinelGroup

pytestmark = pytest.mark.slow  # tests/redis/test_failovers.py uses it all in every run


def client_of(group: SentinelGroup) -> redis.Redis:
    """The driver's own client. It asks the first sentinel first."""
    sentinels: Any = Sentinel
    client: redis.Redis = sentinels([("127.0.0.1", node.port) for node in group.sentinels]).master_for(group.service)
    return client


def set_everywhere(master: Node, key: str, value: str, replicas: int) -> None:
    with master.client(single_connection_client=True) as client:
        client.set(key, value)
        assert client.wait(replicas, 0) == replicas


def role(node: Node) -> bytes:
    found: bytes = node.ask("ROLE")[0]
    return found


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_sentinels_tell_where_the_master_is(redis_sentinels: SentinelGroup, redis_sentinels_url: str) -> None:
    places = ",".join(node.host_and_port for node in redis_sentinels.sentinels)
    assert redis_sentinels_url == f"redis+sentinel://{places}/mymaster"
    with client_of(redis_sentinels) as client:
        client.set("key", "x")
        assert client.wait(2, 0) == 2
    master = redis_sentinels.master()
    assert master.ask("GET", "key") == b"x"
    assert [role(node) for node in (master, *redis_sentinels.replicas())] == [b"master", b"slave", b"slave"]


@pytest.mark.parametrize("time", ["first", "second"])
def test_the_shared_one_is_empty_for_each_test(redis_sentinels: SentinelGroup, redis_sentinels_url: str, time: str) -> None:
    assert all(node.ask("DBSIZE") == 0 and "set" not in node.commandstats() for node in redis_sentinels.nodes)
    assert redis_sentinels_url == redis_sentinels.url
    redis_sentinels.master().ask("SET", time, "x")


def test_a_replica_takes_the_place_of_a_killed_master_which_comes_back_as_a_replica(new_sentinels: NewSentinels) -> None:
    group = new_sentinels()
    set_everywhere(group.master(), "key", "kept", 2)
    old = group.kill_master()
    new = group.wait_for_promotion(of=old)
    assert new is not old
    assert new is group.master()
    assert new.ask("GET", "key") == b"kept"
    group.restart(old)
    group.wait_until_whole()
    assert old in group.replicas()
    assert old.ask("GET", "key") == b"kept"
    group.restart(old)  # by now it knows by itself that it is a replica
    assert role(old) == b"slave"


def test_a_manual_failover(new_sentinels: NewSentinels) -> None:
    group = new_sentinels(service="shop.orders")
    old = group.master()
    set_everywhere(old, "key", "kept", 2)
    new = group.failover()
    assert new is group.master() is not old
    group.wait_until_whole()
    assert [role(new), role(old)] == [b"master", b"slave"]
    with client_of(group) as client:
        assert client.get("key") == b"kept"
    newest = group.failover()
    group.wait_until_whole()  # no sentinel takes it back
    assert newest is group.master() is not new


def test_a_master_that_is_cut_off_takes_writes_that_are_gone_when_it_is_back(new_sentinels: NewSentinels) -> None:
    group = new_sentinels()
    old = group.master()
    set_everywhere(old, "key", "before", 2)
    group.cut_off(old)
    assert old.ask("SET", "key", "lost") == b"OK"
    new = group.wait_for_promotion(of=old)
    assert new.ask("GET", "key") == b"before"
    new.ask("SET", "key", "kept")
    assert old.ask("SET", "other", "lost, too") == b"OK"
    with redis.Redis(host=old.address, port=old.port) as client:  # where sentinels said that it is
        assert client.get("key") == b"lost"
        assert client.role()[0] == b"master"
    group.heal(old)
    group.wait_until_whole()
    assert old in group.replicas()
    assert (old.ask("GET", "key"), old.ask("GET", "other")) == (b"kept", None)


def test_a_replica_has_all_when_it_has_what_its_master_wrote_and_not_when_its_link_is_up(new_sentinels: NewSentinels) -> None:
    group = new_sentinels()
    replica = group.replicas()[0]
    group.cut_off(replica)
    group.master().ask("SET", "key", "late")
    with pytest.raises(TimeoutError, match="a replica that has all"):
        group.wait_for_copies(patience=0.1)
    assert replica.info("replication")["master_link_status"] == "up"
    group.heal(replica)
    group.wait_for_copies()
    assert replica.ask("GET", "key") == b"late"


def test_a_sentinel_that_is_cut_off_names_the_old_master_until_it_is_back(new_sentinels: NewSentinels) -> None:
    group = new_sentinels()
    old, away = group.master(), group.sentinels[0]
    group.cut_off(old, away)
    new = group.wait_for_promotion(of=old)
    with client_of(group) as client:
        assert client.info("server")["process_id"] == old.pid
    group.heal()
    group.wait_until_whole()
    assert group.master() is new
    assert away.row(group.service)["port"] == str(new.port)


def test_nobody_reaches_one_that_is_frozen(new_sentinels: NewSentinels) -> None:
    group = new_sentinels()
    old = group.master()
    group.freeze(old)
    with old.client(socket_timeout=0.1) as client, pytest.raises(redis.TimeoutError):
        client.ping()
    assert group.wait_for_promotion(of=old) is not old
    group.thaw(old)
    group.wait_until_whole()
    assert role(old) == b"slave"


def test_a_sentinel_that_restarts_knows_what_it_knew(new_sentinels: NewSentinels) -> None:
    group = new_sentinels(requirepass="secret")
    old = group.kill_master()
    new = group.wait_for_promotion(of=old)
    for sentinel in group.sentinels:
        group.restart(sentinel)
    assert [sentinel.row(group.service)["port"] for sentinel in group.sentinels] == [str(new.port)] * 3
    group.restart(old)
    group.wait_until_whole()


@pytest.mark.usefixtures("new_sentinels")
def test_nothing_is_left_of_it() -> None:
    with SentinelGroup(1, 2) as group:
        pids, folders = [node.pid for node in group.members], [node.folder for node in group.members]
        relay = group.relay_pid
        group.kill_master()
        group.freeze(group.sentinels[0])
        group.cut_off(group.sentinels[1])
    assert all(map(ended, [*pids, relay]))
    assert not any(folder.exists() for folder in folders)

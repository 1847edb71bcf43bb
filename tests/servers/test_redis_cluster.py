"""The clusters that tests start do what they are told, and lose what real ones lose."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from redis.crc import key_slot

from tests.servers.cluster import SLOTS, ClusterNode, RedisCluster
from tests.servers.fixtures import NewCluster

KEY = "key"
SLOT = key_slot(KEY.encode())

pytestmark = pytest.mark.slow  # tests/redis moves slots, cuts off, kills and promotes nodes in every run


@contextmanager
def client_of(cluster: RedisCluster) -> Iterator[redis.RedisCluster]:
    """The driver's own client, which begins with the last node."""
    with redis.RedisCluster.from_url(cluster.nodes[-1].url) as client:
        yield client


def refused(node: ClusterNode, *command: str | int) -> str:
    with pytest.raises(redis.ResponseError) as error:
        node.ask(*command)
    return str(error.value)


def read_from_replica(node: ClusterNode, key: str) -> bytes | None:
    with node.client(single_connection_client=True) as client:
        client.execute_command("READONLY")
        found: bytes | None = client.get(key)
    return found


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_serves_all_slots_at_the_places_that_it_tells(redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    places = redis_cluster_url.removeprefix("redis+cluster://").split(",")
    with client_of(redis_cluster) as client:
        for number in range(100):
            client.set(f"key:{number}", number)
        assert sum(node.ask("DBSIZE") for node in redis_cluster.masters()) == 100
        known = client.nodes_manager.nodes_cache.values()
        assert {node.name for node in known} == set(places)
        assert sorted(str(node.server_type) for node in known) == ["primary"] * 3 + ["replica"] * 3
    assert [node.host_and_port for node in redis_cluster.nodes] == places


@pytest.mark.parametrize("time", ["first", "second"])
def test_the_shared_one_is_empty_for_each_test(redis_cluster: RedisCluster, redis_cluster_url: str, time: str) -> None:
    assert all(node.ask("DBSIZE") == 0 and "set" not in node.commandstats() for node in redis_cluster.nodes)
    assert redis_cluster_url == redis_cluster.url
    with client_of(redis_cluster) as client:
        client.set(time, "x")


def test_each_slot_has_a_master_with_a_replica(redis_cluster: RedisCluster) -> None:
    first, *_, last = redis_cluster.masters()
    assert (redis_cluster.node_of(0), redis_cluster.node_of(SLOTS - 1)) == (first, last)
    replica = redis_cluster.replica_of(first)
    assert redis_cluster.master_of(replica) is first
    assert refused(replica, "GET", KEY) == f"{SLOT} {redis_cluster.node_of(SLOT).host_and_port}"


def test_a_replica_takes_the_place_of_a_killed_master_which_comes_back_as_a_replica(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    master = cluster.node_of(SLOT)
    replica = cluster.replica_of(master)
    with master.client(single_connection_client=True) as client:
        client.set(KEY, "kept")
        client.wait(1, 0)
    cluster.kill(master)
    assert cluster.wait_for_promotion(of=master) is replica
    assert cluster.node_of(SLOT) is replica
    assert replica.ask("GET", KEY) == b"kept"
    cluster.restart(master)
    cluster.wait_until_whole()
    assert cluster.replica_of(replica) is master
    assert read_from_replica(master, KEY) == b"kept"


def test_a_manual_failover_loses_nothing(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    master = cluster.node_of(SLOT)
    replica = cluster.replica_of(master)
    master.ask("SET", KEY, "kept")
    cluster.failover(replica)
    assert (cluster.node_of(SLOT), cluster.replica_of(replica)) == (replica, master)
    assert replica.ask("GET", KEY) == b"kept"
    assert refused(master, "GET", KEY) == f"{SLOT} {replica.host_and_port}"


def test_a_master_that_is_cut_off_takes_writes_that_are_gone_when_it_is_back(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    old = cluster.node_of(SLOT)
    with old.client(single_connection_client=True) as client:
        client.set(KEY, "before")
        client.wait(1, 0)
    cluster.let_serve_alone(old)
    cluster.cut_off(old)
    assert old.ask("SET", KEY, "lost") == b"OK"
    new = cluster.wait_for_promotion(of=old)
    assert new.ask("GET", KEY) == b"before"
    new.ask("SET", KEY, "kept")
    assert old.ask("GET", KEY) == b"lost"
    assert old.ask("SET", f"{{{KEY}}}:other", "lost, too") == b"OK"
    cluster.heal(old)
    cluster.wait_until_whole()
    assert cluster.replica_of(new) is old
    assert read_from_replica(old, KEY) == b"kept"
    assert old.ask("DBSIZE") == 1


def test_a_replica_has_all_when_it_has_what_its_master_wrote_and_not_when_its_link_is_up(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    master = cluster.node_of(SLOT)
    replica = cluster.replica_of(master)
    cluster.cut_off(replica)
    master.ask("SET", KEY, "late")
    with pytest.raises(TimeoutError, match="a replica that has all"):
        cluster.wait_for_copies(patience=0.1)
    assert replica.info("replication")["master_link_status"] == "up"
    cluster.heal(replica)
    cluster.wait_for_copies()
    assert read_from_replica(replica, KEY) == b"late"


def test_a_master_that_misses_the_majority_is_down(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    old = cluster.node_of(SLOT)
    cluster.cut_off(old)
    cluster.wait_until_down(old)
    assert refused(old, "SET", KEY, "x") == "The cluster is down"
    cluster.heal()
    cluster.wait_until_whole()


def test_those_who_are_cut_off_together_hear_each_other(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    master = cluster.node_of(SLOT)
    replica = cluster.replica_of(master)
    cluster.cut_off(master, replica)
    with master.client(single_connection_client=True) as client:
        client.set(KEY, "x")
        assert client.wait(1, 0) == 1
    assert read_from_replica(replica, KEY) == b"x"
    others = [node for node in cluster.nodes if node not in (master, replica)]
    for node in others:  # they are the majority, but nobody there has the slots
        cluster.wait_until_down(node)
    assert cluster.node_of(SLOT) is master
    cluster.heal(master, replica)
    cluster.wait_until_whole()
    assert cluster.node_of(SLOT).ask("GET", KEY) == b"x"  # the replica may have been promoted at last


def test_nobody_reaches_one_that_is_frozen(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    old = cluster.node_of(SLOT)
    replica = cluster.replica_of(old)
    cluster.freeze(old)
    with old.client(socket_timeout=0.1) as client, pytest.raises(redis.TimeoutError):
        client.get(KEY)
    assert cluster.wait_for_promotion(of=old) is replica
    cluster.thaw(old)
    cluster.wait_until_whole()
    assert cluster.replica_of(replica) is old


def test_a_slot_may_stay_half_moved(new_cluster: NewCluster) -> None:
    cluster = new_cluster(3, 0, requirepass="secret")
    source = cluster.node_of(SLOT)
    target = next(node for node in cluster.masters() if node is not source)
    keys = [f"{{{KEY}}}:{number}" for number in range(10)]
    for key in keys:
        source.ask("SET", key, "x")
    with cluster.migrate(SLOT, target, keys_at_once=5) as migration:
        migration.until("moved")
        assert migration.keys_left() == source.ask("DBSIZE") == target.ask("DBSIZE") == 5
        here = [key.decode() for key in source.ask("CLUSTER", "GETKEYSINSLOT", SLOT, 10)]
        there = [key for key in keys if key not in here]
        assert source.ask("GET", here[0]) == b"x"
        assert refused(source, "GET", there[0]) == f"{SLOT} {target.host_and_port}"
        assert refused(source, "MGET", here[0], there[0]) == "Multiple keys request during rehashing of slot"
        assert refused(target, "GET", there[0]) == f"{SLOT} {source.host_and_port}"
        with redis.RedisCluster.from_url(source.url, password="secret") as client:
            assert [client.get(key) for key in keys] == [b"x"] * 10
    cluster.wait_until_whole()
    assert cluster.node_of(SLOT) is target
    assert (source.ask("DBSIZE"), target.ask("DBSIZE")) == (0, 10)
    assert refused(source, "GET", KEY) == f"{SLOT} {target.host_and_port}"


def test_the_stages_of_a_move(new_cluster: NewCluster) -> None:
    cluster = new_cluster(3, 0)
    source = cluster.node_of(SLOT)
    target, other = (node for node in cluster.masters() if node is not source)
    for number in range(3):
        source.ask("SET", f"{{{KEY}}}:{number}", "x")
    told = f"{SLOT} {source.host_and_port}", f"{SLOT} {target.host_and_port}"
    stages = []
    for stage in cluster.migrate(SLOT, target, keys_at_once=2):
        stages.append(stage)
        match stage:
            case "importing":
                assert source.ask("GET", "{key}:9") is None
            case "migrating":
                assert refused(source, "GET", "{key}:9") == told[1]
            case "taken":
                assert target.ask("GET", "{key}:9") is None
            case "given" | "known":
                assert refused(source, "GET", "{key}:9") == told[1]
    assert stages == ["importing", "migrating", "moved", "moved", "taken", "given", "known"]
    assert refused(other, "GET", KEY) == told[1]
    back = cluster.migrate(SLOT, source)
    back.until("moved")
    with pytest.raises(AssertionError, match=f"slot {SLOT} never was importing"):
        back.until("importing")
    cluster.wait_until_whole()
    assert cluster.node_of(SLOT) is source


@pytest.mark.parametrize("appendonly", ["no", "yes"])
def test_a_restarted_master_has_what_was_saved(new_cluster: NewCluster, appendonly: str) -> None:
    cluster = new_cluster(1, 0, appendonly=appendonly, appendfsync="always")
    (master,) = cluster.masters()
    before = master.port, master.id, master.pid
    master.ask("SET", KEY, "x")
    cluster.restart(master)
    cluster.wait_until_whole()
    assert (master.port, master.ask("CLUSTER", "MYID").decode()) == before[:2]
    assert master.pid != before[2]
    assert master.ask("GET", KEY) == (b"x" if appendonly == "yes" else None)


@pytest.mark.usefixtures("new_cluster")
def test_nothing_is_left_of_it() -> None:
    with RedisCluster(2, 1) as cluster:
        running, frozen, killed, cut = cluster.nodes
        pids, folders = [node.pid for node in cluster.nodes], [node.folder for node in cluster.nodes]
        relay = cluster.relay_pid
        cluster.kill(killed)
        cluster.freeze(frozen)
        cluster.cut_off(cut)
        assert not ended(running.pid)
    assert all(map(ended, [*pids, relay]))
    assert not any(folder.exists() for folder in folders)

"""Masters that fail, are cut off or give way under load: nothing that was confirmed is lost, and all go on by themselves."""

import os
import threading
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest

from tests.redis.crew import at_work, rate
from tests.redis.failing_over import Crowd, Dealt, judge
from tests.redis.test_moving_slots import slots_of
from tests.servers.cluster import ClusterNode, RedisCluster
from tests.servers.fixtures import NewCluster, NewSentinels
from tests.servers.sentinel import SentinelGroup

LONG = os.environ.get("BIDE_LONG")
pytestmark = pytest.mark.timeout(1_800 if LONG else 120)
FAULTS = 20 if LONG else 2
ALL = {0, 1, 2}  # shards


def kill_master(group: SentinelGroup, dealt: Dealt) -> None:
    old = group.kill_master()
    group.wait_for_promotion(of=old)
    dealt.now()
    group.restart(old)
    group.wait_until_whole()


def cut_off_master(group: SentinelGroup, dealt: Dealt) -> None:
    old = group.master()
    group.cut_off(old)
    group.wait_for_promotion(of=old)
    dealt.now()
    group.heal(old)
    group.wait_until_whole()


def replace_master(group: SentinelGroup, dealt: Dealt) -> None:
    group.failover()
    dealt.now()
    group.wait_until_whole()


def kill_node(cluster: RedisCluster, number: int, dealt: Dealt) -> None:
    old = cluster.masters()[number]
    cluster.kill(old)
    cluster.wait_for_promotion(of=old)
    dealt.now()
    cluster.restart(old)
    cluster.wait_until_whole()


def cut_off_node(cluster: RedisCluster, number: int, dealt: Dealt) -> None:
    old = cluster.masters()[number]
    cluster.let_serve_alone(old)
    cluster.cut_off(old)
    cluster.wait_for_promotion(of=old)
    dealt.now()
    old.ask("CONFIG", "SET", "cluster-node-timeout", 2_000)  # its clock goes as fast as others' again
    cluster.heal(old)
    cluster.wait_until_whole()


def replace_node(cluster: RedisCluster, number: int, dealt: Dealt) -> None:
    cluster.failover(cluster.replica_of(cluster.masters()[number]))
    dealt.now()


SENTINEL: list[Callable[[SentinelGroup, Dealt], None]] = [kill_master, cut_off_master, replace_master]
CLUSTER: list[Callable[[RedisCluster, int, Dealt], None]] = [kill_node, cut_off_node, replace_node]


def on_sentinels(group: SentinelGroup, crowd: Crowd) -> None:
    with crowd.at_work():
        for do in islice(cycle(SENTINEL), FAULTS):
            with crowd.fault(do.__name__) as dealt:
                if crowd.loses:
                    group.wait_for_copies()  # so the replicas have all that was done before the fault began
                do(group, dealt)


def on_a_cluster(cluster: RedisCluster, crowd: Crowd) -> None:
    with crowd.at_work():
        for number, do in enumerate(islice(cycle(CLUSTER), FAULTS)):
            with crowd.fault(do.__name__) as dealt:
                if crowd.loses:
                    cluster.wait_for_copies()  # so the replicas have all that was done before the fault began
                do(cluster, number // len(CLUSTER) % 3, dealt)


def test_nothing_that_all_replicas_confirmed_is_lost_when_sentinels_promote_one(
    new_sentinels: NewSentinels, tmp_path: Path
) -> None:
    group = new_sentinels()
    crowd = Crowd(group.url, tmp_path, confirm="replicas:2")
    on_sentinels(group, crowd)
    assert judge(crowd).lost == 0


def test_nothing_that_replicas_confirmed_is_lost_when_a_cluster_promotes_them(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()
    crowd = Crowd(cluster.url, tmp_path, confirm="replicas:1")
    on_a_cluster(cluster, crowd)
    assert judge(crowd).lost == 0


def test_sentinels_lose_only_what_was_not_confirmed(new_sentinels: NewSentinels, tmp_path: Path) -> None:
    group = new_sentinels()
    crowd = Crowd(group.url, tmp_path)
    on_sentinels(group, crowd)
    judge(crowd)


@pytest.mark.always
def test_a_cluster_loses_only_what_was_not_confirmed(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()
    crowd = Crowd(cluster.url, tmp_path)
    on_a_cluster(cluster, crowd)
    judge(crowd)


@pytest.mark.always
def test_a_worker_goes_on_with_the_other_shards_while_a_master_is_away(new_cluster: NewCluster) -> None:
    assert rounds_without_a_master("worker", new_cluster) > 2


@pytest.mark.always
def test_a_listener_goes_on_with_the_other_shards_while_a_master_is_away(new_cluster: NewCluster) -> None:
    assert rounds_without_a_master("sync listen", new_cluster) > 0  # it waits until the ack that was under way is answered


def rounds_without_a_master(receiver: str, new_cluster: NewCluster) -> int:
    """How often each of the others' shards gave something until a replica was promoted."""
    cluster = new_cluster(cluster_require_full_coverage="no", cluster_node_timeout=3_000)
    with at_work(receiver, cluster.url) as crew:
        crew.wait_for(ALL)
        old, shard, others = away_from_now_on(cluster)
        began, before = time.monotonic(), crew.handled.copy()
        cluster.kill(old)
        promotion = threading.Thread(target=cluster.wait_for_promotion, args=[old])
        promotion.start()
        rounds = 0
        while promotion.is_alive():
            crew.wait_for(others, many=1)
            rounds += 1
        speed, seconds = rate(crew, others, began, before), time.monotonic() - began
        cluster.restart(old)
        crew.wait_for({shard})
    print(f"{receiver}: {speed:.0f} messages a second of the other shards in {seconds:.1f} s without shard {shard}")
    return rounds


@pytest.mark.parametrize("receiver", ["worker", "sync listen"])
def test_a_master_that_freezes_for_a_while_is_noticed_and_used_again(receiver: str, new_cluster: NewCluster) -> None:
    cluster = new_cluster(cluster_node_timeout=120_000)
    with at_work(receiver, cluster.url + ("" if LONG else "?timeout=1")) as crew:
        crew.wait_for(ALL)
        old, shard, others = away_from_now_on(cluster)
        cluster.freeze(old)
        began, before = time.monotonic(), crew.handled.copy()
        crew.wait_for(others, many=20)
        noticed = time.monotonic() - began  # and the others are asked alone
        crew.stop.wait(20 - noticed if LONG else 0)
        speed = rate(crew, others, began, before)
        cluster.thaw(old)
        thawed = time.monotonic()
        crew.wait_for({shard})
        back = time.monotonic() - thawed
    print(f"{receiver}: noticed in {noticed:.1f} s, {speed:.0f} messages a second of the others, all again in {back:.1f} s")
    assert crew.handled.keys() == ALL


def away_from_now_on(cluster: RedisCluster) -> tuple[ClusterNode, int, set[int]]:
    """A master, the shard that it has, and the others."""
    old = cluster.masters()[1]
    shard = next(number for number, slot in enumerate(slots_of(cluster)) if cluster.node_of(slot) is old)
    return old, shard, ALL - {shard}

"""Slots of a Cluster that move between its masters: nothing is lost, and whoever calls waits, without an error."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from bide import Queue
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.spread import read
from bide.engines.redis.topology import slot_of
from tests.redis.failing_over import Crowd, judge
from tests.servers.cluster import ClusterNode, RedisCluster
from tests.servers.fixtures import NewCluster

LONG = os.environ.get("BIDE_LONG")
pytestmark = pytest.mark.timeout(1_800 if LONG else 120)
NAMESPACE = "bide"
PATIENCE = 60.0
REFUSALS = ("errorstat_TRYAGAIN", "errorstat_ASK")


def slots_of(cluster: RedisCluster) -> list[int]:
    """Those of the queue's shards, in their order."""
    anchor = cluster.node_of(slot_of(f"{NAMESPACE}:0"))
    spread = anchor.ask("HGET", f"{{{NAMESPACE}:0}}:meta", "shards")
    known = read(spread.decode())
    return [slot_of(each.tag(NAMESPACE, number)) for each in known.generations for number in each.numbers]


def next_master(cluster: RedisCluster, slot: int) -> ClusterNode:
    masters = cluster.masters()
    return masters[(masters.index(cluster.node_of(slot)) + 1) % len(masters)]


@pytest.mark.always
def test_slots_that_move_under_load_lose_nothing_and_raise_nothing(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()
    crowd = Crowd(cluster.url, tmp_path, loses=False)
    with crowd.at_work():
        slots = slots_of(cluster)
        assert len(slots) == len(cluster.masters())
        for turn in range(5 if LONG else 1):
            for number, slot in enumerate(slots):
                held = turn == number  # once for each shard
                with crowd.fault("migrate, held" if held else "migrate") as dealt:
                    with cluster.migrate(slot, next_master(cluster, slot), keys_at_once=3) as migration:
                        migration.until("moved")  # half of it is here, and half there
                        if held:
                            crowd.stage.stop.wait(25 if LONG else 2)
                    dealt.now()
    outcome = judge(crowd)
    assert not outcome.raised
    assert outcome.lost == 0


def test_calls_wait_for_a_shard_that_moves(redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    """Also those that begin when it is known to take nothing. Only counts are told without it."""
    with Queue(redis_cluster_url) as queue:
        for n in range(30):
            queue.send("t", n)
        found = queue.receive("t", limit=30, lease=60)
        first, acked, extended, retried, *_ = [each for each in found if name_of(each.id).shard == 0]
        waiting = next(each for each in iter(lambda: queue.send("t", delay="1h"), None) if name_of(each.id).shard == 0)
        slot = slots_of(redis_cluster)[0]
        owner = redis_cluster.node_of(slot)
        calls: Sequence[Callable[[], object]] = [
            acked.ack,
            lambda: extended.extend("2m"),
            lambda: retried.retry("1h"),
            lambda: queue.get(waiting.id),
            lambda: queue.reschedule(waiting.id, delay="2h"),
        ]
        try:
            with ThreadPoolExecutor(1 + len(calls)) as threads:
                with redis_cluster.migrate(slot, next_master(redis_cluster, slot), keys_at_once=1) as migration:
                    migration.until("moved")
                    begun: list[Future[object]] = [threads.submit(first.ack)]
                    wait_for_refusals(owner, 3)
                    begun += map(threads.submit, calls)
                    wait_for_refusals(owner, 6 * len(begun))
                    assert queue.stats("t").missing
                    assert not any(each.done() for each in begun)
                for each in begun:
                    each.result(PATIENCE)
        finally:
            redis_cluster.migrate(slot, owner).finish()


def wait_for_refusals(node: ClusterNode, more: int) -> None:
    """Until it has refused so many more commands, as it does not have all keys of a slot any more."""
    enough, give_up = refusals(node) + more, time.monotonic() + PATIENCE
    while refusals(node) < enough:
        assert time.monotonic() < give_up, "nobody asks for the slot"
        time.sleep(0.01)


def refusals(node: ClusterNode) -> int:
    return sum(each["count"] for name, each in node.info("errorstats").items() if name in REFUSALS)

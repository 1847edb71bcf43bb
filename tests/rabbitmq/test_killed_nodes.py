"""Nodes of a cluster of three are killed under load and come back: what the cluster has confirmed comes out."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rabbitmq.storm import TOPICS, WELCOME, Storm
from tests.servers.programs import needs_rabbitmq
from tests.servers.rabbitmq_cluster import RabbitCluster

KILLS = 9 if os.environ.get("BIDE_LONG") else 3
AWAY = 5.0  # seconds without the node, in which the other two go on
SETTLING = 240.0  # seconds
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.fixture
def cluster() -> Iterator[RabbitCluster]:
    needs_rabbitmq()
    with RabbitCluster(tuned=True) as cluster:
        yield cluster


def test_what_a_cluster_has_confirmed_comes_out_after_its_leaders_were_killed(cluster: RabbitCluster, tmp_path: Path) -> None:
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with Storm(f"amqp://guest:guest@{hosts}/", tmp_path, seed=seed) as storm:
        with storm.at_work():
            for number in range(KILLS):
                storm.wait_for_work(chance.randrange(20, 80))
                leader = cluster.leader_of(f"bide:topic:{TOPICS[number % len(TOPICS)]}")
                with storm.fault("kill the leader of a topic") as dealt:
                    leader.kill()
                    storm.pause(AWAY)
                    storm.wait_for_work(10)  # two of three nodes are enough
                    cluster.mend()
                    dealt.now()
        storm.settle(SETTLING)
        storm.end()
        found = storm.account()
    print(found)
    assert found.good, str(found)
    assert {error for error, _ in found.raised} <= WELCOME | {"LeaseLost"}, str(found)
    assert len(found.waits) == KILLS

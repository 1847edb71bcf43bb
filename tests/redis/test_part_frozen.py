"""One server of several freezes or dies while everything else of the API is used: who needs only the others feels nothing."""

import os
from pathlib import Path

import pytest

from tests.redis.part_away import NONE, Crowd, node_of, report, verdict
from tests.servers.fixtures import NewCluster

LONG = os.environ.get("BIDE_LONG")
AWAY = 40.0 if LONG else 20.0  # seconds: more than the patience of 15 that calls have, and than leases of 8
slow = pytest.mark.slow
pytestmark = pytest.mark.timeout(900)


def judge(crowd: Crowd) -> None:
    print(report(crowd))
    wrong = verdict(crowd)
    assert not wrong, "\n".join(wrong)


@pytest.mark.always
@pytest.mark.parametrize("part", [0, pytest.param(1, marks=slow), pytest.param(2, marks=slow)])
def test_a_master_that_freezes_holds_up_only_what_needs_it(part: int, new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster(3, 0, cluster_require_full_coverage="no")
    with Crowd(cluster, tmp_path, slots=30) as crowd, crowd.without(part, AWAY) as meanwhile:
        frozen = node_of(cluster, part)
        cluster.freeze(frozen)
        meanwhile()
        cluster.thaw(frozen)
    judge(crowd)


@slow
def test_a_master_that_is_killed_holds_up_only_what_needs_it(new_cluster: NewCluster, tmp_path: Path) -> None:
    """Until its replica has taken over."""
    cluster = new_cluster(3, 1, cluster_require_full_coverage="no")
    with Crowd(cluster, tmp_path) as crowd, crowd.without(1, AWAY) as meanwhile:
        killed = node_of(cluster, 1)
        crowd.lost.add(1)
        cluster.kill(killed)
        cluster.wait_for_promotion(of=killed)
        meanwhile()
        cluster.restart(killed)
    judge(crowd)


@slow
def test_a_replica_that_dies_holds_up_nothing(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster(3, 1)
    with Crowd(cluster, tmp_path) as crowd, crowd.without(NONE, AWAY) as meanwhile:
        killed = cluster.replica_of(node_of(cluster, 2))
        cluster.kill(killed)
        meanwhile()
        cluster.restart(killed)
    judge(crowd)

"""A Cluster with confirm=replicas:1 after a master was killed: its successor has no replica, and receivers go on."""

import time

import pytest

from bide import ConfirmTimeout, Outgoing, Queue
from tests.servers.fixtures import NewCluster

SENT = 1_500


def receive_all(queue: Queue) -> float:
    """Until all were received. Gives the longest time that a receive took."""
    seen, longest = set[int](), 0.0
    until = time.monotonic() + 60
    while len(seen) < SENT and time.monotonic() < until:
        began = time.monotonic()
        seen |= {delivery.body["n"] for delivery in queue.receive("t", limit=500, wait=1)}
        longest = max(longest, time.monotonic() - began)
    assert len(seen) == SENT
    return longest


@pytest.mark.slow
def test_what_is_ready_is_delivered_although_a_master_has_no_replica(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    with Queue(f"{cluster.url}?confirm=replicas:1") as queue:
        queue.send_many("t", [Outgoing({"n": i}) for i in range(SENT)])
        [old, *_] = cluster.masters()
        old.kill()
        cluster.wait_for_promotion(of=old)
        assert receive_all(queue) < 5
        unconfirmed = 0
        for i in range(12):  # who is promised something is told, and of the shard without a replica only
            try:
                queue.send("t", {"n": i}, key=f"{i}")
            except ConfirmTimeout:
                unconfirmed += 1
        assert 0 < unconfirmed < 12

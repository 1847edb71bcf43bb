"""What `bide doctor` says of a RabbitMQ cluster, whole and broken."""

import time

import pytest

from bide import Queue
from bide.engines.base import Finding
from bide.engines.rabbitmq.doctor import probe
from tests.rabbitmq.examined import examined
from tests.servers.rabbitmq_cluster import RabbitCluster

PATIENCE = 60.0  # seconds


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """How soon the broker tries again is looked at elsewhere: it takes seconds."""
    monkeypatch.setattr(probe, "SOON", 0.05)


def until(cluster: RabbitCluster, level: str, name: str) -> Finding:
    """Ask until this finding is of this level: nodes tell the management API of changes some seconds late."""
    node, give_up = cluster.running[0], time.monotonic() + PATIENCE
    while True:
        found = examined(node.url, management=node.management_url, timeout="1").get(name)
        if found is not None and found.level == level:
            return found
        assert time.monotonic() < give_up, f"{name} never was {level}: {found}"


@pytest.mark.slow
def test_a_node_that_leads_all_queues_or_lacks_one_is_told_of(rabbitmq_cluster: RabbitCluster) -> None:
    first, _, third = rabbitmq_cluster.nodes
    with Queue(first.url) as queue:
        queue.send("mail", 1, delay="1h")
    rabbitmq_cluster.wait_until_whole()
    assert until(rabbitmq_cluster, "ok", "replicas").value == "3 of each queue"
    until(rabbitmq_cluster, "ok", "leaders")
    rabbitmq_cluster.lead_from(first)
    assert until(rabbitmq_cluster, "warn", "leaders").advice.endswith("rabbitmq-queues rebalance quorum")
    rabbitmq_cluster.rebalance()
    until(rabbitmq_cluster, "ok", "leaders")
    first.ctl("delete_member", "bide:lost", third.node, program="rabbitmq-queues")
    found = until(rabbitmq_cluster, "warn", "replicas")
    assert found.value == "1 of 61 queues have fewer than 3"
    assert "rabbitmq-queues grow NODE all --queue-pattern '^bide:'" in found.advice
    first.ctl("grow", third.node, "all", "--queue-pattern", "^bide:lost", program="rabbitmq-queues")
    until(rabbitmq_cluster, "ok", "replicas")

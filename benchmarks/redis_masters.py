"""A queue over the three masters of a Cluster: its memory, how evenly the masters share it, and what a message costs them.

`BIDE_BENCH_MASTERS=30_000_000` sets how many messages wait: these take 3.5 GB of memory, and a quarter of an hour.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.measure import Figure, figure
from benchmarks.redis_costs import HOUR, body, load, spread
from bide import Queue
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer

MESSAGES = int(os.environ.get("BIDE_BENCH_MASTERS", "300_000"))
MASTERS = 3
PRODUCERS = 2
TAKEN = 10_000  # messages that are claimed and acked
SIZE = 100  # bytes of a body


def run() -> list[Figure]:
    with RedisCluster(MASTERS, 0, cluster_node_timeout=30_000) as cluster:
        nodes = cluster.nodes
        with Queue(cluster.url) as queue:  # its scripts are loaded, its few fixed keys made
            queue.cancel(queue.send("t", delay=1))
        memory, spent = _memory(nodes), _cpu(nodes)
        took = _filled(cluster.url)
        used = [after - before for after, before in zip(_memory(nodes), memory, strict=True)]
        sending = [after - before for after, before in zip(_cpu(nodes), spent, strict=True)]
        taking = _taken(cluster.url, nodes)
    return [
        figure(f"{MESSAGES:,} over a day, {MASTERS} masters: sent by {PRODUCERS} producers", "a second", [MESSAGES / took]),
        figure("… memory", "GB", [sum(used) / 1e9]),
        figure("… memory beyond its body, a message", "bytes", [sum(used) / MESSAGES - SIZE]),
        figure("… memory of a master", "GB", [each / 1e9 for each in used]),
        figure("… CPU of all masters to take one", "µs", [1e6 * sum(sending) / MESSAGES]),
        figure("… of that, share of a master", "percent", [100 * each / sum(sending) for each in sending]),
        figure("… CPU of all masters to claim and ack one", "µs", [1e6 * taking / TAKEN]),
        load(),
    ]


def _filled(url: str) -> float:
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.redis_masters", url, str(MESSAGES // PRODUCERS)]
    producers = [subprocess.Popen([*command, str(number)]) for number in range(PRODUCERS)]
    assert [each.wait() for each in producers] == [0] * PRODUCERS
    return time.monotonic() - began


def _taken(url: str, nodes: Sequence[RedisServer]) -> float:
    """Seconds of the masters' CPU, for what is due at once."""
    with Queue(url) as queue:
        queue.send_many("now", [body(SIZE)] * TAKEN)
        left, spent = TAKEN, sum(_cpu(nodes))
        while left:
            found = queue.receive("now", limit=1_000, wait=5)
            left -= sum(queue.ack_many(found))
    return sum(_cpu(nodes)) - spent


def _memory(nodes: Sequence[RedisServer]) -> list[int]:
    return [int(_info(node, "memory")["used_memory"]) for node in nodes]


def _cpu(nodes: Sequence[RedisServer]) -> list[float]:
    found = [_info(node, "cpu") for node in nodes]
    return [float(each["used_cpu_user"]) + float(each["used_cpu_sys"]) for each in found]


def _info(node: RedisServer, section: str) -> dict[str, Any]:
    with node.client() as client:
        told: dict[str, Any] = client.info(section)
        return told


def _produce(url: str, count: int, number: int) -> None:
    with Queue(url) as queue:
        for part in spread(count, HOUR, 24 * HOUR, body(SIZE), seed=number):
            queue.send_many("t", part)


if __name__ == "__main__":
    _produce(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

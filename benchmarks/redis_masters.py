"""A queue over the three masters of a Cluster: its memory, how evenly the masters share it, and what a message costs them.

A single server does the same work, by turns with the Cluster, so that a noisy machine is noisy to both.
`BIDE_BENCH_MASTERS=30_000_000` sets how many messages wait in each: these take 7 GB of memory, and half an hour.
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
TURNS = 5
SENT = MESSAGES // TURNS  # in one turn
TAKEN = 10_000  # messages that are claimed and acked in one turn
SIZE = 100  # bytes of a body


def run() -> list[Figure]:
    with RedisCluster(MASTERS, 0, cluster_node_timeout=30_000) as cluster, RedisServer() as server:
        many, one = Place(cluster.url, cluster.nodes), Place(server.url, [server])
        for turn in range(TURNS):
            for place in (many, one):
                place.fill(turn)
                place.take()
    return [
        figure(f"{MESSAGES:,} over a day, {MASTERS} masters: sent by {PRODUCERS} producers", "a second", many.speeds),
        figure("… memory", "GB", [sum(many.used) / 1e9]),
        figure("… memory beyond its body, a message", "bytes", [sum(many.used) / MESSAGES - SIZE]),
        figure("… memory of a master", "GB", [each / 1e9 for each in many.used]),
        figure("… CPU of all masters to take one", "µs", many.sending),
        figure("… a single server", "µs", one.sending),
        figure("… all masters, of a single server", "percent", _ratios(many.sending, one.sending), "<= 115"),
        figure("… a master, off their mean", "percent", many.unevenness, "<= 10"),
        figure("… CPU of all masters to claim and ack one", "µs", many.taking),
        figure("… a single server", "µs", one.taking),
        figure("… all masters, of a single server", "percent", _ratios(many.taking, one.taking), "<= 115"),
        load(),
    ]


class Place:
    """A queue on one server or on several: what its work took so far."""

    def __init__(self, url: str, nodes: Sequence[RedisServer]) -> None:
        self._url = url
        self._nodes = nodes
        with Queue(url) as queue:  # its scripts are loaded, its few fixed keys made
            queue.cancel(queue.send("t", delay=1))
        self.used: list[float] = [0.0] * len(nodes)  # bytes of each server for what waits
        self.speeds: list[float] = []  # of each turn: messages a second
        self.sending: list[float] = []  # of each turn: µs of CPU of all servers for a message
        self.taking: list[float] = []
        self._spent = [0.0] * len(nodes)  # seconds of CPU of each server, for all that was sent

    def fill(self, turn: int) -> None:
        memory, cpu, began = _memory(self._nodes), _cpu(self._nodes), time.monotonic()
        command = [sys.executable, "-m", "benchmarks.redis_masters", self._url, str(SENT // PRODUCERS)]
        seeds = range(turn * PRODUCERS, (turn + 1) * PRODUCERS)
        producers = [subprocess.Popen([*command, str(seed)]) for seed in seeds]
        assert [each.wait() for each in producers] == [0] * PRODUCERS
        self.speeds.append(SENT / (time.monotonic() - began))
        spent = _less(_cpu(self._nodes), cpu)
        self.sending.append(1e6 * sum(spent) / SENT)
        self._spent = _plus(self._spent, spent)
        self.used = _plus(self.used, _less(_memory(self._nodes), memory))

    def take(self) -> None:
        """What is due at once."""
        with Queue(self._url) as queue:
            queue.send_many("now", [body(SIZE)] * TAKEN)
            left, cpu = TAKEN, _cpu(self._nodes)
            while left:
                found = queue.receive("now", limit=1_000, wait=5)
                left -= sum(queue.ack_many(found))
        self.taking.append(1e6 * sum(_less(_cpu(self._nodes), cpu)) / TAKEN)

    @property
    def unevenness(self) -> list[float]:
        """Of each server: by how many percent its CPU for all that was sent is off the mean."""
        mean = sum(self._spent) / len(self._spent)
        return [100 * abs(each / mean - 1) for each in self._spent]


def _ratios(many: Sequence[float], one: Sequence[float]) -> list[float]:
    """Of each turn, in percent."""
    return [100 * here / there for here, there in zip(many, one, strict=True)]


def _less(after: Sequence[float], before: Sequence[float]) -> list[float]:
    return [here - there for here, there in zip(after, before, strict=True)]


def _plus(sums: Sequence[float], more: Sequence[float]) -> list[float]:
    return [here + there for here, there in zip(sums, more, strict=True)]


def _memory(nodes: Sequence[RedisServer]) -> list[float]:
    return [float(_info(node, "memory")["used_memory"]) for node in nodes]


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

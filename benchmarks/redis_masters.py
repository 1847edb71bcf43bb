"""A queue over the three masters of a Cluster: its memory, how evenly the masters share it, and what a message costs them.

A single server does the same work, by turns with the Cluster, so that a noisy machine is noisy to both. What servers
take when nobody uses them is measured before, and left out: that of three masters, which also talk to each other, is more.
Masters that share a machine also share its processor's cache. So their instructions are counted, too, if valgrind is there.
`BIDE_BENCH_MASTERS=30_000_000` sets how many messages wait in each: these take 7 GB of memory, and half an hour.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.costs import HOUR, body, load, spread
from benchmarks.counts import callgrind
from benchmarks.measure import Figure, figure
from bide import Queue
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer

MESSAGES = int(os.environ.get("BIDE_BENCH_MASTERS", "300_000"))
MASTERS = 3
PRODUCERS = 2
TURNS = 5
SENT = MESSAGES // TURNS  # in one turn
TAKEN = 30_000  # messages that are claimed and acked in one turn
SIZE = 100  # bytes of a body
IDLE = 5.0  # seconds
COUNTED = 30_000  # messages whose instructions are counted


def run() -> list[Figure]:
    with RedisCluster(MASTERS, 0, cluster_node_timeout=30_000) as cluster, RedisServer() as server:
        many, one = Place(cluster.url, cluster.nodes), Place(server.url, [server])
        for place in (many, one):
            place.rest()
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
        figure("… all masters, of a single server", "percent", _ratios(many.sending, one.sending)),
        figure("… a master, off their mean", "percent", many.unevenness, "<= 10"),
        figure("… CPU of all masters to claim and ack one", "µs", many.taking),
        figure("… a single server", "µs", one.taking),
        figure("… all masters, of a single server", "percent", _ratios(many.taking, one.taking)),
        figure("… and for the whole life of one", "percent", _ratios(many.lives, one.lives), "<= 115"),
        *(_instructions() if callgrind.there() else []),
        load(),
    ]


def _instructions() -> list[Figure]:
    """For a message, over a day, and then for one that is claimed and acked."""
    with tempfile.TemporaryDirectory(prefix="bide-bench-") as name:
        folders = [Path(name, str(number)) for number in range(MASTERS + 1)]
        for folder in folders:
            folder.mkdir()
        *unders, under = map(callgrind.command, folders)
        with (
            RedisCluster(MASTERS, 0, under=unders, cluster_node_timeout=60_000) as cluster,
            RedisServer(under=under) as server,
        ):
            many, one = _counted(cluster.url, cluster.nodes, folders), _counted(server.url, [server], folders[MASTERS:])
    names = ("sent", "claimed and acked", "whole life")
    bars = ("", "", "<= 115")
    return [
        figure(f"… all masters, of a single server, instructions: {name}", "percent", [100 * here / there], bar)
        for name, here, there, bar in zip(names, (*many, sum(many)), (*one, sum(one)), bars, strict=True)
    ]


def _counted(url: str, nodes: Sequence[RedisServer], folders: Sequence[Path]) -> list[int]:
    """Of all servers together: for what is sent over a day, and for claims and acks of as much that is due."""
    counters = [callgrind.Callgrind(node.pid, folder) for node, folder in zip(nodes, folders, strict=False)]

    def counted(act: Callable[[], object]) -> int:
        with ExitStack() as stack:
            for each in counters:
                stack.enter_context(each.counted())
            act()
        return sum(each.last for each in counters)

    with Queue(f"{url}?timeout=60&connect_timeout=60") as queue:
        queue.send_many("now", [body(SIZE)] * MASTERS)
        _take(queue, MASTERS)  # the scripts are loaded
        far = next(spread(COUNTED, HOUR, 24 * HOUR, body(SIZE)))
        sent = counted(lambda: queue.send_many("t", far))
        queue.send_many("now", [body(SIZE)] * COUNTED)
        return [sent, counted(lambda: _take(queue, COUNTED))]


def _take(queue: Queue, count: int) -> None:
    """Claim and ack so many."""
    while count:
        count -= sum(queue.ack_many(queue.receive("now", limit=1_000, wait=5)))


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
        self._idle = [0.0] * len(nodes)  # of each second
        self._began, self._before = 0.0, self._spent

    def rest(self) -> None:
        self._start()
        time.sleep(IDLE)
        self._idle = [each / IDLE for each in self._stop()]

    def fill(self, turn: int) -> None:
        memory, began = _memory(self._nodes), time.monotonic()
        self._start()
        command = [sys.executable, "-m", "benchmarks.redis_masters", self._url, str(SENT // PRODUCERS)]
        seeds = range(turn * PRODUCERS, (turn + 1) * PRODUCERS)
        producers = [subprocess.Popen([*command, str(seed)]) for seed in seeds]
        assert [each.wait() for each in producers] == [0] * PRODUCERS
        self.speeds.append(SENT / (time.monotonic() - began))
        spent = self._stop()
        self.sending.append(1e6 * sum(spent) / SENT)
        self._spent = _plus(self._spent, spent)
        self.used = _plus(self.used, _less(_memory(self._nodes), memory))

    def take(self) -> None:
        """What is due at once."""
        with Queue(self._url) as queue:
            queue.send_many("now", [body(SIZE)] * TAKEN)
            self._start()
            _take(queue, TAKEN)
            self.taking.append(1e6 * sum(self._stop()) / TAKEN)

    def _start(self) -> None:
        self._began, self._before = time.monotonic(), _cpu(self._nodes)

    def _stop(self) -> list[float]:
        """Seconds of CPU of each server since the start, beyond what it takes when nobody uses it."""
        gone = time.monotonic() - self._began
        used = _less(_cpu(self._nodes), self._before)
        return [each - idle * gone for each, idle in zip(used, self._idle, strict=True)]

    @property
    def lives(self) -> list[float]:
        """Of each turn: µs of CPU of all servers to take a message, to claim it and to ack it."""
        return [sent + taken for sent, taken in zip(self.sending, self.taking, strict=True)]

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

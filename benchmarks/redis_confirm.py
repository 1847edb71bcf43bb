"""What each level of `confirm=` costs, on a master with two replicas: sends in batches, a worker, and sends one by one.

All servers share this machine and its processors with us: replicas are nearer than elsewhere, and take time from the master.
Before Redis 7.2, `aof` needs `appendfsync always`: that is set for this level, and `everysec` for the others.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from benchmarks.costs import body, load
from benchmarks.lateness import part
from benchmarks.measure import Figure, figure
from benchmarks.throughput import work_off
from bide import AsyncQueue, Queue
from tests.servers.redis import RedisServer
from tests.servers.server import HOST

LEVELS = {"memory": "everysec", "aof": "always", "replicas:1": "everysec", "replicas:2": "everysec"}  # and their appendfsync
ROUNDS = 15
BATCH = 20_000
ONE_BY_ONE = 500
SYNCS = 200
BODY = body()
UNITS = {"send_many": "a second", "a worker": "a second", "one send, p50": "µs", "one send, p99": "µs"}


def run() -> list[Figure]:
    seen: dict[tuple[str, str], list[float]] = {(what, level): [] for what in UNITS for level in LEVELS}
    syncs = []
    with _master() as server, server.client() as client:
        levels = list(LEVELS)
        for _ in range(ROUNDS):
            levels.append(levels.pop(0))
            for level in levels:
                client.flushall()
                client.config_set("appendfsync", LEVELS[level])
                for what, value in _measured(server.url, level).items():
                    seen[what, level].append(value)
            syncs += _syncs()
    lines = []
    for (what, level), values in seen.items():
        lines.append(figure(f"{what}, {level}", UNITS[what], values))
        if level != "memory":
            ratios = [100 * mine / plain for mine, plain in zip(values, seen[what, "memory"], strict=True)]
            lines.append(figure("… of memory in the same round", "percent", ratios))
    return [*lines, figure("a write and fsync of 200 bytes on this disk", "µs", syncs), load()]


@contextmanager
def _master() -> Iterator[RedisServer]:
    """With two replicas that have its data."""
    with RedisServer(appendonly="yes", repl_diskless_sync_delay=0) as master:
        place = f"{HOST} {master.port}"
        with RedisServer(appendonly="yes", replicaof=place) as one, RedisServer(appendonly="yes", replicaof=place) as other:
            for replica in (one, other):
                with replica.client() as client:
                    _wait_for_link(client)
            yield master


def _wait_for_link(replica: redis.Redis) -> None:
    until = time.monotonic() + 60
    while replica.info("replication")["master_link_status"] != "up":
        assert time.monotonic() < until, "a replica does not reach its master"
        time.sleep(0.05)


def _measured(url: str, level: str) -> dict[str, float]:
    with Queue(url, confirm=level) as queue:
        began = time.perf_counter()
        queue.send_many("t", [BODY] * BATCH)
        rate = BATCH / (time.perf_counter() - began)
        worked = asyncio.run(_work(url, level))
        times = []
        for _ in range(ONE_BY_ONE):
            began = time.perf_counter()
            queue.send("other", BODY, delay=900)
            times.append(1e6 * (time.perf_counter() - began))
    times.sort()
    return dict(zip(UNITS, (rate, worked, part(times, 0.5), part(times, 0.99)), strict=True))


async def _work(url: str, level: str) -> float:
    """Messages a second that one worker takes and ends, of those that wait."""
    async with AsyncQueue(url, confirm=level) as queue:
        began = time.perf_counter()
        return await work_off(queue, BATCH, lambda: BATCH / (time.perf_counter() - began))


def _syncs() -> list[float]:
    """What the disk takes for itself, where the servers have their files."""
    times = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 200)
            file.flush()
            os.fsync(file.fileno())
            times.append(1e6 * (time.perf_counter() - began))
    return times

"""What it costs to be seen: instructions a message of a worker that is counted or not, and scrapes of large queues.

`python -m benchmarks sight`. `BIDE_BENCH_PENDING` is how many messages are pending, over a day, in a thousand topics: else ten
million on Redis, a million on PostgreSQL and SQLite. For Redis there is the longest script, by its SLOWLOG, for the others
the longest call, which is one statement on PostgreSQL. Others on the machine make all of them longer.
"""

import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import generate_latest

from benchmarks.costs import load
from benchmarks.counts import callgrind, client
from benchmarks.measure import Figure, figure
from benchmarks.redis_slowest import MANY, SHORT, seen_slowest
from bide import EngineCalled, Outgoing, Queue
from bide.metrics import QueueMetrics
from bide.metrics.queue import registry
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

TOPICS = 1_000
DAY = 86_400
LOOKS = 5
PATHS = ("worker", "worker with metrics")


def run() -> list[Figure]:
    return [*_instructions(), *_redis(), *_postgres(), *_sqlite(), load()]


def _instructions() -> Iterator[Figure]:
    if not callgrind.there():
        print("Without valgrind, no instructions are counted.")
        return
    with RedisServer() as server:
        plain = 0.0
        for name in PATHS:
            server.client().flushall()
            many, _ = client.PATHS[name]
            found = client.counted(name, server.url, many) / many
            plain = plain or found
            yield figure(f"drain, {name}: a message", "instructions", [found])
            if found != plain:
                yield figure("… more than one that is not seen", "%", [100 * (found / plain - 1)], "<= 10")


class _Slowest:
    """The longest call of stats."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def called(self, event: EngineCalled) -> None:
        if event.verb == "stats":
            self.seconds = max(self.seconds, event.seconds)


def _pending(usual: int) -> int:
    return int(os.environ.get("BIDE_BENCH_PENDING", usual))


def _fill(queue: Queue, pending: int) -> None:
    chance = random.Random(1)
    for number in range(TOPICS):
        for first in range(0, pending // TOPICS, 1_000):
            many = min(1_000, pending // TOPICS - first)
            queue.send_many(f"topic.{number}", [Outgoing(number, delay=60 + chance.random() * DAY) for _ in range(many)])


def _looked(queue: Queue) -> tuple[list[float], int]:
    """Seconds of each look at all topics, and bytes of the page."""
    took: list[float] = []
    page = b""
    for _ in range(LOOKS):
        metrics = registry(QueueMetrics(queue, every=0))
        began = time.perf_counter()
        page = generate_latest(metrics)
        took.append(time.perf_counter() - began)
    assert b"bide_scrape_success 1.0" in page
    return took, len(page)


def _figures(name: str, looked: tuple[list[float], int]) -> Iterator[Figure]:
    took, size = looked
    yield figure(f"{name}: a look", "ms", [1_000 * each for each in took])
    yield figure("… its page", "kB", [size / 1_000], "<= 200")


def _redis() -> Iterator[Figure]:
    pending = _pending(10_000_000)
    with RedisServer(slowlog_log_slower_than=SHORT, slowlog_max_len=MANY) as server, Queue(f"{server.url}?timeout=60") as queue:
        _fill(queue, pending)
        seen_slowest(server.client())
        yield from _figures(f"Redis, {pending:,} pending", _looked(queue))
        slowest, name, count, together = seen_slowest(server.client())
        yield figure(f"… its slowest script ({name})", "ms", [slowest], "<= 10")
        yield figure(f"… all of its {count / LOOKS:,.0f} scripts", "ms", [together / LOOKS])


def _postgres() -> Iterator[Figure]:
    pending = _pending(1_000_000)
    with PostgresServer() as server, Queue(server.url) as queue:
        yield from _by_calls(queue, "PostgreSQL", pending)


def _sqlite() -> Iterator[Figure]:
    pending = _pending(1_000_000)
    with tempfile.TemporaryDirectory() as folder, Queue(f"sqlite:///{Path(folder)}/q.db") as queue:
        yield from _by_calls(queue, "SQLite", pending)


def _by_calls(queue: Queue, name: str, pending: int) -> Iterator[Figure]:
    _fill(queue, pending)
    slowest = _Slowest()
    with queue.events.subscribe(slowest):
        yield from _figures(f"{name}, {pending:,} pending", _looked(queue))
    yield figure("… its slowest call", "ms", [1_000 * slowest.seconds], "<= 50")

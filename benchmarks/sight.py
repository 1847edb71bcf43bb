"""What it costs to be seen: instructions a message of a worker that is counted or not, and scrapes of large queues.

`python -m benchmarks sight`. `BIDE_BENCH_PENDING` is how many messages are pending, over a day, in a thousand topics: else ten
million on Redis, a million on PostgreSQL and SQLite. `BIDE_BENCH_ENGINES=redis` chooses one of them. For Redis there is the
longest script, by its SLOWLOG, for the others the longest statement, as the client sees it. Others on the machine make all of
them longer.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from benchmarks.costs import load
from benchmarks.counts import callgrind, client
from benchmarks.measure import Figure, figure
from benchmarks.redis_slowest import MANY, SHORT, seen_slowest
from bide import Outgoing, Queue
from bide.engines.postgres.sync.engine import Postgres
from bide.engines.sqlite.transaction import NamedStatements
from bide.metrics import QueueMetrics
from bide.metrics import queue as metrics_queue
from bide.metrics.app import registry
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

TOPICS = 1_000
DAY = 86_400
LOOKS = 5
PATHS = {"worker": "", "worker with metrics": "<= 10", "worker with traces": ""}  # the bars: % more than the first


def run() -> list[Figure]:
    asked = os.environ.get("BIDE_BENCH_ENGINES", "redis,postgres,sqlite").split(",")
    looks = {"redis": _redis, "postgres": _postgres, "sqlite": _sqlite}
    return [*_instructions(), *(each for name in asked for each in looks[name]()), load()]


def _instructions() -> Iterator[Figure]:
    if not callgrind.there():
        print("Without valgrind, no instructions are counted.")
        return
    with RedisServer() as server:
        plain = 0.0
        for name, most in PATHS.items():
            server.client().flushall()
            many, _ = client.PATHS[name]
            found = client.counted(name, server.url, many) / many
            plain = plain or found
            yield figure(f"drain, {name}: a message", "instructions", [found])
            if found != plain:
                yield figure("… more than one that is not seen", "%", [100 * (found / plain - 1)], most)


@contextmanager
def _timed(owner: type, *methods: str) -> Iterator[list[float]]:
    """The seconds of each statement, which these methods carry out."""
    took: list[float] = []
    plain = {name: getattr(owner, name) for name in methods}

    def timed(name: str) -> Callable[..., Any]:
        def run(self: object, *asked: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return plain[name](self, *asked, **options)
            finally:
                took.append(time.perf_counter() - began)

        return run

    for name in methods:
        setattr(owner, name, timed(name))
    try:
        yield took
    finally:
        for name in methods:
            setattr(owner, name, plain[name])


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
    metrics_queue.PATIENCE = 600.0  # else scrapes are told what is known before the look has ended
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
    with PostgresServer() as server, Queue(server.url) as queue:
        yield from _by_statements(queue, "PostgreSQL", Postgres, "_ask")


def _sqlite() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, Queue(f"sqlite:///{Path(folder)}/q.db") as queue:
        yield from _by_statements(queue, "SQLite", NamedStatements, "one", "all")


def _by_statements(queue: Queue, name: str, owner: type, *methods: str) -> Iterator[Figure]:
    pending = _pending(1_000_000)
    _fill(queue, pending)
    with _timed(owner, *methods) as took:
        yield from _figures(f"{name}, {pending:,} pending", _looked(queue))
    yield figure("… its slowest statement", "ms", [1_000 * max(took)], "<= 50")
    yield figure("… all of its statements", "count", [len(took) / LOOKS])

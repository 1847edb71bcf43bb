"""The ways that are measured, in the order of the table."""

from dataclasses import dataclass
from typing import Literal

Server = Literal["redis", "postgres", "rabbitmq", "file", "none"]

TAKEN = "what a killed consumer has taken"
NOTHING = "nothing"
ALL = "everything, when the process ends"


@dataclass(frozen=True)
class Way:
    name: str
    title: str
    server: Server
    loses: str
    """For the table: what may be lost, or done twice, while the server keeps its data."""
    program: str
    """A file of examples/roads."""
    period: float = 0.0
    """Seconds between two looks, if they are not those of the program."""
    waiting: int = 5_000
    """Messages whose memory is measured."""


def _bide(name: str, title: str, server: Server, waiting: int = 5_000) -> Way:
    return Way(name, f"**bide** on {title}", server, NOTHING, "with_bide", waiting=waiting)


ALL_WAYS = (
    Way("redis_list", "[list](#a-list)", "redis", f"{TAKEN}, due or not", "redis_list"),
    Way("zset_1s", "[sorted set, polled every second](#a-sorted-set-that-is-polled)", "redis", TAKEN, "zset_polled"),
    Way("zset_10ms", "sorted set, polled every 10 ms", "redis", TAKEN, "zset_polled", period=0.01),
    Way("zset_lua", "[sorted set with Lua, every 100 ms](#a-sorted-set-with-lua)", "redis", f"{TAKEN}, up to 100", "zset_lua"),
    Way("rpoplpush", "[RPOPLPUSH, every 100 ms](#rpoplpush)", "redis", f"{TAKEN}, unless you return it", "rpoplpush"),
    Way("key_expiry", "[key expiry](#key-expiry)", "redis", "all that expires while nobody listens", "key_expiry"),
    Way(
        "celery_eta",
        "[Celery's ETA](#celerys-eta)",
        "redis",
        "the task that ran in a killed worker; those that waited there come an hour later",
        "celery_eta",
    ),
    _bide("bide_redis", "[Redis](redis.md)", "redis"),
    Way(
        "table_scan",
        "[table, scanned every second](#a-table-that-is-scanned)",
        "postgres",
        "nothing, but two scanners do a row twice",
        "table_scan",
        period=1.0,
        waiting=1_000,
    ),
    _bide("bide_postgres", "[PostgreSQL](postgres.md)", "postgres", 1_000),
    Way(
        "ttl_dead_letter",
        "[one queue with TTLs](#one-queue-with-ttls-on-rabbitmq)",
        "rabbitmq",
        "what expires while the consumers' queue is missing",
        "ttl_dead_letter",
        waiting=1_000,
    ),
    Way(
        "ttl_queues",
        "[a queue for each delay](#a-queue-for-each-delay-on-rabbitmq)",
        "rabbitmq",
        "what expires while the consumers' queue is missing",
        "ttl_queues",
        waiting=1_000,
    ),
    _bide("bide_rabbitmq", "[RabbitMQ](rabbitmq.md)", "rabbitmq", 1_000),
    Way("delay_queue", "[heap in the process](#a-heap-inside-the-process)", "none", ALL, "delay_queue", waiting=50_000),
    Way("bide_delay_queue", "bide's [DelayQueue](timers.md#delayqueue)", "none", ALL, "bide_delay_queue", waiting=50_000),
    Way(
        "timing_wheel",
        "[wheel in the process](#a-timing-wheel-inside-the-process)",
        "none",
        ALL,
        "timing_wheel",
        waiting=50_000,
    ),
    Way("bide_wheel", "bide's [TimerWheel](timers.md#timerwheel)", "none", ALL, "bide_wheel", waiting=50_000),
    _bide("bide_sqlite", "[SQLite](sqlite.md)", "file", 1_000),
)

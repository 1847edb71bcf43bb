"""A queue that is as large as the machine: filled once by two producers, used, saved, restarted, and used by a worker.

`BIDE_BENCH_HUGE=100_000_000` sets how many messages wait: these take 11.6 GB of memory, twice that while the server saves, as
much on the disk, and about an hour. The same work is done in turns on a server that holds few.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.costs import HOUR, body, load, spread
from benchmarks.measure import Figure, figure
from benchmarks.redis_growth import FEW, put, turn
from benchmarks.redis_life import opened
from benchmarks.redis_meter import Meter
from benchmarks.redis_slowest import seen_slowest
from bide import AsyncQueue, Queue, Worker
from bide.engines.redis.script import scripts
from tests.servers.redis import RedisServer

HUGE = int(os.environ.get("BIDE_BENCH_HUGE", "1_000_000"))
PRODUCERS = 2
TURNS = 5
LOOKS = 20
SIZE = 100  # bytes of a body
PATIENCE = 3_600.0  # seconds: a start loads all, a stop may have to wait for a child that saves
LOGGED = 1_000  # µs: shorter scripts are not in the server's log
ENTRIES = 100_000  # of that log


def run() -> list[Figure]:
    with RedisServer() as few, RedisServer(patience=PATIENCE, slowlog_log_slower_than=LOGGED, slowlog_max_len=ENTRIES) as many:
        small, huge = Meter(few), Meter(many)
        for script in scripts().values():
            huge.client.script_load(script.text)
        return [
            *_filled(huge),
            *_used(small, huge),
            *_looked_at(huge),
            *_saved(huge),
            *_restarted(many),
            *asyncio.run(_worked(Meter(many))),
            load(),
        ]


def one(name: str, unit: str, value: float, bar: str = "") -> Figure:
    return figure(name, unit, [value], bar)


@contextmanager
def step(what: str) -> Iterator[Callable[[], float]]:
    """Tell what is being done, and give the seconds so far."""
    began = time.monotonic()
    print(f"{what} …", file=sys.stderr, flush=True)
    yield lambda: time.monotonic() - began
    print(f"{what}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _filled(meter: Meter) -> list[Figure]:
    before = _used_memory(meter)
    with step(f"{HUGE:,} messages are sent by {PRODUCERS} producers") as passed:
        command = [sys.executable, "-m", "benchmarks.redis_huge", meter.url, str(HUGE // PRODUCERS)]
        producers = [subprocess.Popen([*command, str(number)]) for number in range(PRODUCERS)]
        while any(each.poll() is None for each in producers):
            time.sleep(1.0)
            _tell(meter, passed())
        took = passed()
    assert [each.returncode for each in producers] == [0] * PRODUCERS
    used = _used_memory(meter) - before
    return [
        one(f"{HUGE:,} over a day: sent by {PRODUCERS} producers", "a second", HUGE / took),
        one("… memory", "GB", used / 1e9, "<= 11.6 for 100 M"),
        one("… memory beyond its body, a message", "bytes", used / HUGE - SIZE, "<= 17"),
        _slowest(meter, "… the slowest script"),
    ]


def _tell(meter: Meter, seconds: float) -> None:
    with Queue(meter.url) as queue:
        there = queue.stats("t").scheduled
    print(
        f"\r  {there:,} of {HUGE:,}, {100 * there / HUGE:.0f} %, {there / max(seconds, 1):,.0f}/s ",
        end="",
        file=sys.stderr,
        flush=True,
    )


def _used(small: Meter, huge: Meter) -> list[Figure]:
    """The same work on both, in turns."""
    seen: dict[tuple[str, str], list[float]] = {}
    meters = {f"{FEW:,} pending": small, f"{HUGE:,} pending": huge}
    engines = {size: opened(meter) for size, meter in meters.items()}
    with step("put, cancel, claim and ack"):
        for _ in put(engines[f"{FEW:,} pending"], FEW):
            pass
        for _ in range(TURNS):
            for size, engine in engines.items():
                for what, spent in turn(engine, meters[size]).items():
                    seen.setdefault((what, size), []).append(spent)
    for engine in engines.values():
        engine.close()
    lines = []
    for what in ("put", "cancel", "claim + ack"):
        few, many = (seen[what, size] for size in engines)
        lines += [figure(f"{what}, {size}, server", "µs", seen[what, size]) for size in engines]
        speeds = [100 * low / high for low, high in zip(few, many, strict=True)]
        lines.append(figure("… its speed there", "percent", speeds, ">= 85"))
    return [*lines, _slowest(huge, "… the slowest script")]


def _looked_at(meter: Meter) -> list[Figure]:
    stats, pages = [], []
    with step("stats and pages"), Queue(meter.url) as queue:
        for _ in range(LOOKS):
            began = time.perf_counter()
            queue.stats("t")
            stats.append(1e3 * (time.perf_counter() - began))
            began = time.perf_counter()
            queue.messages("t", limit=100)
            pages.append(1e3 * (time.perf_counter() - began))
    slowest = _slowest(meter, "… the slowest script")
    return [figure("stats of the topic", "ms", stats), figure("the first page of 100 messages", "ms", pages), slowest]


def _saved(meter: Meter) -> list[Figure]:
    lines = []
    for what, act, running in (
        ("RDB", meter.client.bgsave, "rdb_bgsave_in_progress"),
        ("AOF", lambda: meter.client.config_set("appendonly", "yes"), "aof_rewrite_in_progress"),
    ):
        with step(f"{what} is written") as passed:
            act()
            while _info(meter, "persistence")[running]:
                time.sleep(0.1)
            took = passed()
        told = _info(meter, "persistence")
        assert told["rdb_last_bgsave_status"] == told["aof_last_bgrewrite_status"] == "ok"
        fork = _info(meter, "stats")["latest_fork_usec"] / 1e3
        lines += [one(f"{what} written", "s", took), one("… the fork for it", "ms", fork)]
    return [*lines, one("AOF with its RDB part, on the disk", "GB", _info(meter, "persistence")["aof_current_size"] / 1e9)]


def _restarted(server: RedisServer) -> list[Figure]:
    server.kill()  # it has its AOF
    with step("the server starts again") as passed:
        server.start(appendonly="yes")
        took = passed()
    with Queue(server.url) as queue:
        there = queue.stats("t").scheduled
    assert there >= HUGE, f"{HUGE - there:,} messages are missing after the restart"
    return [one("restart, until it answers", "s", took)]


async def _worked(meter: Meter) -> list[Figure]:
    """From a worker's start to the handling of what was due, and of what comes later."""
    times = []
    with step("a worker"):
        for _ in range(TURNS):
            queue = AsyncQueue(meter.url)
            handled = asyncio.Event()

            @queue.task("now")
            async def handle(handled: asyncio.Event = handled) -> None:
                handled.set()

            async with queue:
                await queue.send("now", {})
                began = time.perf_counter()
                async with Worker(queue, topics=["now"]):
                    await handled.wait()
                    times.append(1e3 * (time.perf_counter() - began))
    return [figure("a worker's start until its first message is handled", "ms", times)]


def _slowest(meter: Meter, name: str) -> Figure:
    slowest, verb, _, _ = seen_slowest(meter.client, LOGGED)
    return one(f"{name}: {verb}", "ms", slowest, "<= 10")


def _used_memory(meter: Meter) -> int:
    return int(_info(meter, "memory")["used_memory"])


def _info(meter: Meter, section: str) -> dict[str, Any]:
    told: dict[str, Any] = meter.client.info(section)
    return told


def _produce(url: str, count: int, number: int) -> None:
    with Queue(url) as queue:
        for part in spread(count, HOUR, 24 * HOUR, body(SIZE), seed=number):
            queue.send_many("t", part)


if __name__ == "__main__":
    _produce(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

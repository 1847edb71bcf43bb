"""What a pending message takes of a Redis server's memory beyond its body of 100 bytes, sent through the public API."""

import asyncio
import re
import time
from collections.abc import Callable

from benchmarks.costs import HOUR, body, load, spread
from benchmarks.measure import Figure, figure
from benchmarks.redis_meter import PENDING, Meter
from bide import AsyncQueue, Queue
from tests.servers.redis import RedisServer

MILLION = 1_000_000
DAY, YEAR = 24 * HOUR, 365 * 24 * HOUR
BODY = body()
SIZE = 100
ALONE = 300_000  # messages that are sent one by one
TOPICS = 1_000
CANCELLED = 0.95
LOOKS = 5  # each drops a thousand windows that were emptied
GATHERED = 1_000
FEW_KEYS = 12


class Scales:
    """Weighs what is added to an empty server. One look each: memory is not noisy."""

    def __init__(self, meter: Meter) -> None:
        meter.empty()
        self._meter = meter
        with Queue(meter.url) as queue:  # its scripts are loaded, its few fixed keys made
            queue.cancel(queue.send("t", BODY, delay=1))
            queue.receive("t")
        self._before = self._used()

    def added(self) -> int:
        return self._used() - self._before

    def _used(self) -> int:
        """When what was freed in the background is gone, and so are the buffers of connections."""
        time.sleep(3.0)
        self._meter.client.memory_purge()
        return int(self._meter.client.info("memory")["used_memory"])


def run() -> list[Figure]:
    with RedisServer() as server:
        meter = Meter(server)
        lines = []
        for count in sorted({MILLION, PENDING}):
            lines += [
                _plain(meter, count, HOUR, f"{count:,} over 1 h"),
                _plain(meter, count, DAY, f"{count:,} over 24 h", "<= 30"),
            ]
        lines += [
            _plain(meter, MILLION // 10, YEAR, f"{MILLION // 10:,} over a year"),
            _topics(meter),
            *_beside_lone_ones(meter),
        ]
        for count in sorted({MILLION, PENDING}):
            lines += _cancelled(meter, count, keys=True)
        lines += _cancelled(meter, MILLION, keys=False)
        lines += [_lane(meter, keys=False), _lane(meter, keys=True)]
        return [*lines, load()]


def _one(name: str, value: float, bar: str = "", unit: str = "bytes") -> Figure:
    return figure(name, unit, [value], bar)


def _lane(meter: Meter, *, keys: bool) -> Figure:
    """What is kept of a batch for ten minutes, or some more, should its answer have been lost: one record a connection."""
    meter.empty()
    with Queue(meter.url) as queue:
        for part in spread(GATHERED, HOUR, DAY, BODY, keys=keys):
            queue.send_many("t", part)
        lanes = meter.client.keys("*:lanes:*")
        kept: int = sum(meter.client.memory_usage(name, samples=0) or 0 for name in lanes)
    what = "with keys of their own" if keys else "without keys"
    return _one(f"answer to {GATHERED:,} sent {what}, kept for 10 min", kept)


def _over(added: int, count: int) -> float:
    return added / count - SIZE


def _plain(meter: Meter, count: int, seconds: float, name: str, bar: str = "") -> Figure:
    scales = Scales(meter)
    with Queue(meter.url) as queue:
        for part in spread(count, HOUR, seconds, BODY):
            queue.send_many("t", part)
    return _one(name, _over(scales.added(), count), bar)


def _topics(meter: Meter) -> Figure:
    scales = Scales(meter)
    each = MILLION // TOPICS
    with Queue(meter.url) as queue:
        for number in range(TOPICS):
            for part in spread(each, HOUR, DAY, BODY):
                queue.send_many(f"topic.{number}", part)
    return _one(f"{MILLION:,} in {TOPICS:,} topics over 24 h", _over(scales.added(), MILLION), "<= 35")


def _beside_lone_ones(meter: Meter) -> list[Figure]:
    """Many that were sent one by one, due soon, and then a million; then the first are drained."""
    scales = Scales(meter)
    with Queue(meter.url) as queue:
        last = 0
        for number in range(ALONE):
            last = max(last, queue.send("t", BODY, delay=20 + number % 10).due)
        alone = scales.added()
        for part in spread(MILLION, HOUR, DAY, BODY):
            queue.send_many("t", part)
        beside = scales.added()
        time.sleep(max(0.0, last / 1_000 - time.time() + 0.1))
        taken = 0
        while deliveries := queue.receive("t", limit=1_000, wait=1):
            queue.ack_many(deliveries)
            taken += len(deliveries)
        assert taken == ALONE
    after = scales.added()
    return [
        _one(f"{ALONE:,} sent one by one", _over(alone, ALONE)),
        _one(f"{MILLION:,} over 24 h, beside these", _over(beside - alone, MILLION)),
        _one("… both together", _over(beside, ALONE + MILLION)),
        _one("… when those sent one by one were drained", _over(after, MILLION), "<= 30"),
    ]


def _cancelled(meter: Meter, count: int, *, keys: bool) -> list[Figure]:
    """Sent, most of them cancelled by id, then all."""
    scales = Scales(meter)
    sent: list[str] = []
    with Queue(meter.url) as queue:
        for part in spread(count, HOUR, DAY, BODY, keys=keys):
            sent += [each.id for each in queue.send_many("t", part)]
    full = scales.added()
    kept = round(count * (1 - CANCELLED))
    asyncio.run(_cancel(meter, sent, lambda place: place % round(1 / (1 - CANCELLED)) > 0))
    some = scales.added()
    asyncio.run(_cancel(meter, sent, lambda place: place % round(1 / (1 - CANCELLED)) == 0))
    left = meter.client.dbsize()
    with Queue(meter.url) as queue:
        for _ in range(LOOKS):  # with upkeep, as every receiver has it
            queue.receive("t")
    none = scales.added()
    what = "with keys of their own" if keys else "without keys"
    own = sum(len(f"order:{number}") for number in range(count)) / count
    names = sorted({re.sub(rb"\d+", b"#", name).decode() for name in meter.client.scan_iter(count=10_000)})
    lines = [
        _one(f"{count:,} over 24 h, {what}", _over(full, count), "<= 45" if keys else ""),
        _one("… of these the key itself", own if keys else 0.0),
        _one(f"… {CANCELLED:.0%} cancelled, each that is left", _over(some, kept)),
        _one("… of their memory came back", 100 * (full - some) / (full * CANCELLED), unit="percent"),
        _one("… all cancelled, in all", none),
        _one("… all cancelled, keys left until somebody receives", left, unit="keys"),
        _one(f"… all cancelled, keys left after {LOOKS} receives", meter.client.dbsize(), f"<= {FEW_KEYS}", "keys"),
    ]
    return [*lines, *(_one(f"    {name}", 1, unit="kind") for name in names[:FEW_KEYS])]


async def _cancel(meter: Meter, sent: list[str], which: Callable[[int], bool]) -> None:
    chosen = [each for place, each in enumerate(sent) if which(place)]
    async with AsyncQueue(meter.url) as queue:
        for first in range(0, len(chosen), GATHERED):
            results = await asyncio.gather(*(queue.cancel(each) for each in chosen[first : first + GATHERED]))
            assert all(results)

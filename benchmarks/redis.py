"""The Redis engine through the public API, with bodies of 100 bytes, on a server that shares the machine's cores with us.

Beside it, interleaved, a bare loop of redis-py that does what home-made delay queues do: one ZADD a message.
"""

import asyncio
import importlib
import importlib.util
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from benchmarks.measure import RUNS, Figure, figure
from benchmarks.redis_costs import Cost, Meter, body, figures, load
from bide import AsyncQueue, Outgoing, Queue, Worker, current
from tests.servers.redis import RedisServer

BODY = body()
MANY = 100_000
SENDERS, EACH = 1_000, 100
ONE_BY_ONE = 5_000
SEND, ZADD = "send one by one, sync", "bare ZADD one by one, redis-py"
LATE_RUNS = 3  # each takes as long as its messages are apart

Loop: TypeAlias = Callable[[], asyncio.AbstractEventLoop]


def run() -> list[Figure]:
    with RedisServer() as server:
        meter = Meter(server)
        return [*_rates(meter), *_lateness(meter), load()]


def _rates(meter: Meter) -> list[Figure]:
    work: dict[str, Callable[[], Cost]] = {
        "send_many": lambda: asyncio.run(_send_many(meter)),
        "send from 1,000 coroutines": lambda: asyncio.run(_coroutines(meter)),
        SEND: lambda: _one_by_one(meter),
        ZADD: lambda: _zadd(meter),
        "receive + ack in hundreds, async": lambda: asyncio.run(_drain(meter)),
        "receive + ack in hundreds, sync": lambda: _drain_sync(meter),
        **{f"worker, async handlers{name}": _work(meter, loop) for name, loop in _loops().items()},
    }
    bars = {
        "send_many": ">= 150,000",
        "send from 1,000 coroutines": ">= 80,000",
        "worker, async handlers": ">= 50,000",
    }
    costs: dict[str, list[Cost]] = {name: [] for name in work}
    for _ in range(RUNS):
        for name, each in work.items():
            meter.empty()
            costs[name].append(each())
    ratios = [ours.rate / bare.rate for ours, bare in zip(costs[SEND], costs[ZADD], strict=True)]
    lines = [line for name, each in costs.items() for line in figures(name, each, bars.get(name, ""))]
    return [*lines, figure("send one by one, to a bare ZADD", "%", [100 * ratio for ratio in ratios], ">= 60")]


def _loops() -> Mapping[str, Loop]:
    loops: dict[str, Loop] = {"": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop") is not None:
        loops[", uvloop"] = importlib.import_module("uvloop").new_event_loop
    return loops


def _in(loop: Loop, main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)


async def _send_many(meter: Meter) -> Cost:
    async with AsyncQueue(meter.url) as queue:
        items = [BODY] * MANY
        meter.start()
        await queue.send_many("t", items)
        return meter.stop(MANY)


async def _coroutines(meter: Meter) -> Cost:
    async with AsyncQueue(meter.url) as queue:

        async def sender() -> None:
            for _ in range(EACH):
                await queue.send("t", BODY, delay=900)

        meter.start()
        await asyncio.gather(*(sender() for _ in range(SENDERS)))
        return meter.stop(SENDERS * EACH)


def _one_by_one(meter: Meter) -> Cost:
    with Queue(meter.url) as queue:
        queue.send("t", BODY, delay=900)  # connected
        meter.start()
        for _ in range(ONE_BY_ONE):
            queue.send("t", BODY, delay=900)
        return meter.stop(ONE_BY_ONE)


def _zadd(meter: Meter) -> Cost:
    plain = msgspec.json.encode(BODY)
    meter.start()
    for _ in range(ONE_BY_ONE):
        meter.client.zadd("bare", {uuid.uuid4().hex.encode() + plain: time.time() + 900})
    return meter.stop(ONE_BY_ONE)


async def _drain(meter: Meter) -> Cost:
    async with AsyncQueue(meter.url) as queue:
        await queue.send_many("t", [BODY] * MANY)
        meter.start()
        while deliveries := await queue.receive("t", limit=100):
            await queue.ack_many(deliveries)
        return meter.stop(MANY)


def _drain_sync(meter: Meter) -> Cost:
    with Queue(meter.url) as queue:
        queue.send_many("t", [BODY] * MANY)
        meter.start()
        while deliveries := queue.receive("t", limit=100):
            queue.ack_many(deliveries)
        return meter.stop(MANY)


def _work(meter: Meter, loop: Loop) -> Callable[[], Cost]:
    def work() -> Cost:
        cost: Cost = _in(loop, _worker(meter))
        return cost

    return work


async def _worker(meter: Meter) -> Cost:
    queue = AsyncQueue(meter.url)
    left, all_done = MANY, asyncio.Event()

    @queue.task("t")
    async def handle(order: int, customer: str, note: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    async with queue:
        await queue.send_many("t", [BODY] * MANY)
        meter.start()
        async with Worker(queue) as worker:
            await all_done.wait()
            for _ in iter(lambda: worker.health().running, 0):  # until the engine has answered the last end
                await asyncio.sleep(0.001)
            cost = meter.stop(MANY)
            stats = await queue.stats("t")
            assert not stats.leased
            assert not stats.pending
    return cost


# lateness


def _lateness(meter: Meter) -> list[Figure]:
    slow: dict[str, list[list[float]]] = {"worker": [], "asyncio.sleep": []}
    fast = []
    for _ in range(LATE_RUNS):
        for name, runs in slow.items():
            meter.empty()
            runs.append(sorted(asyncio.run(_sleeps(_instants(2_000, 100)) if "sleep" in name else _late(meter, 2_000, 100))))
        meter.empty()
        fast.append(sorted(asyncio.run(_late(meter, 25_000, 5_000))))
    bars = {("worker", 0.5): "<= 1.5", ("worker", 0.99): "<= 3", ("worker", 0.0): ">= 0"}
    lines = [
        figure(f"late at 100 a second, {name}, {what}", "ms", [_part(each, part) for each in runs], bars.get((name, part), ""))
        for name, runs in slow.items()
        for what, part in (("p50", 0.5), ("p99", 0.99), ("earliest", 0.0))
    ]
    for what, part in (("p50", 0.5), ("p99", 0.99)):
        pairs = zip(slow["worker"], slow["asyncio.sleep"], strict=True)
        more = [_part(ours, part) - _part(bare, part) for ours, bare in pairs]
        lines.append(figure(f"… the worker's {what} above that of sleep", "ms", more, "<= 1.5"))
    lines += [
        figure(f"late at 5,000 a second, worker, {what}", "ms", [_part(each, part) for each in fast], bar)
        for what, part, bar in (("p50", 0.5, ""), ("p99", 0.99, "<= 20"), ("earliest", 0.0, ">= 0"))
    ]
    return lines


def _part(lates: Sequence[float], part: float) -> float:
    return lates[int(len(lates) * part)]


def _instants(count: int, rate: int) -> Sequence[int]:
    """Milliseconds, from a second on."""
    first = time.time_ns() // 1_000_000 + 1_000
    return [first + number * 1_000 // rate for number in range(count)]


async def _late(meter: Meter, count: int, rate: int) -> list[float]:
    """One worker with nothing else to do, and messages that were sent before."""
    queue = AsyncQueue(meter.url)
    lates: list[float] = []
    all_done = asyncio.Event()

    @queue.task("t")
    async def handle() -> None:
        lates.append(time.time() * 1000 - current().due)
        if len(lates) == count:
            all_done.set()

    async with queue:
        await queue.send_many("t", [Outgoing(at=datetime.fromtimestamp(each / 1000, UTC)) for each in _instants(count, rate)])
        async with Worker(queue):
            await all_done.wait()
    return lates


async def _sleeps(instants: Sequence[int]) -> list[float]:
    lates = []
    for due in instants:
        await asyncio.sleep(max(0.0, due / 1000 - time.time()))
        lates.append(time.time() * 1000 - due)
    return lates

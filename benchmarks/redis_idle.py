"""Workers on Redis that have nothing to do: what they cost themselves and the server, and how many one message wakes.

Commands that clients send are counted apart from all that the server processes, those inside scripts among them.
"""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

from benchmarks.costs import HOUR, body, load, own, spread
from benchmarks.measure import Figure, figure
from benchmarks.redis_meter import Meter
from bide import AsyncQueue, Queue, Worker
from tests.servers.redis import RedisServer

RUNS = 3
FAR = 10_000  # messages, pending far ahead
IDLE = 60.0  # seconds: upkeep, and the look for what has no handler, come once a minute
SETTLED = 10.0  # seconds, until workers that have started have found nothing to do
PROCESSES, EACH = 4, 50
STAGGER = 5.0  # seconds, over which the workers of a process are started, so that they do not look for work all at once
WINDOW = 0.3  # seconds after a send, and around the time when it falls due
AHEAD = 4.0  # seconds from a send until its message is due
ASKED = ("evalsha", "eval", "blpop", "ping", "hello", "client", "script", "select", "info", "hkeys")
"""What clients send. No script calls any of these."""


def run() -> list[Figure]:
    with RedisServer() as server:
        meter = Meter(server)
        with Queue(meter.url) as queue:
            for part in spread(FAR, HOUR, 24 * HOUR, body()):
                queue.send_many("t", part)
        alone = [asyncio.run(_alone(meter)) for _ in range(RUNS)]
        with _crowd(meter):
            idle = [_commands(meter, IDLE) for _ in range(RUNS)]
            with Queue(meter.url) as queue:
                wakings = [_waking(meter, queue) for _ in range(RUNS)]
    lines = [
        figure("one idle worker: commands", "a second", [each for each, _, _ in alone], "<= 0.3"),
        figure("one idle worker: commands, with those inside scripts", "a second", [each for _, each, _ in alone], "<= 1.5"),
        figure("one idle worker: CPU", "percent", [percent for _, _, percent in alone], "<= 0.3"),
        figure(f"{PROCESSES * EACH} idle workers: commands", "a second", [each.total() / IDLE for each in idle], "<= 60"),
    ]
    kinds = ("evalsha", "blpop", "client")
    lines += [figure(f"    {name}", "a second", [each[name] / IDLE for each in idle]) for name in kinds]
    usual = {name: sum(each[name] for each in idle) / (RUNS * IDLE) * WINDOW for name in kinds}
    for place, when in enumerate(("sent", "due")):
        for name, what in (("evalsha", "scripts"), ("blpop", "sleepers woken")):
            seen = [each[place][name] - usual[name] for each in wakings]
            lines.append(figure(f"one message is {when}: {what}, beyond the usual", "", seen))
    return [*lines, load()]


async def _alone(meter: Meter) -> tuple[float, float, float]:
    async with AsyncExitStack() as stack:
        await _work(stack, meter.url)
        await asyncio.sleep(SETTLED)
        cpu, processed, before = own(), _processed(meter), _counts(meter)
        await asyncio.sleep(IDLE)
        spent, after = own() - cpu, _counts(meter)
        processed = _processed(meter) - processed - 3  # our own looks
    return _less(after, before).total() / IDLE, processed / IDLE, 100 * spent / IDLE


def _waking(meter: Meter, queue: Queue) -> tuple[Counter[str], Counter[str]]:
    """What was asked of the server just after a send, but for the send, and when the message fell due."""
    due = time.time() + AHEAD
    before = _counts(meter)
    queue.send("t", at=datetime.fromtimestamp(due, UTC))
    time.sleep(WINDOW)
    after_send = _less(_counts(meter), before)
    after_send["evalsha"] -= 1
    time.sleep(max(0.0, due - WINDOW / 10 - time.time()))
    after_due = _commands(meter, WINDOW)
    after_due["evalsha"] -= 1  # its ack
    time.sleep(2.0)
    return after_send, after_due


def _commands(meter: Meter, seconds: float) -> Counter[str]:
    before = _counts(meter)
    time.sleep(seconds)
    return _less(_counts(meter), before)


def _less(after: Counter[str], before: Counter[str]) -> Counter[str]:
    after.subtract(before)
    after["info"] -= 1  # the look before
    return after


def _processed(meter: Meter) -> int:
    """What the server has processed, with what scripts call."""
    return int(meter.client.info("stats")["total_commands_processed"])


def _counts(meter: Meter) -> Counter[str]:
    stats: dict[str, Any] = meter.client.info("commandstats")
    found: Counter[str] = Counter()
    for name, numbers in stats.items():
        command = name.removeprefix("cmdstat_").partition("|")[0]
        if command in ASKED:
            found[command] += numbers["calls"]
    return found


@contextmanager
def _crowd(meter: Meter) -> Iterator[None]:
    with ExitStack() as stack:
        processes = []
        for _ in range(PROCESSES):
            command = [sys.executable, "-m", "benchmarks.redis_idle", meter.url]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            processes.append(stack.enter_context(process))
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        time.sleep(SETTLED)
        yield
        for process in processes:
            process.communicate("")  # they end when there is no more to read


async def _work(stack: AsyncExitStack, url: str) -> None:
    """A queue and a worker of its own."""
    queue = AsyncQueue(url)

    @queue.task("t")
    async def handle(order: int = 0, customer: str = "", note: str = "") -> None:
        pass

    await stack.enter_async_context(queue)
    await stack.enter_async_context(Worker(queue))


async def _many(url: str) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(EACH):
            await _work(stack, url)
            await asyncio.sleep(STAGGER / EACH)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_many(sys.argv[1]))

"""Eight worker processes and ten thousand locks, each of which several messages want: who waits, for how long, at what cost.

`python -m benchmarks.locks [redis] [sqlite] [postgres]`. The messages of a lock lie side by side, so that most of them meet
it taken. A lock is free for somebody from when its last holder has come to its end; the wait for a free lock is from then,
or from when the message first asked for it, until its handler begins. Calls are those of all workers to the engine, beyond
those for as many messages that want nothing of each other, for each message that was refused.
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from benchmarks.measure import HEADER, Figure, figure
from benchmarks.places import PLACES
from bide import AsyncQueue, Call, Hook, Queue, Worker, current

RUNS = int(os.environ.get("BIDE_BENCH_RUNS", "3"))
LOCKS = 10_000
EACH = {"redis": 4, "sqlite": 2, "postgres": 2}  # messages that want one lock
WORKERS = 8
HOLD = 0.005  # seconds that a handler takes
TOPIC = "t"


class Stay(NamedTuple):
    """One handler, by the monotonic clock of the machine."""

    id: str
    lock: int
    began: float
    ended: float


class Seen(Hook):
    """What a worker asks of the engine, and when a message was first refused."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.refused: dict[str, float] = {}

    def after(self, call: Call) -> None:
        self.calls[call.verb] += 1
        if call.verb == "enter" and call.error is None:
            now = time.monotonic()
            for entry, entered in zip(call.asked, call.answer, strict=True):
                if entered.token is None:
                    self.refused.setdefault(entry.waiter, now)


class Report(NamedTuple):
    """Of one worker."""

    stays: list[Stay]
    calls: Counter[str]
    refused: dict[str, float]


class Run(NamedTuple):
    seconds: float
    reports: list[Report]

    @property
    def refused(self) -> dict[str, float]:
        """When each message that was ever refused was so first."""
        found: dict[str, float] = {}
        for report in self.reports:
            for id, at in report.refused.items():
                found[id] = min(at, found.get(id, at))
        return found

    @property
    def calls(self) -> int:
        """That messages cost: not those of a worker that looks for work, or for what others have left behind."""
        return sum(
            report.calls[verb] for report in self.reports for verb in ("claim", "enter", "leave", "settle", "reschedule")
        )

    def waits(self) -> Iterator[float]:
        """Seconds that each refused message waited for a lock that was free."""
        refused, of_lock = self.refused, defaultdict[int, list[Stay]](list)
        for report in self.reports:
            for stay in report.stays:
                of_lock[stay.lock].append(stay)
        for stays in of_lock.values():
            stays.sort(key=lambda stay: stay.began)
            for before, stay in pairwise(stays):
                assert stay.began >= before.ended, f"two held {stay.lock} at once"
                if stay.id in refused:
                    yield max(0.0, stay.began - max(before.ended, refused[stay.id]))


def run(engine: str) -> list[Figure]:
    found, rates, spreads, calls, blocked = [], [], [], [], []
    longest: list[float] = []
    for _ in range(RUNS):
        alone = _run(engine, range(LOCKS * EACH[engine]))
        crowd = _run(engine, (lock for lock in range(LOCKS) for _ in range(EACH[engine])))
        waits = sorted(crowd.waits())
        done = [len(report.stays) for report in crowd.reports]
        assert sum(done) == LOCKS * EACH[engine]
        rates.append(sum(done) / crowd.seconds)
        spreads.append(max(done) / min(done))
        blocked.append(100 * len(crowd.refused) / sum(done))
        calls.append((crowd.calls - alone.calls) / len(crowd.refused))
        found.append(1e3 * statistics.median(waits))
        longest.append(waits[-1])
    name = f"{engine}, {LOCKS:,} locks, {WORKERS} workers"
    return [
        figure(f"{name}: messages", "a second", rates),
        figure("    messages that met their lock taken", "percent", blocked),
        figure("    wait for a free lock, median", "ms", found),
        figure("    wait for a free lock, longest", "seconds", longest, "<= 5"),
        figure("    most by one worker / fewest", "", spreads, "<= 2"),
        figure("    calls more for each that was refused", "", calls, "<= 3"),
    ]


def _run(engine: str, locks: Iterable[int]) -> Run:
    with PLACES[engine]() as url, _workers(url) as processes:
        with Queue(url) as queue:
            sent = queue.send_many(TOPIC, [{"lock": lock} for lock in locks])
            begin = time.monotonic()
            for process in processes:
                _tell(process, "begin")
            while (stats := queue.stats(TOPIC)).pending + stats.leased:
                time.sleep(0.1)
            seconds = time.monotonic() - begin
        reports = [_report(process.communicate()[0]) for process in processes]
    assert sum(len(report.stays) for report in reports) == len(sent)
    return Run(seconds, reports)


@contextmanager
def _workers(url: str) -> Iterator[list["subprocess.Popen[str]"]]:
    command = [sys.executable, "-m", "benchmarks.locks", "--work", url]
    made = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(WORKERS)]
    try:
        for process in made:
            assert process.stdout is not None
            process.stdout.readline()
        yield made
    finally:
        for process in made:
            process.kill()


def _tell(process: "subprocess.Popen[str]", word: str) -> None:
    assert process.stdin is not None
    print(word, file=process.stdin, flush=True)


def _report(text: str) -> Report:
    told: dict[str, Any] = json.loads(text)
    return Report([Stay(*each) for each in told["stays"]], Counter(told["calls"]), told["refused"])


async def _work(url: str) -> None:
    seen, stays = Seen(), list[Stay]()
    async with AsyncQueue(url, hooks=[seen]) as queue:

        @queue.task(TOPIC, lock="{lock}")
        async def handle(lock: int) -> None:
            began = time.monotonic()
            await asyncio.sleep(HOLD * random.random() * 2)
            stays.append(Stay(current().id, lock, began, time.monotonic()))

        await queue.stats(TOPIC)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        async with Worker(queue):
            await asyncio.to_thread(sys.stdin.read)
    print(json.dumps({"stays": stays, "calls": seen.calls, "refused": seen.refused}))


def main() -> None:
    print(HEADER)
    for engine in sys.argv[1:] or PLACES:
        for line in run(engine):
            print(line.line(), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        asyncio.run(_work(sys.argv[2]))
    else:
        main()

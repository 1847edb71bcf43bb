"""A hundred thousand messages behind `rate="100/s"`: what workers do that may not go on, and how late other topics are.

`python -m benchmarks.limits [redis] [sqlite] [postgres]`. One of eight workers soon does most of the work, and the others
are idle. What is counted are calls of the engine that reach the server or the file, by a hook in each worker: a call of `wait`
is one on Redis, a BLPOP, and none elsewhere, where a sleeper is told by its file or by the connection that listens. A call is
beside the work if nothing comes of it: it claims nothing that may begin, asks for what is not granted, gives back, waits or
looks. What servers say themselves stands beside it, of all workers: commands of Redis, transactions of PostgreSQL.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg
import redis

from benchmarks.lateness import instants, part
from benchmarks.measure import HEADER, Figure, figure
from benchmarks.places import PLACES
from benchmarks.redis_idle import ASKED
from bide import AsyncQueue, Call, Hook, Outgoing, Queue, Worker, current

RUNS = int(os.environ.get("BIDE_BENCH_RUNS", "3"))
BACKLOG = 100_000
RATE = 100  # a second
WORKERS = 8
SETTLED = 10.0  # seconds, until all have found out that there is a limit
WATCHED = 20.0  # seconds
COUNTED = {"redis": "commands", "postgres": "transactions"}
TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
OTHERS = 1_000  # messages of another topic, so many a second:
PACE = 100


class Seen(Hook):
    """Counts the calls that reach the server or the file: those that bring something, and the others."""

    def __init__(self, *, waits: bool) -> None:
        """`waits`: to wait is a command, too."""
        self._waits = waits
        self.calls: int = 0
        self.vain: int = 0

    def after(self, call: Call) -> None:
        if call.verb == "wait" and not self._waits:
            return
        self.calls += 1
        if call.verb == "spend":  # and the claim before it was for nothing
            self.vain += 0 if any(each.at for each in call.answer) else 2
        elif call.verb == "settle":
            self.vain += all(end.verdict == "release" for end in call.asked)
        else:
            self.vain += call.verb != "claim" or not call.answer.messages


class Report(NamedTuple):
    """Of one worker. Times are seconds, by the monotonic clock of the machine."""

    begun: list[float]  # handlers of the limited topic
    lates: list[float]  # of the other, in ms
    calls: list[tuple[float, int, int]]  # by when so many had been made, and so many for nothing


class Run(NamedTuple):
    calls: float  # a second, of all workers
    vain: float  # of one worker, without the one that calls most
    commands: float  # a second, as a server counts them
    begun: list[float]
    lates: list[float]

    @property
    def rate(self) -> float:
        return len(self.begun) / (self.begun[-1] - self.begun[0]) if self.begun else 0.0

    @property
    def most(self) -> int:
        """Handlers that began in any second."""
        return max(bisect_left(self.begun, at + 1) - i for i, at in enumerate(self.begun)) if self.begun else 0


def run(engine: str) -> list[Figure]:
    found: dict[str, list[Run]] = {"alone": [], "beside it": []}
    for _ in range(RUNS):
        found["alone"].append(_run(engine, 0))
        found["beside it"].append(_run(engine, BACKLOG))
    runs = found["beside it"]
    lines = [
        figure(
            f"{engine}, {BACKLOG:,} behind {RATE}/s: begun",
            "a second",
            [each.rate for each in runs],
        ),
        figure("    most begun in any second", "", [each.most for each in runs]),
        figure("    calls", "a second", [each.calls for each in runs]),
        figure("    calls of an idle worker beside the work", "a second", [each.vain for each in runs], "<= 1"),
    ]
    if engine in COUNTED:
        lines.append(figure(f"    {COUNTED[engine]}, as the server counts them", "a second", [each.commands for each in runs]))
    for share in (0.5, 0.99):
        for kind, each in found.items():
            lates = [part(one.lates, share) for one in each]
            lines.append(figure(f"    lateness of another topic, p{share * 100:g}, {kind}", "ms", lates))
    return lines


def _run(engine: str, backlog: int) -> Run:
    with PLACES[engine]() as url, Queue(url) as queue:
        queue.send_many("limited", [{"n": n} for n in range(backlog)])
        with _workers(url) as processes:
            time.sleep(SETTLED)
            before, commands = time.monotonic(), _commands(url)
            time.sleep(WATCHED)
            after, commands = time.monotonic(), _commands(url) - commands
            dues = [datetime.fromtimestamp(each / 1000, UTC) for each in instants(OTHERS, PACE)]
            queue.send_many("other", [Outgoing(at=each) for each in dues])
            time.sleep(OTHERS / PACE + 3)
            reports = [_report(process.communicate()[0]) for process in processes]
    calls, vain = ([_until(report, after, n) - _until(report, before, n) for report in reports] for n in (1, 2))
    idle = [count for _, count in sorted(zip(calls, vain, strict=True))[:-1]]
    begun = sorted(at for report in reports for at in report.begun)
    lates = sorted(late for report in reports for late in report.lates)
    assert len(lates) == OTHERS
    return Run(sum(calls) / WATCHED, sum(idle) / len(idle) / WATCHED, commands / WATCHED, begun, lates)


def _until(report: Report, at: float, count: int) -> float:
    return max((each[count] for each in report.calls if each[0] <= at), default=0)


def _commands(url: str) -> int:
    if url.startswith("postgres"):
        with psycopg.connect(url) as connection:
            [count] = connection.execute(TRANSACTIONS).fetchone() or (0,)
        return int(count)
    if not url.startswith("redis"):
        return 0
    with redis.Redis.from_url(url) as client:
        stats: dict[str, Any] = client.info("commandstats")
    told = ((name.removeprefix("cmdstat_").partition("|")[0], numbers["calls"]) for name, numbers in stats.items())
    return sum(calls for name, calls in told if name in ASKED)


@contextmanager
def _workers(url: str) -> Iterator[list["subprocess.Popen[str]"]]:
    command = [sys.executable, "-m", "benchmarks.limits", "--work", url]
    made = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(WORKERS)]
    try:
        for process in made:
            assert process.stdout is not None
            process.stdout.readline()
        yield made
    finally:
        for process in made:
            process.kill()


def _report(text: str) -> Report:
    told: dict[str, Any] = json.loads(text)
    return Report(told["begun"], told["lates"], [tuple(each) for each in told["calls"]])


async def _work(url: str) -> None:
    waits = url.startswith("redis")
    seen, begun, lates, calls = Seen(waits=waits), list[float](), list[float](), list[tuple[float, int, int]]()
    async with AsyncQueue(url, hooks=[seen]) as queue:

        @queue.task("limited", rate=f"{RATE}/s")
        async def limited(n: int) -> None:
            begun.append(time.monotonic())

        @queue.task("other")
        async def other() -> None:
            lates.append(time.time() * 1000 - current().due)

        async def count() -> None:
            while True:
                calls.append((time.monotonic(), seen.calls, seen.vain))
                await asyncio.sleep(0.1)

        counting = asyncio.create_task(count())
        async with Worker(queue):
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.read)
        counting.cancel()
    print(json.dumps({"begun": begun, "lates": lates, "calls": calls}))


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

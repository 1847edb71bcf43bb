"""What a million pending messages cost the memory of a worker: it should be nothing, since they are on the disk."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import RUNS, Figure, figure
from bide import AsyncQueue, Outgoing, Queue
from bide.queue.aio.receive import SWEEP
from bide.worker import Worker

PENDING = 1_000_000
SWEEPS = 3
TRICKLE = 0.05  # seconds from one message that is due to the next


def run() -> list[Figure]:
    """The four kinds side by side, so that what the machine does to one it does to all."""
    used: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bide-bench-") as folder:
        urls = {"none": f"sqlite:///{folder}/none.db", "many": f"sqlite:///{folder}/many.db"}
        with Queue(urls["none"]) as queue:
            queue.stats()
        with Queue(urls["many"]) as queue:
            for first in range(0, PENDING, 100_000):
                queue.send_many("t", [Outgoing({"n": n}, delay=3_600 + n % 86_400) for n in range(first, first + 100_000)])
        kinds = [(pending, load) for pending in urls for load in ("idle", "trickle")]
        for _ in range(RUNS):
            processes = {(pending, load): _start(urls[pending], load) for pending, load in kinds}
            for kind, process in processes.items():
                said, _ = process.communicate()
                used.setdefault(kind, []).append(float(said))
    figures = []
    for load, what in (("idle", "that sleeps"), ("trickle", f"that gets {1 / TRICKLE:.0f} messages a second")):
        none, many = used["none", load], used["many", load]
        more = [high - low for low, high in zip(none, many, strict=True)]
        figures += [
            figure(f"memory of a worker {what}", "MB", none),
            figure(f"… more with {PENDING:,} pending", "MB", more, "-5 to 5"),
        ]
    return figures


def _start(url: str, load: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "benchmarks.worker_memory", url, load]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)


async def _work(url: str, load: str) -> None:
    queue = AsyncQueue(url)

    @queue.task("t")
    async def handle(n: int) -> None:
        pass

    async with queue, Worker(queue):
        loop = asyncio.get_running_loop()
        until = loop.time() + SWEEPS * SWEEP + 1
        while loop.time() < until:
            if load == "trickle":
                await queue.send("t", {"n": 1}, delay=2 * TRICKLE)
            await asyncio.sleep(TRICKLE)
        print(_megabytes(), flush=True)


def _megabytes() -> float:
    """What of this process is in the machine's memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], sys.argv[2]))

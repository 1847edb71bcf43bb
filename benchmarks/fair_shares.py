"""How two idle worker processes with default settings share a burst, of messages that are all due at one instant.

Their handlers compute, so a share that is too large takes time: all must be done in hardly more than half of what one process
would need.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.costs import load
from benchmarks.measure import Figure, figure
from benchmarks.places import PLACES
from bide import Outgoing, Queue

RUNS = 5
MANY = 30  # messages
WORK = 0.1  # seconds that a handler computes
AHEAD = 1.0  # seconds from a send until the messages are due: their workers are idle
LOOK = 0.01  # seconds between two looks whether all have ended
ENGINES = os.environ.get("BIDE_BENCH_ENGINES", "redis,postgres,sqlite").split(",")
PROCESSES = 2


def run() -> list[Figure]:
    lines: list[Figure] = []
    for engine in ENGINES:
        place = PLACES[engine]
        with place() as url, tempfile.TemporaryDirectory(prefix="bide-bench-") as folder:
            notes = Path(folder, "notes")
            with _workers(url, notes):
                times = [_burst(url, notes) / (MANY * WORK / PROCESSES) for _ in range(RUNS)]
            lines.append(figure(f"time to the half, {engine}", "x", times, "<= 1.3"))
    return [*lines, load()]


def _burst(url: str, notes: Path) -> float:
    """Seconds from the instant until the last handler has ended."""
    notes.write_bytes(b"")
    due = time.time() + AHEAD
    with Queue(url) as queue:
        queue.send_many("computes", [Outgoing({"work": WORK}, at=datetime.fromtimestamp(due, UTC))] * MANY)
        while len(lines := notes.read_text().splitlines()) < MANY:
            time.sleep(LOOK)
    return max(float(line.split()[1]) for line in lines) - due


@contextmanager
def _workers(url: str, notes: Path) -> Iterator[None]:
    """Processes, all of which have had a message."""
    notes.write_bytes(b"")
    told = {"BIDE_BENCH_URL": url, "BIDE_BENCH_NOTES": str(notes)}
    command = [sys.executable, "-m", "bide", "worker", "benchmarks.shared:queue", "--grace", "0"]
    silent = subprocess.DEVNULL
    workers = [subprocess.Popen(command, env=os.environ | told, stdout=silent, stderr=silent) for _ in range(PROCESSES)]
    try:
        with Queue(url) as queue:
            while len({line.split()[0] for line in notes.read_text().splitlines()}) < PROCESSES:
                queue.send("hello", {})
                time.sleep(LOOK)
        time.sleep(AHEAD)
        yield
    finally:
        for each in workers:
            each.terminate()
        for each in workers:
            each.wait()

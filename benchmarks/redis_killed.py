"""What a worker repeats after `kill -9`: messages whose handlers had ended, and whose ends the server had not been told yet.

The handlers work for a millisecond and wait for nothing. They run in one `bide worker` process with default settings.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.costs import load
from benchmarks.measure import Figure, figure
from benchmarks.redis_meter import Meter
from bide import Queue
from tests.servers.redis import RedisServer

KILLS = 15
MANY = 3_000
LOOK = 0.005  # seconds between two looks whether the worker has begun
LATEST = 0.6  # seconds after it has begun that it is killed


def run() -> list[Figure]:
    chance = random.Random(1)
    with RedisServer() as server, tempfile.TemporaryDirectory(prefix="bide-bench-") as folder:
        meter, notes = Meter(server), Path(folder, "notes")
        repeated = [_kill(meter, notes, chance.random() * LATEST) for _ in range(KILLS)]
        return [figure("handlers of 1 ms: repeated after a kill", "messages", repeated), load()]


def _kill(meter: Meter, notes: Path, after: float) -> float:
    notes.write_bytes(b"")
    with Queue(meter.fresh()) as queue:
        queue.send_many("t", [{"number": number} for number in range(MANY)])
        told = {"BIDE_BENCH_URL": meter.url, "BIDE_BENCH_NOTES": str(notes)}
        command = [sys.executable, "-m", "bide", "worker", "benchmarks.noted:queue"]
        silent = subprocess.DEVNULL
        with subprocess.Popen(command, env=os.environ | told, stdout=silent, stderr=silent) as worker:
            while not notes.stat().st_size:
                time.sleep(LOOK)
            time.sleep(after)
            worker.kill()
        left = queue.stats("t")
        return len(set(notes.read_text().split())) - (MANY - left.pending - left.leased)

"""A receiver that sleeps on a file: how soon another process's message wakes it, and what its sleep costs."""

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO

from benchmarks.measure import Figure, figure
from bide import Queue

WAKES = 40
ASLEEP = 15.0  # seconds
SENDER = """
import sys, time
from bide import Queue

with Queue(sys.argv[1]) as queue:
    queue.stats()
    print("ready", flush=True)
    for line in sys.stdin:
        queue.send("t", 1)
        print(time.time(), flush=True)
"""


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bide-bench-") as folder:
        url = f"sqlite:///{folder}/idle.db"
        with Queue(url) as queue:
            queue.send_many("other", range(10_000))
            return [figure("another process's message wakes within", "ms", _wakes(queue, url), "<= 50"), *_sleep(queue)]


def _wakes(queue: Queue, url: str) -> list[float]:
    command = [sys.executable, "-c", SENDER, url]
    waits = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ) as sender:
        assert sender.stdin is not None
        assert sender.stdout is not None
        sender.stdout.readline()
        for number in range(WAKES):
            threading.Timer(0.15 + 0.013 * (number % 5), _tell, [sender.stdin]).start()
            [delivery] = queue.receive("t", wait="20s")
            waits.append((time.time() - float(sender.stdout.readline())) * 1000)
            delivery.ack()
    return waits


def _tell(pipe: IO[str]) -> None:
    pipe.write("send\n")
    pipe.flush()


def _sleep(queue: Queue) -> list[Figure]:
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    queue.receive("t", wait=ASLEEP)
    after, seconds = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - begin
    wakes = (after.ru_nvcsw - before.ru_nvcsw) / seconds
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [
        figure("CPU of a process that sleeps", "percent", [100 * cpu / seconds], "<= 0.5"),
        figure(
            "times that it wakes, its receivers' sweeps included",
            "a second",
            [wakes],
            "<= 25",
        ),
    ]

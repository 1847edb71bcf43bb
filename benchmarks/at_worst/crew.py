"""Two worker processes under a supervisor, of which one is killed with a message in its hands."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO

COMMAND = [sys.executable, "-m", "bide", "worker", "benchmarks.at_worst.app:queue", "--processes", "2", "--log-level", "error"]
PAUSE = 0.2  # seconds between two messages that ask who is there


def killed(url: str, topic: str, send: Callable[[int], object], count: int) -> list[float]:
    """Seconds from the death of a process until another one had its message; so many times."""
    env = {**os.environ, "AT_WORST_URL": url, "AT_WORST_TOPIC": topic}
    with subprocess.Popen(COMMAND, env=env, stdout=subprocess.PIPE, text=True) as crew:
        try:
            told = _told(crew.stdout or sys.stdin)
            return [_killed(told, send, number) for number in range(count)]
        finally:
            crew.terminate()


def _killed(told: Iterator[tuple[float, int, int]], send: Callable[[int], object], number: int) -> float:
    there: set[int] = set()
    while len(there) < 2:  # both are at work
        send(-1)
        there.add(next(told)[1])
        time.sleep(PAUSE)
    send(number)
    holder = next(pid for _, pid, of in told if of == number)
    os.kill(holder, signal.SIGKILL)
    death = time.time()
    return next(at for at, pid, of in told if of == number and pid != holder) - death


def _told(lines: IO[str]) -> Iterator[tuple[float, int, int]]:
    for line in lines:
        if line.startswith("["):  # the rest is said by the worker
            at, pid, number = json.loads(line)
            yield at, pid, number

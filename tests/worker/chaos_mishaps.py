"""What befalls a worker process from its machine and its application: no threads to be had, logs that fail, a full executor."""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from bide.testing.history import History
from tests.worker.faults import deaf, no_threads

APART = (0.3, 1.5)  # seconds between two
LASTS = (0.2, 1.0)  # seconds
JOBS = 12  # more than a small machine's executor has threads


class Mishaps(threading.Thread):
    """One after the other, at random, for as long as the process lives."""

    def __init__(self, history: History, seed: str) -> None:
        super().__init__(name="chaos-mishaps", daemon=True)
        self._history = history
        self._chance = random.Random(seed)

    def run(self) -> None:
        logging.raiseExceptions = False  # what fails on purpose needs no traceback on standard error
        kinds: dict[str, Callable[[], AbstractContextManager[object]]] = {
            "start no threads": lambda: no_threads("bide-handler", "bide-heartbeat", "bide-apart"),
            "fail in logs": lambda: deaf("bide"),
        }
        kind = "start no threads"  # first, since later the threads of handlers are there
        while True:
            begin, seconds = kinds[kind], self._chance.uniform(*LASTS)
            with begin():
                time.sleep(seconds)
            with self._history.fault(kind) as fault:
                fault.landed(f"{seconds:.2f} s")
            time.sleep(self._chance.uniform(*APART))
            kind = self._chance.choice(list(kinds))


def fill_the_executor(history: History) -> None:
    """As a handler that leaves work behind does."""
    loop = asyncio.get_running_loop()
    for _ in range(JOBS):
        loop.run_in_executor(None, time.sleep, 0.4)
    with history.fault("fill the loop's executor") as fault:
        fault.landed(f"{JOBS} jobs")

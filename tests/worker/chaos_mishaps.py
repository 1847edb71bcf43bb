"""What befalls a worker process from outside its code: no threads, logs that fail, a wrong time, a full executor."""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from bide.prove import History
from tests.sqlite.chaos_clock import own_time
from tests.worker.faults import deaf, no_threads

APART = (0.3, 1.5)  # seconds between two
LASTS = (0.2, 1.0)  # seconds
JOBS = 12  # more than a small machine's executor has threads


class Mishaps(threading.Thread):
    """One after the other, at random, for as long as the process lives."""

    def __init__(self, history: History, seed: str, *, clock: bool) -> None:
        super().__init__(name="chaos-mishaps", daemon=True)
        self._history = history
        self._chance = random.Random(seed)
        self._clock = clock

    def run(self) -> None:
        logging.raiseExceptions = False  # what fails on purpose needs no traceback on standard error
        kinds: dict[str, Callable[[], AbstractContextManager[object]]] = {
            "start no threads": lambda: no_threads("bide-handler", "bide-heartbeat", "bide-apart"),
            "fail in logs": lambda: deaf("bide"),
        }
        if self._clock:
            kinds["set a process's own clock"] = self._own_time
        kind = "start no threads"  # first, since later the threads of handlers are there
        while True:
            begin, seconds = kinds[kind], self._chance.uniform(*LASTS)
            with begin():
                time.sleep(seconds)
            with self._history.fault(kind) as fault:
                fault.landed(f"{seconds:.2f} s")
            time.sleep(self._chance.uniform(*APART))
            kind = self._chance.choice(list(kinds))

    def _own_time(self) -> AbstractContextManager[None]:
        """Minutes from the machine's, as under a library that moves the time: no engine may go by it."""
        ahead = self._chance.choice((-1, 1)) * self._chance.randrange(20, 300) * 10**9
        return own_time(lambda: ahead)


def fill_the_executor(history: History) -> None:
    """As a handler that leaves work behind does."""
    loop = asyncio.get_running_loop()
    for _ in range(JOBS):
        loop.run_in_executor(None, time.sleep, 0.4)
    with history.fault("fill the loop's executor") as fault:
        fault.landed(f"{JOBS} jobs")

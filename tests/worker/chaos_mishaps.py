"""What befalls a worker process from outside its code: no threads, logs that fail or hang, a wrong time, a full executor."""

import asyncio
import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from bide import Unavailable
from bide.prove import History
from tests.sqlite.chaos_clock import own_time
from tests.worker.faults import Faults, deaf, no_threads

NO_THREADS = "start no threads"
DEAF = "fail in logs"
CUT_OFF = "cut the heartbeat off"
NO_CONNECTION = "the heartbeat gets no connection"  # in the log lines that this leads to
APART = (0.3, 1.5)  # seconds between two
LASTS = (0.2, 1.0)  # seconds
LONG = (2.0, 9.0)  # seconds: for longer than a lease, most often
BEGINS = 30.0  # seconds that a worker on a busy machine may take until it asks for its first thread
JOBS = 12  # more than a small machine's executor has threads


class Mishaps(threading.Thread):
    """One after the other, for as long as the process lives: first each kind in turn, then at random.

    So each kind befalls somebody, however short the run and whatever the chance.
    """

    def __init__(self, history: History, seed: str, faults: Faults, *, clock: bool, only: Collection[str] | None) -> None:
        """`only` these, unless it is None."""
        super().__init__(name="chaos-mishaps", daemon=True)
        self._history = history
        self._chance = random.Random(seed)
        self._asked = threading.Event()
        self._kinds: dict[str, Callable[[], AbstractContextManager[object]]] = {
            NO_THREADS: lambda: no_threads("bide-handler", "bide-heartbeat", "bide-apart", asked=self._asked),
            DEAF: lambda: deaf("bide"),
            "hang in logs": hanging,
            **({"set a process's own clock": self._own_time} if clock else {}),
            CUT_OFF: lambda: cut_off(faults),
        }
        if only is not None:
            self._kinds = {kind: begin for kind, begin in self._kinds.items() if kind in only}

    def run(self) -> None:
        logging.raiseExceptions = False  # what fails on purpose needs no traceback on standard error
        if not self._kinds:
            return
        kinds = list(self._kinds)  # without threads first, since later the threads of handlers are there
        for number in itertools.count():
            kind = kinds[number] if number < len(kinds) else self._chance.choice(kinds)
            begin, seconds = self._kinds[kind], self._chance.uniform(*(LONG if kind == CUT_OFF else LASTS))
            with begin():
                if kind == NO_THREADS:
                    self._asked.wait(BEGINS)  # the first time: from then on it is set
                time.sleep(seconds)
            with self._history.fault(kind) as fault:
                fault.landed(f"{seconds:.2f} s")
            time.sleep(self._chance.uniform(*APART))

    def _own_time(self) -> AbstractContextManager[None]:
        """Minutes from the machine's, as under a library that moves the time: no engine may go by it."""
        ahead = self._chance.choice((-1, 1)) * self._chance.randrange(20, 300) * 10**9
        return own_time(lambda: ahead)


@contextmanager
def cut_off(faults: Faults) -> Iterator[None]:
    """While this lasts the heartbeat gets no connection, as when a server has given out all that it may."""

    def refuse(call: Callable[[], Any]) -> NoReturn:
        raise Unavailable(NO_CONNECTION)

    faults.beat.update(dict.fromkeys(("open", "extend", "claim"), refuse))
    try:
        yield
    finally:
        faults.beat.clear()


class Hanging(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.over = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.over.wait()


@contextmanager
def hanging() -> Iterator[None]:
    """While this lasts, whoever logs waits for its end."""
    handler, log = Hanging(), logging.getLogger("bide")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.over.set()


class LastLogs(logging.Handler):
    """Logs that hang, or whose flush fails, from the moment that a file says so: for the end of a process."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        if self._says("hang"):
            time.sleep(1_000)

    def flush(self) -> None:
        if self._says("hang"):
            time.sleep(1_000)
        if self._says("fail to flush"):
            raise RuntimeError("the service for logs is down")

    def _says(self, what: str) -> bool:
        try:
            return self._file.read_text(encoding="utf-8") == what
        except OSError:
            return False


def fill_the_executor(history: History) -> None:
    """As a handler that leaves work behind does."""
    loop = asyncio.get_running_loop()
    for _ in range(JOBS):
        loop.run_in_executor(None, time.sleep, 0.4)
    with history.fault("fill the loop's executor") as fault:
        fault.landed(f"{JOBS} jobs")

"""`bide worker --metrics`: what all processes of the worker have counted, and its health, at one port.

It is loaded only where it is asked for: its package is an extra.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import NamedTuple

from bide.cli.http import Answers, HttpAnswer, HttpRequest, Port, port, served, text
from bide.cli.metrics import told_page
from bide.cli.worker.health import Look, health_answer
from bide.engines.registry import scheme_of
from bide.ids import exact_version
from bide.logs import Log
from bide.metrics.app import Pages, registry
from bide.metrics.counts import Counting, SharedCounts
from bide.metrics.process import CountsCollector, WorkerInfoMetric
from bide.worker import Worker
from bide.worker.claim_log import nameless_file

_log = Log("bide.worker")


class CountsFile(NamedTuple):
    """Where a worker process counts: a file that it inherits, and which part of it is its own."""

    file: int
    process: int
    processes: int

    def __str__(self) -> str:
        return ":".join(map(str, self))

    @classmethod
    def parse(cls, given: str) -> "CountsFile":
        return cls(*map(int, given.split(":")))

    def counts(self) -> SharedCounts:
        return SharedCounts(self.file, processes=self.processes)


def count(found: Worker, counts: SharedCounts, process: int, *, serves: bool = True) -> None:
    """Count what this process does from now on."""
    counting = Counting(counts, process)
    if serves:
        counting.serves(found.plan.concurrency)
    found.queue.events.subscribe(counting)


class Exporter:
    """Of one worker, in the process that answers for all of its processes."""

    def __init__(self, where: str, found: Worker, processes: int | None) -> None:
        """`processes`: those of a supervisor, which counts in the last place what it ends in place of a process that died."""
        self.where: Port = port(where, "--metrics")
        self.file: int | None = None if processes is None else nameless_file()
        own = processes or 0
        self._counts = SharedCounts(self.file, processes=own + 1)
        info = WorkerInfoMetric(exact_version(), scheme_of(found.queue.session.setup.settings.url))
        self._pages = Pages(registry(CountsCollector(self._counts, workers=processes or 1), info))
        count(found, self._counts, own, serves=processes is None)

    def of(self, process: int) -> str | None:
        """What a worker process is told that is about to begin."""
        if self.file is None:
            return None
        self._counts.clear(process)
        return str(CountsFile(self.file, process, self._counts.processes))

    @contextlib.asynccontextmanager
    async def told(self, look: Look, expected: int) -> AsyncIterator[None]:
        async with served(self.where, "--metrics", self._answers(look, expected)) as number:
            _log.info("Metrics are told at port %d: GET /metrics, /live and /ready.", number)
            yield

    def _answers(self, look: Look, expected: int) -> Answers:
        def answer(asked: HttpRequest) -> HttpAnswer | Awaitable[HttpAnswer] | None:
            path = asked.path.rstrip("/")
            if asked.method not in ("GET", "HEAD"):
                return text("405 Method Not Allowed", "Ask with GET.")
            if path == "/metrics":
                return told_page(self._pages, asked)
            if path in ("/live", "/ready"):
                return health_answer(look, expected, live=path == "/live")
            return None

        return answer

"""Records what a queue's engines hand out, and the ends of it. For workers: there, no user code claims and settles.

queue = AsyncQueue("sqlite:///shop.db")
record_engine(queue, History("worker-1.jsonl", "worker-1"))
"""

from bide.engines.registry import Guarded, Source
from bide.prove.aio import AsyncRecordedEngine
from bide.prove.history import History
from bide.prove.sync import RecordedEngine
from bide.queue import AsyncQueue, Queue


class RecordedSource(Guarded):
    """Its engines record claims, ends and renewals: of a worker, its handlers, its heartbeat and its supervisor."""

    def __init__(self, plain: Source, history: History) -> None:
        super().__init__(plain)
        self._history = history

    def aio(self) -> AsyncRecordedEngine:
        return AsyncRecordedEngine(self.plain.aio(), self._history)

    def sync(self) -> RecordedEngine:
        return RecordedEngine(self.plain.sync(), self._history)


def record_engine(queue: AsyncQueue | Queue, history: History) -> None:
    """Record what a queue, its `.sync` or `.aio` and its workers claim, end and extend. Call it before the first use."""
    queue.session.setup.source = RecordedSource(queue.session.setup.source, history)

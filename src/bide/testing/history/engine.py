"""A place whose engines write down what they are asked: for workers, whose claims and ends no user's code makes.

queue = AsyncQueue("sqlite:///shop.db")
record_engine(queue, History("worker-1.jsonl", "worker-1"))
"""

from collections.abc import Sequence

from bide.engines.base import Capabilities, Finding
from bide.engines.registry import Source
from bide.queue import AsyncQueue, Queue
from bide.testing.history.aio.engine import AsyncRecordedEngine
from bide.testing.history.sync.engine import RecordedEngine
from bide.testing.history.writing import History


class RecordedSource:
    """It writes down what is handed out, ended and extended: by a worker, its handlers, its heartbeat, its supervisor."""

    def __init__(self, plain: Source, history: History) -> None:
        self.capabilities: Capabilities = plain.capabilities
        self.shown: str = plain.shown
        self.namespace: str = plain.namespace
        self._plain = plain
        self._history = history

    def aio(self) -> AsyncRecordedEngine:
        return AsyncRecordedEngine(self._plain.aio(), self._history)

    def sync(self) -> RecordedEngine:
        return RecordedEngine(self._plain.sync(), self._history)

    def examine(self) -> Sequence[Finding]:
        return self._plain.examine()

    def mend(self) -> Sequence[Finding] | None:
        return self._plain.mend()


def record_engine(queue: AsyncQueue | Queue, history: History) -> None:
    """Have all that a queue, its twins and its workers take, end and extend written down. For a queue that is not open yet."""
    queue._setup.source = RecordedSource(queue._setup.source, history)

"""Histories: processes record what they do to a queue, and `check` judges the records by what bide promises.

    with History("producer-1.jsonl", "producer-1") as history:
        with history.sending("order.cancel", {"order": 42}, delay="15m") as op:
            op.ok(queue.send("order.cancel", op.body, delay="15m"))

    print(check(Path(".").glob("*.jsonl")))

`Recorded` is a Queue that records its calls, and `AsyncRecorded` an AsyncQueue. `record_engine` records what workers do.
"""

from bide.engines.registry import Guarded, Source
from bide.prove.aio import AsyncRecorded, AsyncRecordedDelivery, AsyncRecordedEngine
from bide.prove.check import check
from bide.prove.history import History
from bide.prove.record import Record, read
from bide.prove.report import INVARIANTS, Report, Violation
from bide.prove.sync import Recorded, RecordedDelivery, RecordedEngine
from bide.queue import AsyncQueue, Queue

__all__ = [
    "INVARIANTS",
    "AsyncRecorded",
    "AsyncRecordedDelivery",
    "History",
    "Record",
    "Recorded",
    "RecordedDelivery",
    "RecordedSource",
    "Report",
    "Violation",
    "check",
    "read",
    "record_engine",
]


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
    """Record what a queue, its `.sync` or `.aio` and its workers claim, end and extend. Call it before the first use.

    For workers: there, no user code claims and settles.
    """
    queue.session.setup.source = RecordedSource(queue.session.setup.source, history)

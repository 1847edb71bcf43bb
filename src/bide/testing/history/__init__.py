"""Histories: what processes did to a queue, written down as they did it, and judged against what bide promises.

    with History("producer-1.jsonl", "producer-1") as history:
        with history.sending("order.cancel", {"order": 42}, delay="15m") as op:
            op.ok(queue.send("order.cancel", op.body, delay="15m"))

    print(check(Path(".").glob("*.jsonl")))

`Recorded` is a Queue that writes down all its calls, and `AsyncRecorded` an AsyncQueue. `record_engine` has what a
worker does written down.
"""

from bide.testing.history.aio.recorded import AsyncRecorded, AsyncRecordedDelivery
from bide.testing.history.check import check
from bide.testing.history.engine import record_engine
from bide.testing.history.record import Record, read
from bide.testing.history.report import INVARIANTS, Report, Violation
from bide.testing.history.sync.recorded import Recorded, RecordedDelivery
from bide.testing.history.writing import History

__all__ = [
    "INVARIANTS",
    "AsyncRecorded",
    "AsyncRecordedDelivery",
    "History",
    "Record",
    "Recorded",
    "RecordedDelivery",
    "Report",
    "Violation",
    "check",
    "read",
    "record_engine",
]

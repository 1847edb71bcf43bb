"""Histories: processes record what they do to a queue, and `check` judges the records by what bide promises.

    with History("producer-1.jsonl", "producer-1") as history:
        with history.sending("order.cancel", {"order": 42}, delay="15m") as op:
            op.ok(queue.send("order.cancel", op.body, delay="15m"))

    print(check(Path(".").glob("*.jsonl")))

`Recorded` is a Queue that records its calls, and `AsyncRecorded` an AsyncQueue. `record_engine` records what workers do.
"""

from bide.prove.aio import AsyncRecorded, AsyncRecordedDelivery
from bide.prove.check import check
from bide.prove.history import History
from bide.prove.record import Record, read
from bide.prove.report import INVARIANTS, Report, Violation
from bide.prove.source import record_engine
from bide.prove.sync import Recorded, RecordedDelivery

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

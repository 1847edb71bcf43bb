"""Judges the histories of a run, whichever release wrote them."""

import contextlib
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from bide import LeaseLost, Queue
from bide.prove import History, Recorded, Report, check, read
from bide.prove.workload import TOPICS

PATIENCE = 60.0  # seconds until all is received


def drained(url: str, folder: Path) -> Report:
    """Receive all that is left, and give what the histories say."""
    with Queue(url) as plain, History(folder / "drain.jsonl", "drain") as history:
        queue, until = Recorded(plain, history), time.monotonic() + PATIENCE
        for topic in TOPICS:
            queue.resume(topic)
        while any(each.pending or each.leased for each in map(plain.stats, TOPICS)) and time.monotonic() < until:
            for each in queue.receive(*TOPICS, limit=100, wait=0.1, lease="10s"):
                with contextlib.suppress(LeaseLost):
                    each.ack()
        queue.look()
    return check(folder.glob("*.jsonl"), steady=True, spread=True)


def crossings(folder: Path) -> Mapping[tuple[str, str], int]:
    """How often a message that one release has sent was received by the other: (sender, receiver), by the names' beginnings."""
    senders: dict[str, str] = {}
    received: list[tuple[str, str]] = []
    for path in folder.glob("*.jsonl"):
        who = path.name.partition("-")[0]
        for record in read(path):
            if record.op == "send" and record.result == "ok" and record.outcome == "created" and record.id:
                senders[record.id] = who
            elif record.op == "deliver" and record.id:
                received.append((record.id, who))
    return Counter((senders[id], who) for id, who in received if id in senders)

"""How a message becomes a dead letter, and the records of attempts that it keeps."""

from bide.engines.base import NewMessage, Past
from bide.engines.sqlite.transaction import Namespace, Transaction
from bide.engines.traces import with_record


def keep_trace(tx: Transaction, number: int, record: bytes) -> None:
    row = tx.sql.one("traces", (number,))
    tx.sql.run("keep_traces", (number, with_record(b"" if row is None else row[0], record)))
    tx.sql.run("note_traces", (number,))


def bury(tx: Transaction, namespace: Namespace, topic: int, number: int, reason: str | None, now: int) -> None:
    """Make a message a dead letter, and drop the oldest ones if there are too many."""
    tx.sql.run("bury", {"id": number, "error": reason, "now": now})
    known = tx.dead.get(topic)
    tx.dead[topic] = tx.sql.one("count_dead", {"topic": topic})[0] if known is None else known + 1
    extra = tx.dead[topic] - namespace.dead_max
    if extra > 0:
        drop_dead(tx, topic, [row[0] for row in tx.sql.all("oldest_dead", {"topic": topic, "limit": extra})])


def drop_dead(tx: Transaction, topic: int, numbers: list[int]) -> None:
    """Drop dead letters, and count them."""
    tx.messages.end(numbers)
    if topic in tx.dead:
        tx.dead[topic] -= len(numbers)
    tx.sql.run("count_dropped", {"topic": topic, "count": len(numbers)})


def live_through(tx: Transaction, namespace: Namespace, topic: int, number: int, new: NewMessage, now: int) -> None:
    """What a message that was just put has lived through elsewhere. A dead letter gets its key when it is dead."""
    past = new.past or Past()
    for record in past.traces:
        keep_trace(tx, number, record)
    if past.dead:
        bury(tx, namespace, topic, number, past.error, now)
    tx.sql.run("had_attempts", {"id": number, "attempt": past.attempt, "error": past.error, "key": new.key})

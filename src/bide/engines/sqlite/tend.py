"""Upkeep, a bounded piece at a time: leases that have ended, messages that have expired, dead letters past keeping."""

from typing import Any

from bide.engines.base import Tended
from bide.engines.sqlite.deliver import bury, come_back, drop_dead
from bide.engines.sqlite.put import forget_operations
from bide.engines.sqlite.rows import Delivered
from bide.engines.sqlite.transaction import Namespace, Transaction

GIVE_BACK = 1_000  # pages that are free go back to the filesystem, so many at a time, once they are more than this and
# more than those in use: until then they are for what comes next


def tend(tx: Transaction, namespace: Namespace, budget: int, now: int | None, ended_by: int | None = None) -> Tended:
    at = tx.times.now(namespace, now)
    until = at if ended_by is None else min(at, ended_by)
    leases = _page(tx, "ended_leases", {"space": namespace.name, "until": until}, budget)
    buried = sum(_take_back(tx, namespace, Delivered(*row), at) for row in leases[:budget])
    returned = min(len(leases), budget)
    expired = _page(tx, "expired", {"space": namespace.name, "now": at}, budget - returned)
    gone = [row[0] for row in expired[: budget - returned]]
    tx.messages.end(gone)
    old = _page(tx, "old_dead", {"space": namespace.name, "before": at - namespace.dead_for}, budget - returned - len(gone))
    dropped = old[: budget - returned - len(gone)]
    for number, topic in dropped:
        drop_dead(tx, topic, [number])
    more = len(leases) + len(expired) + len(old) > budget
    if not more:
        _tidy(tx, at)
    return Tended(returned, buried, len(gone), len(dropped), more)


def _page(tx: Transaction, name: str, values: dict[str, object], room: int) -> list[Any]:
    """As much as there is room for, and one more to tell whether that is all."""
    return tx.sql.all(name, {**values, "limit": room + 1})


def _take_back(tx: Transaction, namespace: Namespace, held: Delivered, now: int) -> bool:
    """True when that was the last attempt."""
    if held.attempt < held.most:
        come_back(tx, namespace, held, held.due, now, tx.topics.name(held.topic))
        return False
    reason = f"The lease of attempt {held.attempt}, the last, ended: its worker died, froze or took too long."
    bury(tx, namespace, held.topic, held.id, reason, now)
    return True


def _tidy(tx: Transaction, now: int) -> None:
    """What nobody waits for: old operations, topics that hold nothing, pages that are free."""
    forget_operations(tx, now)
    for (topic,) in tx.sql.all("idle_topics", {"limit": 100}):
        tx.topics.drop(topic)
    free, pages = tx.sql.one("free_pages", ())[0], tx.sql.one("pages", ())[0]
    if free > max(GIVE_BACK, pages - free):
        for _ in range(GIVE_BACK):
            tx.sql.all("give_back", ())

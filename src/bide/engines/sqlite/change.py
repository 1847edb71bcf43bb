"""Changing what is stored, from outside a delivery."""

from collections.abc import Sequence

from bide.clock import MS
from bide.core.when import check_delay, due_time
from bide.engines.base import Move, Ref, Swept
from bide.engines.sqlite.rows import DEAD, LEVELS, PENDING, Known, private_id
from bide.engines.sqlite.transaction import Namespace, Transaction
from bide.types import CancelResult, RescheduleResult, State


def cancel(tx: Transaction, namespace: Namespace, refs: Sequence[Ref], now: int | None) -> list[CancelResult]:
    at = tx.times.now(namespace, now)
    return [_cancel(tx, tx.messages.find(namespace, ref, at)) for ref in refs]


def _cancel(tx: Transaction, known: Known | None) -> CancelResult:
    if known is None:
        return CancelResult.GONE
    if known.stage != PENDING:
        return CancelResult.DEAD if known.stage == DEAD else CancelResult.RUNNING
    tx.messages.end([known.id])
    return CancelResult.CANCELLED


def reschedule(tx: Transaction, namespace: Namespace, moves: Sequence[Move], now: int | None) -> list[RescheduleResult]:
    at_ns = tx.times.now_ns(namespace, now)
    floor, ceiling = at_ns // MS, -(-at_ns // MS)
    for move in moves:
        check_delay(move.delay, move.at, floor)
    return [_reschedule(tx, namespace, move.ref, due_time(move.delay, move.at, floor, ceiling), floor) for move in moves]


def _reschedule(tx: Transaction, namespace: Namespace, ref: Ref, due: int, now: int) -> RescheduleResult:
    known = tx.messages.find(namespace, ref, now)
    if known is None:
        return RescheduleResult.GONE
    if known.stage != PENDING:
        return RescheduleResult.DEAD if known.stage == DEAD else RescheduleResult.RUNNING
    first = tx.topics.first_due(known.topic)
    tx.sql.run("reschedule", {"id": known.id, "due": due, "expires": _expiry(due, known.life)})
    if due <= now or first is None or due < first:
        tx.wake(namespace, tx.topics.name(known.topic))
    return RescheduleResult.MOVED


def _expiry(due: int, life: int | None) -> int | None:
    return None if life is None else due + life


def requeue(
    tx: Transaction, namespace: Namespace, name: str, ids: Sequence[str] | None, delay: int, limit: int, now: int | None
) -> Swept:
    at_ns = tx.times.now_ns(namespace, now)
    floor, ceiling = at_ns // MS, -(-at_ns // MS)
    check_delay(delay, None, floor)
    topic = tx.topics.known(namespace, name)
    if ids is None:
        rows = tx.sql.all("dead", {"topic": topic, "limit": limit + 1})
    else:
        named = [private_id(each) for each in dict.fromkeys(ids)]
        found = (tx.sql.one("dead_one", {"id": number, "salt": salt, "topic": topic}) for number, salt in named)
        rows = [row for row in found if row is not None]
    due = due_time(delay, None, floor, ceiling)
    keyless = 0
    for number, key, life in rows[:limit]:
        if key is not None:  # a holder that has expired does not keep the key
            keyless += tx.messages.find(namespace, Ref(topic=name, key=key), floor) is not None
        tx.sql.run("revive", {"id": number, "due": due, "expires": _expiry(due, life)})
    if rows:
        tx.wake(namespace, name)
    return Swept(len(rows[:limit]), len(rows) > limit, keyless)


def purge(tx: Transaction, namespace: Namespace, name: str, state: State, limit: int, now: int | None) -> Swept:
    at = tx.times.now(namespace, now)
    topic = tx.topics.known(namespace, name)
    if state == "dead":
        tx.sql.run("forget_dropped", {"topic": topic})
        rows = tx.sql.all("purge_dead", {"topic": topic, "limit": limit + 1})
    else:
        rows = []
        for level in LEVELS:
            values = {"topic": topic, "level": level, "now": at, "limit": limit + 1 - len(rows)}
            rows += tx.sql.all(f"purge_{state}", values)
    tx.messages.end([row[0] for row in rows[:limit]])
    return Swept(min(len(rows), limit), len(rows) > limit)


def pause(tx: Transaction, namespace: Namespace, name: str, paused: bool) -> None:
    tx.sql.run("pause", {"topic": tx.topics.made(namespace, name), "paused": int(paused)})
    if not paused:
        tx.wake(namespace, name)

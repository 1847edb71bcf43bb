"""Accepting messages."""

import os
from collections.abc import Sequence

from bide.clock import MS
from bide.core.when import check_delay, due_time
from bide.engines.base import OPERATION_MS, NewMessage, Ref
from bide.engines.sqlite.rows import LARGE, PENDING, Known, headers_text, public_id
from bide.engines.sqlite.transaction import Namespace, Transaction
from bide.types import Outcome, Sent


def put(tx: Transaction, namespace: Namespace, messages: Sequence[NewMessage], now: int | None) -> list[Sent]:
    at_ns = tx.times.now_ns(namespace, now)
    floor, ceiling = at_ns // MS, -(-at_ns // MS)
    for new in messages:
        check_delay(new.delay, new.at, floor)
    firsts: dict[str, int | None] = {}
    sent = []
    for new in messages:
        topic = tx.topics.made(namespace, new.topic)
        if new.topic not in firsts:
            firsts[new.topic] = tx.topics.first_due(topic)
        due = due_time(new.delay, new.at, floor, ceiling)
        sent.append(
            _put(tx, topic, new, due)
            if new.key is None and new.operation is None
            else _once(tx, namespace, topic, new, due, floor)
        )
    for each in sent:
        first = firsts[each.topic]
        if each.due <= floor or first is None or each.due < first:
            tx.wake(namespace, each.topic)
    return sent


def _put(tx: Transaction, topic: int, new: NewMessage, due: int) -> Sent:
    salt = int.from_bytes(os.urandom(2), "big")
    large = len(new.body) > LARGE
    row = tx.sql.run(
        "put",
        (
            salt,
            topic,
            new.level,
            due,
            new.max_attempts,
            None if large else new.body,
            headers_text(new.headers),
            new.key,
            new.expires_in,
            None if new.expires_in is None else due + new.expires_in,
        ),
    ).lastrowid
    assert row is not None
    if large:
        tx.messages.put_large(row, new.body)
    return Sent(public_id(row, salt), new.topic, due, "created")


def _once(tx: Transaction, namespace: Namespace, topic: int, new: NewMessage, due: int, now: int) -> Sent:
    """A message that may have been put before: by its operation, or under its key."""
    if new.operation is None:
        return _keyed(tx, namespace, topic, new, due, now)
    forget_operations(tx, now)
    known = tx.sql.one("operation", {"space": namespace.name, "name": new.operation})
    if known is not None:
        return Sent(*known)
    sent = _keyed(tx, namespace, topic, new, due, now)
    tx.sql.run(
        "keep_operation",
        {
            "space": namespace.name,
            "name": new.operation,
            "born": now,
            "message": sent.id,
            "topic": sent.topic,
            "due": sent.due,
            "outcome": sent.outcome,
        },
    )
    return sent


def forget_operations(tx: Transaction, now: int) -> None:
    tx.sql.run("forget_operations", {"born": now - OPERATION_MS})


def _keyed(tx: Transaction, namespace: Namespace, topic: int, new: NewMessage, due: int, now: int) -> Sent:
    holder = tx.messages.find(namespace, Ref(topic=new.topic, key=new.key), now) if new.key is not None else None
    if holder is not None:
        id = public_id(holder.id, holder.salt)
        own = id == new.within and holder.stage != PENDING
        if new.if_exists in ("keep", "error") and not own:
            outcome: Outcome = "kept" if new.if_exists == "keep" else "exists"
            return Sent(id, new.topic, holder.due, outcome)
        if holder.stage == PENDING:
            return _replace(tx, holder, new, due)
        tx.sql.run("lose_key", {"id": holder.id})  # it is running, and goes on without
    return _put(tx, topic, new, due)


def _replace(tx: Transaction, holder: Known, new: NewMessage, due: int) -> Sent:
    later = new.if_exists == "later"
    due = max(due, holder.due) if later else due
    large = len(new.body) > LARGE
    tx.sql.run(
        "replace",
        {
            "id": holder.id,
            "level": new.level,
            "due": due,
            "most": new.max_attempts,
            "body": None if large else new.body,
            "headers": headers_text(new.headers),
            "life": new.expires_in,
            "expires": None if new.expires_in is None else due + new.expires_in,
        },
    )
    tx.sql.run("end_large", (holder.id,))
    if large:
        tx.messages.put_large(holder.id, new.body)
    return Sent(public_id(holder.id, holder.salt), new.topic, due, "postponed" if later else "replaced")

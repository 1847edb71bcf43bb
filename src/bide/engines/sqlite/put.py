"""Accepting messages."""

import os
from collections.abc import Sequence

from bide.clock import MS
from bide.core.when import check_delay, due_time
from bide.engines.base import OPERATION_MS, NewMessage, Ref
from bide.engines.sqlite import plan
from bide.engines.sqlite.turn import SQL, Space, Turn
from bide.types import Outcome, Sent


def put(turn: Turn, space: Space, messages: Sequence[NewMessage], now: int | None) -> list[Sent]:
    at_ns = turn.now_ns(space, now)
    floor, ceiling = at_ns // MS, -(-at_ns // MS)
    for new in messages:
        check_delay(new.delay, new.at, floor)
    firsts: dict[str, int | None] = {}
    sent = []
    for new in messages:
        topic = turn.topic(space, new.topic)
        if new.topic not in firsts:
            firsts[new.topic] = turn.first_due(topic)
        due = due_time(new.delay, new.at, floor, ceiling)
        sent.append(
            _put(turn, topic, new, due)
            if new.key is None and new.operation is None
            else _once(turn, space, topic, new, due, floor)
        )
    for each in sent:
        first = firsts[each.topic]
        if each.due <= floor or first is None or each.due < first:
            turn.work_for(space, each.topic)
    return sent


def _put(turn: Turn, topic: int, new: NewMessage, due: int) -> Sent:
    salt = int.from_bytes(os.urandom(2), "big")
    large = len(new.body) > plan.LARGE
    row = turn.execute(
        SQL["put"],
        (
            salt,
            topic,
            new.level,
            due,
            new.max_attempts,
            None if large else new.body,
            plan.headers_text(new.headers),
            new.key,
            new.expires_in,
            None if new.expires_in is None else due + new.expires_in,
        ),
    ).lastrowid
    assert row is not None
    if large:
        turn.put_large(row, new.body)
    return Sent(plan.public_id(row, salt), new.topic, due, "created")


def _once(turn: Turn, space: Space, topic: int, new: NewMessage, due: int, now: int) -> Sent:
    """A message that may have been put before: by its operation, or under its key."""
    if new.operation is None:
        return _keyed(turn, space, topic, new, due, now)
    forget_operations(turn, now)
    known = turn.one("operation", {"space": space.name, "name": new.operation})
    if known is not None:
        return Sent(*known)
    sent = _keyed(turn, space, topic, new, due, now)
    turn.execute(
        SQL["keep_operation"],
        {
            "space": space.name,
            "name": new.operation,
            "born": now,
            "message": sent.id,
            "topic": sent.topic,
            "due": sent.due,
            "outcome": sent.outcome,
        },
    )
    return sent


def forget_operations(turn: Turn, now: int) -> None:
    turn.execute(SQL["forget_operations"], {"born": now - OPERATION_MS})


def _keyed(turn: Turn, space: Space, topic: int, new: NewMessage, due: int, now: int) -> Sent:
    holder = turn.find(space, Ref(topic=new.topic, key=new.key), now) if new.key is not None else None
    if holder is not None:
        id = plan.public_id(holder.id, holder.salt)
        own = id == new.within and holder.stage != plan.PENDING
        if new.if_exists in ("keep", "error") and not own:
            outcome: Outcome = "kept" if new.if_exists == "keep" else "exists"
            return Sent(id, new.topic, holder.due, outcome)
        if holder.stage == plan.PENDING:
            return _replace(turn, holder, new, due)
        turn.execute(SQL["lose_key"], {"id": holder.id})  # it is running, and goes on without
    return _put(turn, topic, new, due)


def _replace(turn: Turn, holder: plan.Known, new: NewMessage, due: int) -> Sent:
    later = new.if_exists == "later"
    due = max(due, holder.due) if later else due
    large = len(new.body) > plan.LARGE
    turn.execute(
        SQL["replace"],
        {
            "id": holder.id,
            "level": new.level,
            "due": due,
            "most": new.max_attempts,
            "body": None if large else new.body,
            "headers": plan.headers_text(new.headers),
            "life": new.expires_in,
            "expires": None if new.expires_in is None else due + new.expires_in,
        },
    )
    turn.execute(SQL["end_large"], (holder.id,))
    if large:
        turn.put_large(holder.id, new.body)
    return Sent(plan.public_id(holder.id, holder.salt), new.topic, due, "postponed" if later else "replaced")

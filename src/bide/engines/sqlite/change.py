"""Changing what is stored: accepting messages, making dead letters, and the verbs on pending messages and topics."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from bide.clock import MS
from bide.core.times import Dues, Planned, check_delay, planned
from bide.engines.base import (
    MAX_BATCH,
    OPERATION_MS,
    Condition,
    Move,
    NewMessage,
    Past,
    Ref,
    Seen,
    Swept,
)
from bide.engines.keyed import KeyHolder, KeyStore, accept
from bide.engines.sqlite.rows import (
    DEAD,
    LARGE,
    LEVELS,
    PENDING,
    Known,
    headers_text,
    instant_of,
    private_id,
    public_id,
    since_of,
)
from bide.engines.sqlite.transaction import FileNamespace, Transaction
from bide.engines.stored import read_headers, with_record
from bide.types import CancelResult, RescheduleResult, Sent, State


def keep_trace(tx: Transaction, number: int, record: bytes) -> None:
    row = tx.sql.one("traces", (number,))
    tx.sql.run("keep_traces", (number, with_record(b"" if row is None else row[0], record)))
    tx.sql.run("note_traces", (number,))


def bury(tx: Transaction, namespace: FileNamespace, topic: int, number: int, reason: str | None, now: int) -> None:
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


def live_through(tx: Transaction, namespace: FileNamespace, topic: int, number: int, new: NewMessage, now: int) -> None:
    """What a message that was just put has lived through elsewhere. A dead letter gets its key when it is dead."""
    past = new.past or Past()
    for record in past.traces:
        keep_trace(tx, number, record)
    if past.dead:
        bury(tx, namespace, topic, number, past.error, now)
    tx.sql.run("had_attempts", {"id": number, "attempt": past.attempt, "error": past.error, "key": new.key})


def put(tx: Transaction, namespace: FileNamespace, messages: Sequence[NewMessage], now: int | None) -> list[Sent]:
    at_ns = tx.times.now_ns(namespace, now)
    floor, ceiling = at_ns // MS, -(-at_ns // MS)
    for new in messages:
        check_delay(new.delay, new.at, floor)
    firsts: dict[str, int | None] = {}
    sent = []
    for new in messages:
        topic = tx.topics.made(namespace, new.topic)
        when = planned(new.delay, new.at, floor, ceiling, tx.times.wall)
        if tx.listened and when.due > floor and new.topic not in firsts:
            firsts[new.topic] = tx.topics.first_due(topic)
        sent.append(
            _put(tx, namespace, topic, new, when, floor)
            if new.key is None and new.operation is None
            else accept(_Keys(tx, namespace, topic), new, when, floor, tx.times.wall)
        )
    for each in sent:
        first = firsts.get(each.topic, floor)
        if each.due <= floor or first is None or each.due < first:
            tx.wake(namespace, each.topic)
    return sent


def _put(tx: Transaction, namespace: FileNamespace, topic: int, new: NewMessage, when: Planned, now: int) -> Sent:
    dead = new.past is not None and new.past.dead
    salt = int.from_bytes(os.urandom(2), "big")
    large = len(new.body) > LARGE
    row = tx.sql.run(
        "put",
        (
            salt,
            topic,
            new.level,
            when.due,
            new.max_attempts,
            None if large else new.body,
            headers_text(new.headers),
            None if dead else new.key,
            new.expires_in,
            _expiry(when.since, new.expires_in),
        ),
    ).lastrowid
    assert row is not None
    if when.instant:
        tx.sql.run("is_instant", {"id": row, "since": since_of(when)})
    if large:
        tx.messages.put_large(row, new.body)
    if new.past is not None:
        live_through(tx, namespace, topic, row, new, now)
    return Sent(public_id(row, salt), new.topic, when.due, "created")


class _Keys(KeyStore[Known]):
    """In one topic."""

    def __init__(self, tx: Transaction, namespace: FileNamespace, topic: int) -> None:
        self._tx = tx
        self._namespace = namespace
        self._topic = topic

    def remembered(self, name: str, now: int) -> Sent | None:
        forget_operations(self._tx, now)
        known = self._tx.sql.one("operation", {"space": self._namespace.name, "name": name, "after": now - OPERATION_MS})
        return None if known is None else Sent(*known)

    def remember(self, name: str, until: int, sent: Sent) -> None:
        row = {"space": self._namespace.name, "name": name, "born": until - OPERATION_MS}
        told = {"message": sent.id, "topic": sent.topic, "due": sent.due, "outcome": sent.outcome}
        self._tx.sql.run("keep_operation", {**row, **told})

    def find(self, topic: str, key: str, now: int) -> KeyHolder[Known] | None:
        known = self._tx.messages.find(self._namespace, Ref(topic=topic, key=key), now)
        if known is None:
            return None
        return KeyHolder(public_id(known.id, known.salt), known.due, known.stage == PENDING, known.attempt, known)

    def create(self, new: NewMessage, when: Planned, now: int) -> Sent:
        return _put(self._tx, self._namespace, self._topic, new, when, now)

    def change(self, row: Known, new: NewMessage, when: Planned, now: int) -> None:
        large = len(new.body) > LARGE
        self._tx.sql.run(
            "replace",
            {
                "id": row.id,
                "level": new.level,
                "due": when.due,
                "since": since_of(when),
                "instant": instant_of(when),
                "most": new.max_attempts,
                "body": None if large else new.body,
                "headers": headers_text(new.headers),
                "life": new.expires_in,
                "expires": _expiry(when.since, new.expires_in),
            },
        )
        self._tx.sql.run("end_large", (row.id,))
        if large:
            self._tx.messages.put_large(row.id, new.body)

    def planned(self, row: Known) -> Planned:
        return row.planned

    def headers(self, row: Known) -> Mapping[str, str]:
        return read_headers(self._tx.sql.one("headers", {"id": row.id})[0]) or {}

    def body(self, row: Known) -> bytes:
        body: bytes = self._tx.sql.one("body", {"id": row.id})[0]
        return body

    def set_body(self, row: Known, body: bytes) -> None:
        large = len(body) > LARGE
        self._tx.sql.run("set_body", {"id": row.id, "body": None if large else body})
        if large:
            self._tx.messages.put_large(row.id, body)

    def drop_key(self, row: Known) -> None:
        self._tx.sql.run("lose_key", {"id": row.id})


def forget_operations(tx: Transaction, now: int) -> None:
    tx.sql.run("forget_operations", {"born": now - OPERATION_MS, "limit": MAX_BATCH})


def cancel(
    tx: Transaction, namespace: FileNamespace, refs: Sequence[Ref], seen: Sequence[Seen] | None, now: int | None
) -> list[CancelResult]:
    at = tx.times.now(namespace, now)
    ended: dict[int, None] = {}
    told = [None] * len(refs) if seen is None else seen
    answers = [_cancel(tx, tx.messages.find(namespace, ref, at), each, ended) for ref, each in zip(refs, told, strict=True)]
    if seen is None or len(ended) == len(refs):
        tx.messages.end(list(ended))
    return answers


def _cancel(tx: Transaction, known: Known | None, seen: Seen | None, ended: dict[int, None]) -> CancelResult:
    if known is None or known.id in ended:
        return CancelResult.GONE
    answer = _end_of(tx, known, seen)
    if answer is CancelResult.CANCELLED:
        ended[known.id] = None
    return answer


def _end_of(tx: Transaction, known: Known | None, seen: Seen | None) -> CancelResult:
    """What cancelling it answers."""
    if known is None:
        return CancelResult.GONE
    if known.stage != PENDING:
        return CancelResult.DEAD if known.stage == DEAD else CancelResult.RUNNING
    same = seen is None or _is_as_seen(tx, known, seen)
    return CancelResult.CANCELLED if same else CancelResult.GONE


def _is_as_seen(tx: Transaction, known: Known, seen: Seen) -> bool:
    if known.due != seen.due:
        return False
    return seen.body is None or tx.sql.one("body", {"id": known.id})[0] == seen.body


def reschedule(
    tx: Transaction, namespace: FileNamespace, moves: Sequence[Move], condition: Condition | None, now: int | None
) -> list[RescheduleResult]:
    at_ns = tx.times.now_ns(namespace, now)
    floor, ceiling = at_ns // MS, -(-at_ns // MS)
    for move in moves:
        check_delay(move.delay, move.at, floor)
    if condition is not None:
        holder = tx.messages.find(namespace, Ref(id=condition.id), floor)
        if _end_of(tx, holder, Seen(condition.due)) is not CancelResult.CANCELLED:
            return [RescheduleResult.GONE] * len(moves)
    firsts: dict[int, int | None] = {}  # by topic, when its first message was due before
    return [_reschedule(tx, namespace, move, floor, ceiling, firsts) for move in moves]


def _reschedule(
    tx: Transaction, namespace: FileNamespace, move: Move, now: int, ceiling: int, firsts: dict[int, int | None]
) -> RescheduleResult:
    known = tx.messages.find(namespace, move.ref, now)
    if known is None:
        return RescheduleResult.GONE
    if known.stage != PENDING:
        return RescheduleResult.DEAD if known.stage == DEAD else RescheduleResult.RUNNING
    if move.seen not in (None, known.due):
        return RescheduleResult.GONE
    when = move.planned(known.planned, now, ceiling, tx.times.wall)
    if known.topic not in firsts:
        firsts[known.topic] = tx.topics.first_due(known.topic)
    times = {"due": when.due, "since": since_of(when), "instant": instant_of(when)}
    tx.sql.run("reschedule", {"id": known.id, **times, "expires": _expiry(when.since, known.life)})
    first = firsts[known.topic]
    if when.due <= now or first is None or when.due < first:
        tx.wake(namespace, tx.topics.name(known.topic))
    return RescheduleResult.MOVED


def _expiry(since: int, life: int | None) -> int | None:
    return None if life is None else since + life


def requeue(
    tx: Transaction,
    namespace: FileNamespace,
    name: str,
    ids: Sequence[str] | None,
    dues: Dues,
    now: int | None,
) -> Swept:
    at_ns = tx.times.now_ns(namespace, now)
    floor, ceiling = at_ns // MS, -(-at_ns // MS)
    dues.check()
    topic = tx.topics.known(namespace, name)
    limit = dues.places
    rows = tx.sql.all("dead", {"topic": topic, "limit": limit + 1}) if ids is None else _dead(tx, topic, ids)
    keyless = 0
    for place, (number, key, life) in enumerate(rows[:limit]):
        due = dues.at(place, floor, ceiling)
        if key is not None:  # a holder that has expired does not keep the key
            keyless += tx.messages.find(namespace, Ref(topic=name, key=key), floor) is not None
        tx.sql.run("revive", {"id": number, "due": due, "expires": _expiry(due, life)})
    if rows:
        tx.wake(namespace, name)
    return Swept(len(rows[:limit]), len(rows) > limit, keyless)


def _dead(tx: Transaction, topic: int | None, ids: Sequence[str]) -> list[Any]:
    """The dead letters with these ids."""
    named = [private_id(each) for each in dict.fromkeys(ids)]
    found = (tx.sql.one("dead_one", {"id": number, "salt": salt, "topic": topic}) for number, salt in named)
    return [row for row in found if row is not None]


def purge(
    tx: Transaction,
    namespace: FileNamespace,
    name: str,
    state: State,
    ids: Sequence[str] | None,
    limit: int,
    now: int | None,
) -> Swept:
    at = tx.times.now(namespace, now)
    topic = tx.topics.known(namespace, name)
    if ids is not None:
        rows = _dead(tx, topic, ids)
    elif state == "dead":
        tx.sql.run("forget_dropped", {"topic": topic})
        rows = tx.sql.all("purge_dead", {"topic": topic, "limit": limit + 1})
    else:
        rows = []
        for level in LEVELS:
            values = {"topic": topic, "level": level, "now": at, "wall": tx.times.wall, "limit": limit + 1 - len(rows)}
            rows += tx.sql.all(f"purge_{state}", values)
    tx.messages.end([row[0] for row in rows[:limit]])
    return Swept(min(len(rows), limit), len(rows) > limit)


def pause(tx: Transaction, namespace: FileNamespace, name: str, paused: bool) -> None:
    tx.sql.run("pause", {"topic": tx.topics.made(namespace, name), "paused": int(paused)})
    if not paused:
        tx.wake(namespace, name)

"""Looking without touching: on a connection of its own, so that no writer waits for it."""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from bide.engines.base import Ref, Scanned, Stored, Window, total
from bide.engines.sqlite.rows import DEAD, LEASED, LEVELS, PENDING, private_id, stored_of
from bide.engines.sqlite.transaction import FileNamespace, Transaction
from bide.engines.stored import records_of
from bide.errors import BadOption
from bide.types import State, Stats

Place = tuple[int, int, int]  # of a message in a scan: pending, leased or dead; due time, or when it died; order of sending


def get(tx: Transaction, namespace: FileNamespace, refs: Sequence[Ref], now: int | None) -> list[Stored | None]:
    at = tx.times.now(namespace, now)
    return [_get(tx, namespace, ref, at) for ref in refs]


def _get(tx: Transaction, namespace: FileNamespace, ref: Ref, now: int) -> Stored | None:
    if ref.id is not None:
        number, salt = private_id(ref.id)
        row = tx.sql.one("stored_by_id", {"id": number, "salt": salt, "space": namespace.name})
    else:
        row = tx.sql.one("stored_by_key", {"space": namespace.name, "name": ref.topic, "key": ref.key})
    if row is None:
        return None
    *told, records = row
    stored = stored_of(told, now, tx.times.wall)
    expired = stored.state in ("scheduled", "ready") and stored.expires is not None and stored.expires <= now
    if expired:
        return None
    return stored if records is None else replace(stored, traces=records_of(records))


def scan(
    tx: Transaction, namespace: FileNamespace, name: str, state: State | None, limit: int, after: str | None, now: int | None
) -> Scanned:
    begin = _read_mark(after)
    at = tx.times.now(namespace, now)
    topic = tx.topics.known(namespace, name)
    found: list[tuple[Place, Any]] = []
    for stage in (PENDING, LEASED, DEAD):
        if begin[0] <= stage and len(found) <= limit:
            instant, number = begin[1:] if begin[0] == stage else (-1, 0)
            values = {"topic": topic, "instant": instant, "id": number, "limit": limit + 1 - len(found)}
            found += [(_place(stage, row), row) for row in _of_stage(tx, stage, state, values, at)]
    page = found[:limit]
    mark = ".".join(map(str, page[-1][0])) if len(found) > limit else None
    return Scanned([stored_of(row, at, tx.times.wall) for _, row in page], mark)


def _place(stage: int, row: tuple[Any, ...]) -> Place:
    number, due, died = row[0], row[4], row[14]
    return stage, died if stage == DEAD else due, number


def _of_stage(tx: Transaction, stage: int, state: State | None, values: dict[str, Any], now: int) -> list[Any]:
    if stage == PENDING and state in (None, "scheduled", "ready"):
        begin = tx.times.wall + 1 if state == "scheduled" else -1
        end = now if state == "ready" else 2**62
        values = {**values, "state": state, "now": now, "wall": tx.times.wall}
        levels = [
            tx.sql.all("page_pending", {**values, "level": level, "begin": max(begin, values["instant"]), "end": end})
            for level in LEVELS
        ]
        rows = sorted((row for rows in levels for row in rows), key=lambda row: (row[4], row[0]))
        return rows[: values["limit"]]
    if stage == LEASED and state in (None, "leased"):
        return tx.sql.all("page_leased", values)
    if stage == DEAD and state in (None, "dead"):
        return tx.sql.all("page_dead", values)
    return []


def _read_mark(after: str | None) -> Place:
    if after is None:
        return PENDING, -1, 0
    try:
        stage, instant, number = map(int, after.split("."))
    except ValueError:
        raise BadOption("after is not the mark of a page: give back a page's own .after, or None for the first.") from None
    return stage, instant, number


def stats(
    tx: Transaction, namespace: FileNamespace, name: str | None, but: Collection[str], window: Window | None, now: int | None
) -> Stats:
    at = tx.times.now(namespace, now)
    if name is not None:
        rows = tx.sql.all("one_topic", {"space": namespace.name, "name": name})
    else:
        rows = [row for row in tx.sql.all("topics", {"space": namespace.name}) if row[1] not in but]
    found = ((row[0], row[1], _topic_stats(tx, row, at)) for row in rows)
    each = {topic: _with_timeline(tx, number, one, window) for number, topic, one in found if one != Stats()}
    return total(each.values(), each if name is None else {}, 0 if window is None else window.parts)


def _topic_stats(tx: Transaction, row: tuple[int, str, int, int], now: int) -> Stats:
    topic, _, paused, dropped = row
    ready = scheduled = 0
    firsts, nexts = [], []
    for level in LEVELS:
        due, later, first, following = tx.sql.one("count_pending", {"topic": topic, "level": level, "now": now})
        if tx.times.wall < now:
            held, first_held, first, following = tx.topics.while_behind(topic, level, now, tx.times.wall)
            due, later = due - held, later + held
            nexts.append(first_held)
        ready += due
        scheduled += later
        firsts.append(first)
        nexts.append(following)
    first = min((each for each in firsts if each is not None), default=None)
    return Stats(
        scheduled=scheduled,
        ready=ready,
        leased=tx.sql.one("count_leased", {"topic": topic})[0],
        dead=tx.sql.one("count_dead", {"topic": topic})[0],
        dead_dropped=dropped,
        paused=bool(paused),
        oldest_overdue=(now - first) / 1000 if ready and first is not None else None,
        next_due=min((each for each in nexts if each is not None), default=None),
    )


def _with_timeline(tx: Transaction, topic: int, stats: Stats, window: Window | None) -> Stats:
    if window is None:
        return stats
    counts = [0] * window.parts
    for level in LEVELS:
        values = {"topic": topic, "level": level, "start": window.start, "end": window.end, "parts": window.parts}
        for part, count in tx.sql.all("timeline", values):
            counts[part] += count
    return replace(stats, timeline=counts)

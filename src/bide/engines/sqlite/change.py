"""Changing what is stored, from outside a delivery."""

from collections.abc import Sequence

from bide.clock import MS
from bide.core.when import check_delay, due_time
from bide.engines.base import Move, Ref, Swept
from bide.engines.sqlite import plan
from bide.engines.sqlite.turn import SQL, Space, Turn
from bide.types import CancelResult, RescheduleResult, State


def cancel(turn: Turn, space: Space, refs: Sequence[Ref], now: int | None) -> list[CancelResult]:
    at = turn.now(space, now)
    return [_cancel(turn, turn.find(space, ref, at)) for ref in refs]


def _cancel(turn: Turn, known: plan.Known | None) -> CancelResult:
    if known is None:
        return CancelResult.GONE
    if known.stage != plan.PENDING:
        return CancelResult.DEAD if known.stage == plan.DEAD else CancelResult.RUNNING
    turn.end([known.id])
    return CancelResult.CANCELLED


def reschedule(turn: Turn, space: Space, moves: Sequence[Move], now: int | None) -> list[RescheduleResult]:
    at_ns = turn.now_ns(space, now)
    floor, ceiling = at_ns // MS, -(-at_ns // MS)
    for move in moves:
        check_delay(move.delay, move.at, floor)
    return [_reschedule(turn, space, move.ref, due_time(move.delay, move.at, floor, ceiling), floor) for move in moves]


def _reschedule(turn: Turn, space: Space, ref: Ref, due: int, now: int) -> RescheduleResult:
    known = turn.find(space, ref, now)
    if known is None:
        return RescheduleResult.GONE
    if known.stage != plan.PENDING:
        return RescheduleResult.DEAD if known.stage == plan.DEAD else RescheduleResult.RUNNING
    first = turn.first_due(known.topic)
    turn.execute(SQL["reschedule"], {"id": known.id, "due": due, "expires": _expiry(due, known.life)})
    if due <= now or first is None or due < first:
        turn.work_for(space, turn.one("topic_name", {"topic": known.topic})[0])
    return RescheduleResult.MOVED


def _expiry(due: int, life: int | None) -> int | None:
    return None if life is None else due + life


def requeue(turn: Turn, space: Space, name: str, ids: Sequence[str] | None, delay: int, limit: int, now: int | None) -> Swept:
    at_ns = turn.now_ns(space, now)
    floor, ceiling = at_ns // MS, -(-at_ns // MS)
    check_delay(delay, None, floor)
    topic = turn.known_topic(space, name)
    if ids is None:
        rows = turn.all("dead", {"topic": topic, "limit": limit + 1})
    else:
        named = [plan.private_id(each) for each in dict.fromkeys(ids)]
        found = (turn.one("dead_one", {"id": number, "salt": salt, "topic": topic}) for number, salt in named)
        rows = [row for row in found if row is not None]
    due = due_time(delay, None, floor, ceiling)
    keyless = 0
    for number, key, life in rows[:limit]:
        if key is not None:  # a holder that has expired does not keep the key
            keyless += turn.find(space, Ref(topic=name, key=key), floor) is not None
        turn.execute(SQL["revive"], {"id": number, "due": due, "expires": _expiry(due, life)})
    if rows:
        turn.work_for(space, name)
    return Swept(len(rows[:limit]), len(rows) > limit, keyless)


def purge(turn: Turn, space: Space, name: str, state: State, limit: int, now: int | None) -> Swept:
    at = turn.now(space, now)
    topic = turn.known_topic(space, name)
    if state == "dead":
        turn.execute(SQL["forget_dropped"], {"topic": topic})
        rows = turn.all("purge_dead", {"topic": topic, "limit": limit + 1})
    else:
        rows = []
        for level in plan.LEVELS:
            values = {"topic": topic, "level": level, "now": at, "limit": limit + 1 - len(rows)}
            rows += turn.all(f"purge_{state}", values)
    turn.end([row[0] for row in rows[:limit]])
    return Swept(min(len(rows), limit), len(rows) > limit)


def pause(turn: Turn, space: Space, name: str, paused: bool) -> None:
    turn.execute(SQL["pause"], {"topic": turn.topic(space, name), "paused": int(paused)})
    if not paused:
        turn.work_for(space, name)

"""Handing messages out, and what comes of it."""

from collections.abc import Sequence
from typing import Any

from bide.clock import MS
from bide.core.when import due_time
from bide.engines.base import Claim, Claimed, End, Ended, Hold
from bide.engines.sqlite import plan
from bide.engines.sqlite.turn import SQL, Space, Turn


def claim(
    turn: Turn, space: Space, topics: Sequence[str], limit: int, lease: int, request: str | None, now: int | None
) -> Claim:
    at = turn.now(space, now)
    awake: dict[str, int] = {}
    for name in topics:
        row = turn.one("find_topic", {"space": space.name, "name": name})
        if row is not None and not row[1]:
            awake[name] = row[0]
    handed_out = _again(turn, space, request) if request is not None else []
    if not handed_out:
        chosen = _choose(turn, space, awake, limit, at)
        if chosen:
            handed_out = _lease(turn, space, chosen, at, lease, request)
    left = {name: due for name, topic in awake.items() if (due := turn.first_due(topic)) is not None}
    for name, due in left.items():
        if due <= at:
            turn.work_for(space, name)
    return Claim(handed_out, at, min(left.values(), default=None))


def _again(turn: Turn, space: Space, request: str) -> list[Claimed]:
    """What this request holds already."""
    rows = turn.all("claimed_again", {"request": request, "space": space.name})
    return [plan.claimed(row, row[10], plan.token_text(row[9]), 0) for row in rows]


def _choose(turn: Turn, space: Space, topics: dict[str, int], limit: int, now: int) -> list[tuple[str, Any]]:
    """Each topic's share first, then whatever is left, in the order of the topics. Nothing is written but expired ends."""
    if not topics:
        return []
    waiting = {name: plan.in_turn(_due(turn, topic, limit, now), turn.last_token(space)) for name, topic in topics.items()}
    chosen: list[tuple[str, Any]] = []
    for share in (max(1, limit // len(topics)), limit):
        for name, rows in waiting.items():
            room = min(share, limit - len(chosen))
            chosen += [(name, row) for row in rows[:room]]
            del rows[:room]
    return chosen


def _due(turn: Turn, topic: int, limit: int, now: int) -> list[list[Any]]:
    """What is due, a list a level. What has expired is ended on the way."""
    found = []
    for level in plan.LEVELS:
        while True:
            rows = turn.all("due", {"topic": topic, "level": level, "now": now, "limit": limit})
            expired = [row[0] for row in rows if row[9] is not None and row[9] <= now]
            turn.end(expired)
            if not expired:
                break
        found.append(rows)
    return found


def _lease(turn: Turn, space: Space, chosen: list[tuple[str, Any]], now: int, lease: int, request: str | None) -> list[Claimed]:
    token = turn.next_token(space, now)
    turn.executemany(SQL["lease"], [(token, request, now + lease, row[0]) for _, row in chosen])
    text = plan.token_text(token)
    return [plan.claimed(row, name, text, 1) for name, row in chosen]


def settle(turn: Turn, space: Space, ends: Sequence[End], now: int | None) -> list[Ended]:
    at_ns = turn.now_ns(space, now)
    floor, ceiling = at_ns // MS, -(-at_ns // MS)
    done: list[int] = []
    answers: list[Ended] = []
    gone: set[int] = set()
    for end in ends:
        held = _held(turn, space, end)
        if held is None or held.id in gone:
            answers.append("lost")
        elif end.verdict == "done":
            done.append(held.id)
            gone.add(held.id)
            answers.append("done")
        else:
            answers.append(_end(turn, space, held, end, floor, ceiling))
    turn.end(done)
    return answers


def _held(turn: Turn, space: Space, hold: End | Hold) -> plan.Delivered | None:
    """The message of a delivery, unless it has ended or was handed out anew."""
    number, salt = plan.private_id(hold.id)
    topic = turn.known_topic(space, hold.topic)
    row = turn.one("held", (number, salt, plan.token_number(hold.token), topic))
    return None if row is None else plan.Delivered(*row)


def _end(turn: Turn, space: Space, held: plan.Delivered, end: End, floor: int, ceiling: int) -> Ended:
    if end.verdict == "dead" or (end.verdict == "retry" and held.attempt >= held.most):
        bury(turn, space, held.topic, held.id, end.error, floor)
        return "dead"
    if end.verdict == "release":
        due = due_time(end.delay, None, floor, ceiling) if end.delay else held.due
        held = held._replace(attempt=held.attempt - 1)
    else:
        due = due_time(end.delay, None, floor, ceiling)
        held = held._replace(error=end.error)
    return "scheduled" if come_back(turn, space, held, due, floor, end.topic) else "expired"


def bury(turn: Turn, space: Space, topic: int, number: int, reason: str | None, now: int) -> None:
    """Make a dead letter of it, and drop the oldest when there are too many."""
    turn.execute(SQL["bury"], {"id": number, "error": reason, "now": now})
    extra = turn.one("count_dead", {"topic": topic})[0] - space.dead_max
    if extra > 0:
        drop_dead(turn, topic, [row[0] for row in turn.all("oldest_dead", {"topic": topic, "limit": extra})])


def drop_dead(turn: Turn, topic: int, numbers: list[int]) -> None:
    """Dead letters that are not kept any longer are counted."""
    turn.end(numbers)
    turn.execute(SQL["count_dropped"], {"topic": topic, "count": len(numbers)})


def come_back(turn: Turn, space: Space, held: plan.Delivered, due: int, now: int, name: str) -> bool:
    """Make a message pending again; False when it would come back after its expiry, and so has ended."""
    if held.expires is not None and max(due, now) >= held.expires:
        turn.end([held.id])
        return False
    first = turn.first_due(held.topic)
    turn.execute(SQL["come_back"], {"id": held.id, "due": due, "attempt": held.attempt, "error": held.error})
    if due <= now or first is None or due < first:
        turn.work_for(space, name)
    return True


def extend(turn: Turn, space: Space, holds: Sequence[Hold], lease: int, now: int | None) -> list[bool]:
    until = turn.now(space, now) + lease
    held = [_held(turn, space, hold) for hold in holds]
    turn.executemany(SQL["extend"], [(until, each.id) for each in held if each is not None])
    return [each is not None for each in held]

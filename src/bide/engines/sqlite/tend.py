"""Upkeep, a bounded piece at a time: leases that have ended, messages that have expired, dead letters past keeping."""

from typing import Any

from bide.engines.base import Tended
from bide.engines.sqlite import plan
from bide.engines.sqlite.deliver import bury, come_back, drop_dead
from bide.engines.sqlite.put import forget_operations
from bide.engines.sqlite.turn import Space, Turn

GIVE_BACK = 1_000  # pages that are free go back to the filesystem, so many at a time, once they are more than this and
# more than those in use: until then they are for what comes next


def tend(turn: Turn, space: Space, budget: int, now: int | None, ended_by: int | None = None) -> Tended:
    at = turn.now(space, now)
    until = at if ended_by is None else min(at, ended_by)
    leases = _page(turn, "ended_leases", {"space": space.name, "until": until}, budget)
    buried = sum(_take_back(turn, space, plan.Delivered(*row), at) for row in leases[:budget])
    returned = min(len(leases), budget)
    expired = _page(turn, "expired", {"space": space.name, "now": at}, budget - returned)
    gone = [row[0] for row in expired[: budget - returned]]
    turn.end(gone)
    old = _page(turn, "old_dead", {"space": space.name, "before": at - space.dead_for}, budget - returned - len(gone))
    dropped = old[: budget - returned - len(gone)]
    for number, topic in dropped:
        drop_dead(turn, topic, [number])
    more = len(leases) + len(expired) + len(old) > budget
    if not more:
        _tidy(turn, at)
    return Tended(returned, buried, len(gone), len(dropped), more)


def _page(turn: Turn, name: str, values: dict[str, object], room: int) -> list[Any]:
    """As much as there is room for, and one more to tell whether that is all."""
    return turn.all(name, {**values, "limit": room + 1})


def _take_back(turn: Turn, space: Space, held: plan.Delivered, now: int) -> bool:
    """True when that was the last attempt."""
    if held.attempt < held.most:
        come_back(turn, space, held, held.due, now, turn.one("topic_name", {"topic": held.topic})[0])
        return False
    reason = f"The lease of attempt {held.attempt}, the last, ended: its worker died, froze or took too long."
    bury(turn, space, held.topic, held.id, reason, now)
    return True


def _tidy(turn: Turn, now: int) -> None:
    """What nobody waits for: old operations, topics that hold nothing, pages that are free."""
    forget_operations(turn, now)
    for (topic,) in turn.all("idle_topics", {"limit": 100}):
        turn.drop_topic(topic)
    free, pages = turn.one("free_pages", ())[0], turn.one("pages", ())[0]
    if free > max(GIVE_BACK, pages - free):
        for _ in range(GIVE_BACK):
            turn.all("give_back", ())

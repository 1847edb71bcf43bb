"""Delivering messages: claims, ends and longer leases; and upkeep, a bounded piece at a time."""

from collections.abc import Sequence
from typing import Any

from bide.clock import MS
from bide.core.times import due_time
from bide.engines.base import Claim, Claimed, End, Ended, Hold, Ref, Tended
from bide.engines.sqlite.change import bury, drop_dead, forget_operations, keep_trace
from bide.engines.sqlite.gates import recall
from bide.engines.sqlite.rows import LEVELS, Delivered, by_priority, claimed_of, private_id, token_number, token_text
from bide.engines.sqlite.transaction import FileNamespace, Transaction
from bide.engines.stored import lease_ended

GIVE_BACK = 1_000  # pages that are free go back to the filesystem, so many at a time, once they are more than this and


def claim(
    tx: Transaction,
    namespace: FileNamespace,
    topics: Sequence[str],
    limit: int,
    lease: int,
    request: str | None,
    now: int | None,
) -> Claim:
    at = tx.times.now(namespace, now)
    awake: dict[str, int] = {}
    for name in topics:
        row = tx.sql.one("find_topic", {"space": namespace.name, "name": name})
        if row is not None and not row[1]:
            awake[name] = row[0]
    handed_out: list[Claimed | End] = _again(tx, namespace, request) if request is not None else []
    if not handed_out:
        chosen = _choose(tx, namespace, awake, limit, at)
        if chosen:
            handed_out = _lease(tx, namespace, chosen, at, lease, request)
    unreadable = [each for each in handed_out if isinstance(each, End)]
    settle(tx, namespace, unreadable, now)
    left = {
        name: due for name, topic in awake.items() if (due := tx.topics.first_to_come(topic, at, tx.times.wall)) is not None
    }
    for name, due in left.items():
        if due <= at:
            tx.wake(namespace, name)
    return Claim([each for each in handed_out if isinstance(each, Claimed)], at, min(left.values(), default=None))


def _again(tx: Transaction, namespace: FileNamespace, request: str) -> list[Claimed | End]:
    """What this request holds already."""
    rows = tx.sql.all("claimed_again", {"request": request, "space": namespace.name})
    return [claimed_of(row, row[11], token_text(row[10]), 0) for row in rows]


def _choose(tx: Transaction, namespace: FileNamespace, topics: dict[str, int], limit: int, now: int) -> list[tuple[str, Any]]:
    """Each topic's share first, then whatever is left, in the order of the topics. Expired messages end on the way."""
    if not topics:
        return []
    waiting = {name: by_priority(_due(tx, topic, limit, now), tx.times.last_token(namespace)) for name, topic in topics.items()}
    chosen: list[tuple[str, Any]] = []
    for share in (max(1, limit // len(topics)), limit):
        for name, rows in waiting.items():
            room = min(share, limit - len(chosen))
            chosen += [(name, row) for row in rows[:room]]
            del rows[:room]
    return chosen


def _due(tx: Transaction, topic: int, limit: int, now: int) -> list[list[Any]]:
    """Due messages, one list for each priority. Expired ones are ended on the way."""
    found = []
    for level in LEVELS:
        while True:
            values = {"topic": topic, "level": level, "now": now, "wall": tx.times.wall, "limit": limit}
            rows = tx.sql.all("due", values)
            expired = [row[0] for row in rows if row[10] is not None and row[10] <= now]
            tx.messages.end(expired)
            if not expired:
                break
        found.append(rows)
    return found


def _lease(
    tx: Transaction, namespace: FileNamespace, chosen: list[tuple[str, Any]], now: int, lease: int, request: str | None
) -> list[Claimed | End]:
    token = tx.times.next_token(namespace, now)
    tx.sql.run_each("lease", (token, request, now + lease), [row[0] for _, row in chosen])
    text = token_text(token)
    return [claimed_of(row, name, text, 1) for name, row in chosen]


def settle(tx: Transaction, namespace: FileNamespace, ends: Sequence[End], now: int | None) -> list[Ended]:
    at_ns = tx.times.now_ns(namespace, now)
    floor, ceiling = at_ns // MS, -(-at_ns // MS)
    done: list[int] = []
    answers: list[Ended] = []
    ended: set[int] = set()
    for end, held in zip(ends, _held(tx, namespace, ends), strict=True):
        if held is None or held.id in ended:
            answers.append("lost")
            continue
        ended.add(held.id)
        if end.verdict == "done":
            done.append(held.id)
            answers.append("done")
        else:
            answers.append(_end(tx, namespace, held, end, floor, ceiling))
    tx.messages.end(done)
    return answers


def _held(tx: Transaction, namespace: FileNamespace, holds: Sequence[End | Hold]) -> list[Delivered | None]:
    """The message of each delivery, unless it has ended or was delivered again."""
    named = [private_id(hold.id) for hold in holds]
    leased = {row[0]: row for row in tx.sql.run_each("held", (), [number for number, _ in named])}
    found: list[Delivered | None] = []
    for hold, (number, salt) in zip(holds, named, strict=True):
        row = leased.get(number)
        known = (tx.topics.known(namespace, hold.topic), salt, token_number(hold.token))
        found.append(None if row is None or (row[1], row[7], row[8]) != known else Delivered(*row[:7]))
    return found


def _end(tx: Transaction, namespace: FileNamespace, held: Delivered, end: End, floor: int, ceiling: int) -> Ended:
    if end.trace is not None and end.verdict != "release":
        keep_trace(tx, held.id, end.trace)
    most = end.attempts or held.most
    if end.verdict == "dead" or (end.verdict == "retry" and held.attempt >= most):
        bury(tx, namespace, held.topic, held.id, end.error, floor)
        return "dead"
    if end.verdict == "release":
        due = due_time(end.delay, None, floor, ceiling) if end.delay else held.due
        if end.aside and held.expires is not None and held.expires - 1 > floor:  # else that was its last time
            due = min(due, held.expires - 1)
        held = held._replace(attempt=held.attempt - 1, began=end.began)
    else:
        due = due_time(end.delay, None, floor, ceiling)
        held = held._replace(error=end.error, began=end.began, most=most)
    return "scheduled" if come_back(tx, namespace, held, due, floor, end.topic) else "expired"


def come_back(tx: Transaction, namespace: FileNamespace, held: Delivered, due: int, now: int, name: str) -> bool:
    """Make a message pending again; False when it would come back after its expiry, and so has ended."""
    if held.expires is not None and max(due, now) >= held.expires:
        tx.messages.end([held.id])
        return False
    first = tx.topics.first_due(held.topic)
    values = {"id": held.id, "due": due, "attempt": held.attempt, "most": held.most, "error": held.error, "began": held.began}
    tx.sql.run("come_back", values)
    if due <= now or first is None or due < first:
        tx.wake(namespace, name)
    return True


def extend(tx: Transaction, namespace: FileNamespace, holds: Sequence[Hold], lease: int, now: int | None) -> list[bool]:
    until = tx.times.now(namespace, now) + lease
    held = _held(tx, namespace, holds)
    tx.sql.run_each("extend", (until,), [each.id for each in held if each is not None])
    return [each is not None for each in held]


# more than those in use: until then they are for what comes next


def tend(tx: Transaction, namespace: FileNamespace, budget: int, now: int | None, ended_by: int | None = None) -> Tended:
    at = tx.times.now(namespace, now)
    until = at if ended_by is None else min(at, ended_by)
    leases = _page(tx, "ended_leases", {"space": namespace.name, "until": until, "now": at}, budget)
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
    left = budget - returned - len(gone) - len(dropped)
    called, next_in = recall(tx, namespace, left, at)
    more = more or next_in == 0
    if left := left - len(called):
        asked = {"space": namespace.name, "now": at, "limit": left}
        more = max(tx.sql.run(name, asked).rowcount for name in ("tidy_results", "tidy_waiting")) >= left or more
    if not more:
        _tidy(tx, at)
    return Tended(returned, buried, len(gone), len(dropped), more, tuple(called), next_in)


def take_back(tx: Transaction, namespace: FileNamespace, refs: Sequence[Ref], now: int | None) -> None:
    """Those of the named messages whose lease is over: in a user's transaction, for which upkeep would wait."""
    at = tx.times.now(namespace, now)
    for ref in refs:
        known = tx.messages.find(namespace, ref, at)
        for row in () if known is None else tx.sql.all("ended_lease", {"id": known.id, "now": at}):
            _take_back(tx, namespace, Delivered(*row), at)


def _page(tx: Transaction, name: str, values: dict[str, object], room: int) -> list[Any]:
    """As much as there is room for, and one more to tell whether that is all."""
    return tx.sql.all(name, {**values, "limit": room + 1})


def _take_back(tx: Transaction, namespace: FileNamespace, held: Delivered, now: int) -> bool:
    """True when that was the last attempt."""
    keep_trace(tx, held.id, lease_ended(held.attempt, held.claimed_at))
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

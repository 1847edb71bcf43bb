"""Delivering messages: claims, ends and longer leases; and upkeep, a bounded piece at a time."""

import heapq
from collections.abc import Sequence

from msgspec.structs import replace

from bide.clock import MS
from bide.core.times import due_time
from bide.engines.base import Claim, End, Ended, Hold, Tended
from bide.engines.memory.change import forget_answers
from bide.engines.memory.gates import recall
from bide.engines.memory.store import Store
from bide.engines.memory.topic import DEAD, LEASED, PENDING, HeldClaim, Message, Topic
from bide.engines.stored import lease_ended, with_record


def claim(store: Store, topics: Sequence[str], limit: int, lease: int, request: str | None, now: int | None) -> Claim:
    with store.alone(), store:
        at = store.now(now)
        awake = [topic for topic in map(store.topics.get, topics) if topic is not None and not topic.paused]
        held = store.held_claims.get(request) if request is not None else None
        if held is None:
            held = _lease(store, _choose(store, awake, limit, at), at + lease, request, at)
        messages = (store.messages.get(each) for each in held.ids)
        handed_out = [message.claimed(held.token) for message in messages if message is not None and message.claim is held]
        left = {topic.name: due for topic in awake if (due := topic.first_due(at, store.wall)) is not None}
        for name, due in left.items():
            if due <= at:
                store.work_for(name)
        return Claim(handed_out, at, min(left.values(), default=None))


def _choose(store: Store, topics: list[Topic], limit: int, now: int) -> list[Message]:
    """Each topic's share first, then what is left, in the order of the topics."""
    if not topics:
        return []
    chosen: list[Message] = []
    for share in (max(1, limit // len(topics)), limit):
        for topic in topics:
            for _ in range(min(share, limit - len(chosen))):
                message = _take(store, topic, now)
                if message is None:
                    break
                chosen.append(message)
    return chosen


def _take(store: Store, topic: Topic, now: int) -> Message | None:
    """The next message, counted as leased at once: a topic with a leased message is not dropped when another one expires."""
    while (message := topic.take(now, store.wall)) is not None:
        if not message.expired(now):
            topic.leased[message.id] = message
            return message
        store.end(message)
    return None


def _lease(store: Store, messages: list[Message], until: int, request: str | None, now: int) -> HeldClaim:
    store.last_token = max(store.last_token + 1, now)
    held = HeldClaim(f"{store.last_token:016d}", request, [message.id for message in messages], len(messages), now)
    for message in messages:
        message.stage = LEASED
        message.attempt += 1
        message.claim = held
        message.lease_until = until
    if messages:
        heapq.heappush(store.deadlines, (until, store.new_entry(), held, held.ids))
        if request is not None:
            store.held_claims[request] = held
    return held


def settle(store: Store, ends: Sequence[End], now: int | None) -> list[Ended]:
    with store.alone(), store:
        at_ns = store.now_ns(now)
        floor, ceiling = at_ns // MS, -(-at_ns // MS)
        return [_end(store, end, floor, ceiling) for end in ends]


def _end(store: Store, end: End, floor: int, ceiling: int) -> Ended:
    message = _held(store, end)
    if message is None:
        return "lost"
    end_delivery(store, message)
    if end.verdict == "done":
        store.end(message)
        return "done"
    if end.trace is not None and end.verdict != "release":
        message.traces = with_record(message.traces, end.trace)
    most = end.attempts or message.content.max_attempts
    if end.verdict == "dead" or (end.verdict == "retry" and message.attempt >= most):
        store.bury(message, end.error, floor)
        return "dead"
    if end.began is not None:
        message.began = end.began
    if end.verdict == "release":
        message.attempt -= 1
        due = due_time(end.delay, None, floor, ceiling) if end.delay else message.due
        if end.aside and message.expires is not None and message.expires - 1 > floor:  # else that was its last time
            due = min(due, message.expires - 1)
    else:
        if most != message.content.max_attempts:
            message.content = replace(message.content, max_attempts=most)
        message.last_error = end.error
        due = due_time(end.delay, None, floor, ceiling)
    return "scheduled" if come_back(store, message, due, floor) else "expired"


def _held(store: Store, hold: Hold | End) -> Message | None:
    """The message of a delivery, unless it has ended or was delivered again."""
    message = store.messages.get(hold.id)
    if message is None or message.claim is None or message.claim.token != hold.token or message.content.topic != hold.topic:
        return None
    return message


def end_delivery(store: Store, message: Message) -> None:
    """End a delivery; the caller must give the message a new state."""
    held = message.claim
    assert held is not None
    held.live -= 1
    if not held.live:
        held.ids.clear()  # its deadline is still to come, and would keep them until then
        if held.request is not None:
            store.held_claims.pop(held.request, None)
    message.claim = None
    message.lease_until = None
    del store.topics[message.content.topic].leased[message.id]


def come_back(store: Store, message: Message, due: int, now: int) -> bool:
    """Make a message pending again; False when it would come back after its expiry, and so has ended."""
    if message.expires is not None and max(due, now) >= message.expires:
        store.end(message)
        return False
    message.instant = message.instant and due == message.due  # else it is a delay
    message.due = due
    store.schedule(message, now)
    return True


def extend(store: Store, holds: Sequence[Hold], lease: int, now: int | None) -> list[bool]:
    with store.alone(), store:
        until = store.now(now) + lease
        answers, claims = [], dict[str, tuple[HeldClaim, dict[str, None]]]()  # a hold may be named twice
        for hold in holds:
            message = _held(store, hold)
            answers.append(message is not None)
            if message is not None and message.claim is not None:
                message.lease_until = until
                claims.setdefault(hold.token, (message.claim, {}))[1][message.id] = None
        for held, ids in claims.values():
            heapq.heappush(store.deadlines, (until, store.new_entry(), held, list(ids)))
        return answers


def tend(store: Store, budget: int, ended_by: int | None, now: int | None) -> Tended:
    with store.alone(), store:
        at = store.now(now)
        forget_answers(store, at)
        until = at if ended_by is None else min(at, ended_by)
        returned, buried = _end_leases(store, budget, until, at)
        expired = _expire(store, budget - returned, at)
        dropped = _drop_old(store, budget - returned - expired, at)
        called, next_in = recall(store.gates, budget - returned - expired - dropped, at)
        more = store.results.tidy(at, budget - returned - expired - dropped - len(called)) or bool(
            next_in == 0
            or (store.deadlines and store.deadlines[0][0] <= until)
            or (store.expiries and store.expiries[0][0] <= at)
            or (store.deaths and _past_keeping(store, at))
        )
        return Tended(returned, buried, expired, dropped, more, tuple(called), next_in)


def _end_leases(store: Store, budget: int, until: int, now: int) -> tuple[int, int]:
    returned = buried = 0
    while store.deadlines and store.deadlines[0][0] <= until and returned < budget:
        deadline, entry, claim, ids = heapq.heappop(store.deadlines)
        ended = [message for each in ids if (message := _ended(store, each, claim, until)) is not None]
        room = budget - returned
        if len(ended) > room:
            heapq.heappush(store.deadlines, (deadline, entry, claim, [message.id for message in ended[room:]]))
        for message in ended[:room]:
            returned += 1
            buried += _take_back(store, message, now)
    return returned, buried


def _ended(store: Store, message_id: str, claim: HeldClaim, until: int) -> Message | None:
    """The message, if this claim still holds it and its lease, which may have been extended, has ended."""
    message = store.messages.get(message_id)
    if message is None or message.claim is not claim or message.lease_until is None or message.lease_until > until:
        return None
    return message


def _take_back(store: Store, message: Message, now: int) -> bool:
    """True when that was the last attempt."""
    assert message.claim is not None
    message.traces = with_record(message.traces, lease_ended(message.attempt, message.claim.at))
    if message.began is None:
        message.began = message.claim.at
    end_delivery(store, message)
    if message.attempt < message.content.max_attempts:
        come_back(store, message, message.due, now)
        return False
    store.bury(
        message, f"The lease of attempt {message.attempt}, the last, ended: its worker died, froze or took too long.", now
    )
    return True


def _expire(store: Store, budget: int, now: int) -> int:
    expired = 0
    while store.expiries and store.expiries[0][0] <= now and expired < budget:
        expires, message_id = heapq.heappop(store.expiries)
        message = store.messages.get(message_id)
        if message is not None and message.stage == PENDING and message.expires == expires:
            store.end_pending(message)
            expired += 1
    return expired


def _drop_old(store: Store, budget: int, now: int) -> int:
    dropped = 0
    while store.deaths and dropped < budget and _past_keeping(store, now):
        died, message_id = store.deaths.popleft()
        message = store.messages.get(message_id)
        if message is not None and message.stage == DEAD and message.died == died:
            store.drop_dead(message)
            dropped += 1
    return dropped


def _past_keeping(store: Store, now: int) -> bool:
    return now - store.deaths[0][0] >= store.dead_for

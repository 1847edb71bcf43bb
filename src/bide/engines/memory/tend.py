"""Upkeep, a bounded piece at a time: leases that have ended, messages that have expired, dead letters past keeping."""

import heapq

from bide.engines.base import Tended
from bide.engines.memory.deliver import come_back, end_delivery
from bide.engines.memory.message import DEAD, PENDING, HeldClaim, Message
from bide.engines.memory.put import forget_operations
from bide.engines.memory.store import Store


def tend(store: Store, budget: int, ended_by: int | None, now: int | None) -> Tended:
    with store:
        at = store.now(now)
        forget_operations(store, at)
        until = at if ended_by is None else min(at, ended_by)
        returned, buried = _end_leases(store, budget, until, at)
        expired = _expire(store, budget - returned, at)
        dropped = _drop_old(store, budget - returned - expired, at)
        more = bool(
            (store.deadlines and store.deadlines[0][0] <= until)
            or (store.expiries and store.expiries[0][0] <= at)
            or (store.deaths and _past_keeping(store, at))
        )
        return Tended(returned, buried, expired, dropped, more)


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

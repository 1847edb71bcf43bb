"""Changing what is stored: accepting messages, and the verbs on pending messages, dead letters and topics."""

import functools
import heapq
import itertools
from collections.abc import Sequence

from msgspec.structs import replace

from bide.clock import MS
from bide.core.times import Dues, Planned, check_delay, planned
from bide.engines.base import OPERATION_MS, Condition, Move, NewMessage, Ref, Seen, Swept, operation_of, period_of
from bide.engines.if_exists import bounded, joined, later_of
from bide.engines.memory.store import Store
from bide.engines.memory.topic import DEAD, PENDING, Message
from bide.engines.stored import with_record
from bide.types import CancelResult, RescheduleResult, Sent, State


def put(store: Store, messages: Sequence[NewMessage], now: int | None) -> list[Sent]:
    with store.alone(), store:
        at_ns = store.now_ns(now)
        floor, ceiling = at_ns // MS, -(-at_ns // MS)
        for new in messages:
            check_delay(new.delay, new.at, floor)
        return [
            _create(store, new, planned(new.delay, new.at, floor, ceiling, store.wall), floor)
            if new.key is None and new.operation is None
            else _once(store, new, planned(new.delay, new.at, floor, ceiling, store.wall), floor)
            for new in messages
        ]


def _create(store: Store, new: NewMessage, when: Planned, now: int) -> Sent:
    due = when.due
    message = Message(store.new_id(), new, due, when.since, new.key, store.new_entry(), instant=when.instant)
    store.messages[message.id] = message
    if new.past is not None:
        message.content = replace(new, past=None)
        message.attempt, message.last_error = new.past.attempt, new.past.error
        message.traces = functools.reduce(with_record, new.past.traces, b"")
        if new.past.dead:
            store.bury(message, new.past.error, now)
            return Sent(message.id, new.topic, due, "created")
    store.schedule(message, now)
    if new.expires_in is not None:
        store.expire_in_time(message)
    return Sent(message.id, new.topic, due, "created")


def _once(store: Store, new: NewMessage, when: Planned, now: int) -> Sent:
    """A message that may have been put before: by its operation, or under its key."""
    if new.operation is None:
        return _keyed(store, new, when, now)
    forget_operations(store, now)
    name = operation_of(new)
    if name not in store.operations:
        store.operations[name] = (now, _keyed(store, new, when, now))
    return store.operations[name][1]


def forget_operations(store: Store, now: int) -> None:
    while store.operations:
        oldest = next(iter(store.operations))
        if now - store.operations[oldest][0] < OPERATION_MS:
            return
        del store.operations[oldest]


def forget_periods(store: Store, now: int) -> None:
    while store.period_ends and store.period_ends[0][0] <= now:
        del store.periods[heapq.heappop(store.period_ends)[1]]


def _only(store: Store, new: NewMessage, key: str, when: Planned, now: int) -> Sent:
    """A message that is the only one of its key for a time."""
    forget_periods(store, now)
    name = period_of(new)
    if name in store.periods:
        return store.periods[name][1] if new.if_exists == "keep" else replace(store.periods[name][1], outcome="exists")
    sent = _held(store, new, key, when, now)
    if sent.created and new.unique_for is not None:
        until = now + new.unique_for
        store.periods[name] = until, replace(sent, outcome="duplicate")
        heapq.heappush(store.period_ends, (until, name))
    return sent


def _keyed(store: Store, new: NewMessage, when: Planned, now: int) -> Sent:
    if new.key is None or (new.past is not None and new.past.dead):
        return _create(store, new, when, now)
    if new.unique_for is not None:
        return _only(store, new, new.key, when, now)
    return _held(store, new, new.key, when, now)


def _held(store: Store, new: NewMessage, key: str, when: Planned, now: int) -> Sent:
    holder = store.find(Ref(topic=new.topic, key=key), now)
    if holder is not None:
        own = holder.id == new.within and holder.stage != PENDING
        if new.if_exists in ("keep", "error") and not own:
            return Sent(holder.id, new.topic, holder.due, "kept" if new.if_exists == "keep" else "exists")
        if holder.stage == PENDING and new.if_exists != "merge":
            return _replace(store, holder, new, when, now)
        if holder.stage == PENDING and not holder.attempt and (sent := _merge(holder, new)) is not None:
            return sent
        holder.key = None  # it is running, was delivered, or is full, and goes on without: the new message takes the key over
    if new.max_wait is not None:
        new, when = bounded(new, when, now, None)
    sent = _create(store, new, when, now)
    store.topics[new.topic].keys[key] = store.messages[sent.id]
    return sent


def _merge(holder: Message, new: NewMessage) -> Sent | None:
    body = joined(holder.content.body, new.body)
    if body is None:
        return Sent(holder.id, new.topic, holder.due, "exists")
    if len(body) > new.largest:
        return None
    holder.content = replace(holder.content, body=body)
    return Sent(holder.id, new.topic, holder.due, "merged")


def _replace(store: Store, holder: Message, new: NewMessage, when: Planned, now: int) -> Sent:
    holder.entry = store.new_entry()
    store.topics[new.topic].forget()
    later = new.if_exists == "later"
    if new.max_wait is not None:
        new, when = bounded(new, when, now, (holder.attempt, holder.content.headers))
    holder.plan(later_of(when, holder.planned, now, store.wall) if later else when)
    holder.began = None
    holder.traces = b""
    holder.content = new
    holder.attempt = 0
    holder.last_error = None
    store.schedule(holder, now)
    store.expire_in_time(holder)
    return Sent(holder.id, new.topic, holder.due, "postponed" if later else "replaced")


def cancel(store: Store, refs: Sequence[Ref], seen: Sequence[Seen] | None, now: int | None) -> list[CancelResult]:
    with store.alone(), store:
        at = store.now(now)
        if seen is not None:
            answers = [_end_of(store.find(ref, at), each) for ref, each in zip(refs, seen, strict=True)]
            if any(each is not CancelResult.CANCELLED for each in answers):
                return answers
        return [_cancel(store, store.find(ref, at)) for ref in refs]


def _end_of(message: Message | None, seen: Seen | None = None) -> CancelResult:
    """What cancelling it answers."""
    if message is None:
        return CancelResult.GONE
    if message.stage != PENDING:
        return CancelResult.DEAD if message.stage == DEAD else CancelResult.RUNNING
    same = seen is None or (message.due == seen.due and seen.body in (None, message.content.body))
    return CancelResult.CANCELLED if same else CancelResult.GONE


def _cancel(store: Store, message: Message | None) -> CancelResult:
    answer = _end_of(message)
    if message is not None and answer is CancelResult.CANCELLED:
        store.end_pending(message)
    return answer


def reschedule(store: Store, moves: Sequence[Move], condition: Condition | None, now: int | None) -> list[RescheduleResult]:
    with store.alone(), store:
        at_ns = store.now_ns(now)
        floor, ceiling = at_ns // MS, -(-at_ns // MS)
        for move in moves:
            check_delay(move.delay, move.at, floor)
        if condition is not None:
            holder = store.find(Ref(id=condition.id), floor)
            if _end_of(holder, Seen(condition.due)) is not CancelResult.CANCELLED:
                return [RescheduleResult.GONE] * len(moves)
        return [_reschedule(store, move, floor, ceiling) for move in moves]


def _reschedule(store: Store, move: Move, floor: int, ceiling: int) -> RescheduleResult:
    message = store.find(move.ref, floor)
    if message is None:
        return RescheduleResult.GONE
    if message.stage != PENDING:
        return RescheduleResult.DEAD if message.stage == DEAD else RescheduleResult.RUNNING
    if move.seen not in (None, message.due):
        return RescheduleResult.GONE
    message.entry = store.new_entry()
    store.topics[message.content.topic].forget()
    message.plan(move.planned(message.planned, floor, ceiling, store.wall))
    message.began = None
    store.schedule(message, floor)
    store.expire_in_time(message)
    return RescheduleResult.MOVED


def requeue(store: Store, topic: str, ids: Sequence[str] | None, dues: Dues, now: int | None) -> Swept:
    with store.alone(), store:
        at_ns = store.now_ns(now)
        floor, ceiling = at_ns // MS, -(-at_ns // MS)
        dues.check()
        found = store.topics.get(topic)
        if found is None:
            return Swept(0, False)
        named = found.dead if ids is None else [each for each in dict.fromkeys(ids) if each in found.dead]
        page = [found.dead[each] for each in itertools.islice(named, dues.places)]
        keyless = 0
        for place, message in enumerate(page):
            keyless += _revive(store, message, dues.at(place, floor, ceiling), floor)
        return Swept(len(page), len(named) > (0 if ids is None else dues.places), keyless)


def _revive(store: Store, message: Message, due: int, now: int) -> bool:
    """Whether it has lost its key."""
    topic = store.topics[message.content.topic]
    keyless = message.key is not None and store.find(Ref(topic=topic.name, key=message.key), now) is not None
    if keyless:
        message.key = None
    if message.key is not None:
        topic.keys[message.key] = message
    del topic.dead[message.id]
    message.attempt = 0
    message.last_error = None
    message.plan(Planned(due, due, False))
    message.began = None
    message.entry = store.new_entry()
    store.schedule(message, now)
    store.expire_in_time(message)
    return keyless


def purge(store: Store, topic: str, state: State, ids: Sequence[str] | None, limit: int, now: int | None) -> Swept:
    with store.alone(), store:
        at = store.now(now)
        found = store.topics.get(topic)
        if found is None:
            return Swept(0, False)
        if ids is not None:
            doomed = [found.dead[each] for each in dict.fromkeys(ids) if each in found.dead]
        elif state == "dead":
            found.dead_dropped = 0
            doomed = list(itertools.islice(found.dead.values(), limit + 1))
        else:
            pending = (
                message
                for _, _, message in found.entries()
                if message.state(at, store.wall) == state and not message.expired(at)
            )
            doomed = list(itertools.islice(pending, limit + 1))
        for message in doomed[:limit]:
            store.end_pending(message) if message.stage == PENDING else store.end(message)
        store.drop_if_idle(found)
        return Swept(min(len(doomed), limit), len(doomed) > limit)


def pause(store: Store, name: str, paused: bool) -> None:
    with store.alone(), store:
        topic = store.topic(name)
        topic.paused = paused
        if not paused:
            store.work_for(name)
        store.drop_if_idle(topic)

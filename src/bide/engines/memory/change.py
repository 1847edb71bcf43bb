"""Changing what is stored: accepting messages, and the verbs on pending messages, dead letters and topics."""

import functools
import heapq
import itertools
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from bide.clock import MS
from bide.core.times import Dues, Planned, check_delay, planned
from bide.engines.base import Condition, Move, NewMessage, Ref, Seen, Swept
from bide.engines.keyed import KeyHolder, KeyStore, accept
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
            else accept(_Keys(store), new, planned(new.delay, new.at, floor, ceiling, store.wall), floor, store.wall)
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


class _Keys(KeyStore[Message]):
    def __init__(self, store: Store) -> None:
        self._store = store

    def remembered(self, name: str, now: int) -> Sent | None:
        forget_answers(self._store, now)
        return self._store.answers.get(name)

    def remember(self, name: str, until: int, sent: Sent) -> None:
        self._store.answers[name] = sent
        heapq.heappush(self._store.answer_ends, (until, name))

    def find(self, topic: str, key: str, now: int) -> KeyHolder[Message] | None:
        found = self._store.find(Ref(topic=topic, key=key), now)
        return None if found is None else KeyHolder(found.id, found.due, found.stage == PENDING, found.attempt, found)

    def create(self, new: NewMessage, when: Planned, now: int) -> Sent:
        sent = _create(self._store, new, when, now)
        if new.key is not None and (new.past is None or not new.past.dead):
            self._store.topics[new.topic].keys[new.key] = self._store.messages[sent.id]
        return sent

    def change(self, row: Message, new: NewMessage, when: Planned, now: int) -> None:
        row.entry = self._store.new_entry()
        self._store.topics[new.topic].forget()
        row.plan(when)
        row.began = None
        row.traces = b""
        row.content = new
        row.attempt = 0
        row.last_error = None
        self._store.schedule(row, now)
        self._store.expire_in_time(row)

    def planned(self, row: Message) -> Planned:
        return row.planned

    def headers(self, row: Message) -> Mapping[str, str]:
        return row.content.headers

    def body(self, row: Message) -> bytes:
        return row.content.body

    def set_body(self, row: Message, body: bytes) -> None:
        row.content = replace(row.content, body=body)

    def drop_key(self, row: Message) -> None:
        row.key = None


def forget_answers(store: Store, now: int) -> None:
    while store.answer_ends and store.answer_ends[0][0] <= now:
        store.answers.pop(heapq.heappop(store.answer_ends)[1], None)


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

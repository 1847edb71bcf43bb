"""Accepting messages."""

from collections.abc import Sequence

from bide.clock import MS
from bide.core.when import check_delay, due_time
from bide.engines.base import OPERATION_MS, NewMessage, Ref
from bide.engines.memory.message import PENDING, Message
from bide.engines.memory.store import Store
from bide.types import Sent


def put(store: Store, messages: Sequence[NewMessage], now: int | None) -> list[Sent]:
    with store:
        at_ns = store.now_ns(now)
        floor, ceiling = at_ns // MS, -(-at_ns // MS)
        for new in messages:
            check_delay(new.delay, new.at, floor)
        return [
            _create(store, new, due_time(new.delay, new.at, floor, ceiling), floor)
            if new.key is None and new.operation is None
            else _once(store, new, due_time(new.delay, new.at, floor, ceiling), floor)
            for new in messages
        ]


def _create(store: Store, new: NewMessage, due: int, now: int) -> Sent:
    message = Message(store.new_id(), new, due, due, new.key, store.new_entry())
    store.messages[message.id] = message
    store.schedule(message, now)
    if new.expires_in is not None:
        store.expire_in_time(message)
    return Sent(message.id, new.topic, due, "created")


def _once(store: Store, new: NewMessage, due: int, now: int) -> Sent:
    """A message that may have been put before: by its operation, or under its key."""
    if new.operation is None:
        return _keyed(store, new, due, now)
    forget_operations(store, now)
    if new.operation not in store.operations:
        store.operations[new.operation] = (now, _keyed(store, new, due, now))
    return store.operations[new.operation][1]


def forget_operations(store: Store, now: int) -> None:
    while store.operations:
        oldest = next(iter(store.operations))
        if now - store.operations[oldest][0] < OPERATION_MS:
            return
        del store.operations[oldest]


def _keyed(store: Store, new: NewMessage, due: int, now: int) -> Sent:
    if new.key is None:
        return _create(store, new, due, now)
    holder = store.find(Ref(topic=new.topic, key=new.key), now)
    if holder is not None:
        own = holder.id == new.within and holder.stage != PENDING
        if new.if_exists in ("keep", "error") and not own:
            return Sent(holder.id, new.topic, holder.due, "kept" if new.if_exists == "keep" else "exists")
        if holder.stage == PENDING:
            return _replace(store, holder, new, due, now)
        holder.key = None  # it is running, and goes on without: the new message takes the key over
    sent = _create(store, new, due, now)
    store.topics[new.topic].keys[new.key] = store.messages[sent.id]
    return sent


def _replace(store: Store, holder: Message, new: NewMessage, due: int, now: int) -> Sent:
    holder.entry = store.new_entry()
    store.topics[new.topic].forget()
    later = new.if_exists == "later"
    holder.due = holder.since = max(due, holder.due) if later else due
    holder.content = new
    holder.attempt = 0
    holder.last_error = None
    store.schedule(holder, now)
    store.expire_in_time(holder)
    return Sent(holder.id, new.topic, holder.due, "postponed" if later else "replaced")

"""How an engine in this process accepts a message that was sent before, or whose key another one has: memory and SQLite.

An engine says how to find, make and change a message. What is done when is decided here and in core/key_rules.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from bide.core.key_rules import RULES, SENT_ONCE, Act, Holder, at_most, first_sent, gathered, later_of, marked
from bide.core.times import Planned
from bide.engines.base import OPERATION_MS, NewMessage, operation_of, period_of
from bide.types import Sent

T = TypeVar("T")


class KeyHolder(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The message that has the key."""

    id: str
    due: int
    pending: bool
    attempt: int
    row: T  # as the engine has it

    def holder(self, within: str | None) -> Holder:
        if self.pending:
            return "delivered" if self.attempt else "waiting"
        return "own" if self.id == within else "running"


class KeyStore(ABC, Generic[T]):
    """What an engine does for `accept`, within one step that nothing comes between."""

    @abstractmethod
    def remembered(self, name: str, now: int) -> Sent | None:
        """The answer that was given under this name, if its time is not over."""

    @abstractmethod
    def remember(self, name: str, until: int, sent: Sent) -> None: ...

    @abstractmethod
    def find(self, topic: str, key: str, now: int) -> KeyHolder[T] | None: ...

    @abstractmethod
    def create(self, new: NewMessage, when: Planned, now: int) -> Sent:
        """A new message; it has its key, which is free."""

    @abstractmethod
    def change(self, row: T, new: NewMessage, when: Planned, now: int) -> None:
        """Give a pending message all that the new one has, and its attempts again."""

    @abstractmethod
    def planned(self, row: T) -> Planned: ...

    @abstractmethod
    def headers(self, row: T) -> Mapping[str, str]: ...

    @abstractmethod
    def body(self, row: T) -> bytes: ...

    @abstractmethod
    def set_body(self, row: T, body: bytes) -> None: ...

    @abstractmethod
    def drop_key(self, row: T) -> None:
        """The message goes on without its key."""


def accept(keys: KeyStore[Any], new: NewMessage, when: Planned, now: int, wall: int) -> Sent:
    """Accept a message that has an operation or a key."""
    if new.operation is None:
        return _once_in_its_time(keys, new, when, now, wall)
    name = operation_of(new)
    sent = keys.remembered(name, now)
    if sent is None:
        sent = _once_in_its_time(keys, new, when, now, wall)
        keys.remember(name, now + OPERATION_MS, sent)
    return sent


def _once_in_its_time(keys: KeyStore[Any], new: NewMessage, when: Planned, now: int, wall: int) -> Sent:
    """Of a message that is the only one of its key for a time: as that which was accepted, whatever became of it."""
    if new.key is None or (new.past is not None and new.past.dead):
        return keys.create(new, when, now)
    if new.unique_for is None:
        return _with_key(keys, new, new.key, when, now, wall)
    name = period_of(new)
    sent = keys.remembered(name, now)
    if sent is not None:
        return replace(sent, outcome=SENT_ONCE[new.if_exists])
    sent = _with_key(keys, new, new.key, when, now, wall)
    if sent.created:
        keys.remember(name, now + new.unique_for, replace(sent, outcome="duplicate"))
    return sent


def _with_key(keys: KeyStore[Any], new: NewMessage, key: str, when: Planned, now: int, wall: int) -> Sent:
    held = keys.find(new.topic, key, now)
    if held is not None:
        act: Act = RULES[new.if_exists][held.holder(new.within)]
        if act == "merged":
            act, body = gathered(keys.body(held.row), new.body, new.largest)
            if act == "merged":
                keys.set_body(held.row, body)
        if act in ("replaced", "postponed"):
            if new.max_wait is not None:
                new, when = _bounded(keys, new, new.max_wait, when, now, held)
            if act == "postponed":
                when = later_of(when, keys.planned(held.row), now, wall)
            keys.change(held.row, new, when, now)
            return Sent(held.id, new.topic, when.due, act)
        if act != "successor":
            return Sent(held.id, new.topic, held.due, act)
        keys.drop_key(held.row)
    if new.max_wait is not None:
        new, when = _bounded(keys, new, new.max_wait, when, now, None)
    return keys.create(new, when, now)


def _bounded(
    keys: KeyStore[Any], new: NewMessage, longest: int, when: Planned, now: int, held: KeyHolder[Any] | None
) -> tuple[NewMessage, Planned]:
    """The message as it is to be stored, and when it is due by itself. A delivery ends what was sent before."""
    first = None if held is None or held.attempt else first_sent(keys.headers(held.row))
    if first is None:
        first = now if new.at is not None else when.due - new.delay  # rounded up, as its time is: it is never early
    return replace(new, headers=marked(new.headers, first)), at_most(when, first + longest)

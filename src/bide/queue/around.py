"""What subscribers are told around a send and around a handler, and the context managers that they give for that time."""

import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

from bide.core import options
from bide.engines.base import Claimed, NewMessage
from bide.errors import BadOption
from bide.queue.events import EndedAs, MessagePart, Subscriptions, part_of
from bide.queue.subscription import Kind, Subscription
from bide.types import Sent

OURS = "bide-"  # how the names of headers begin in which bide keeps what it knows of a message
TRACE = "bide-trace"  # that of them which a subscriber writes: see otel/traces.py


def is_own(name: object) -> bool:
    return isinstance(name, str) and name.startswith(OURS) and name != TRACE


class SendingPart(NamedTuple):
    """A message's own part of a send that begins."""

    headers: dict[str, str]  # add yours: they go with the message. What its sender has given stays as it is
    wait: float  # seconds until it is due


class MessagesSending:
    """Messages of a topic are about to be sent.

    sent: once the engine has accepted them, its answers, in their order. None before, and of `later`.
    """

    __slots__ = ("_given", "_new", "_now_ms", "_parts", "count", "sent", "topic")

    def __init__(self, new: Sequence[NewMessage], now_ms: Callable[[], int]) -> None:
        self.topic: str = new[0].topic
        self.count: int = len(new)
        self.sent: Sequence[Sent] | None = None
        self._new = new
        self._now_ms = now_ms
        self._parts: Sequence[SendingPart] | None = None
        self._given: Sequence[frozenset[str]] = ()  # the names of the headers that the senders have given

    @property
    def now(self) -> int:
        """The time, in ms since 1970."""
        return self._now_ms()

    @property
    def messages(self) -> Sequence[SendingPart]:
        """Each message's own part."""
        if self._parts is None:
            self._given = self._given or [frozenset(each.headers) for each in self._new]
            now = self._now_ms()
            self._parts = [SendingPart(dict(each.headers), _wait(each, now)) for each in self._new]
        return self._parts

    def _told(self) -> None:
        """Take what a subscriber has added. Raises BadOption for headers that no message may have: then none of its own.

        One that hands on the headers of a message has those in which bide keeps what it knows of that message, too: they are
        left out.
        """
        if self._parts is None:
            return
        try:
            added = [
                options.headers({name: text for name, text in part.headers.items() if name not in given and not is_own(name)})
                for part, given in zip(self._parts, self._given, strict=True)
            ]
        except BadOption:
            self._parts = None
            raise
        for new, more in zip(self._new, added, strict=True):
            cast("dict[str, str]", new.headers).update(more)  # each message has its own


class MessagesHandling:
    """A handler is about to be called for messages of a topic: for one, or for those of a batch.

    outcomes: once the handler has ended, what is to become of each message, in their order: done, retried, released, dead, or
    lost. None for one that the handler has ended by itself, and while this is not decided.
    log_fields: add yours: the worker's log lines about these messages have them, too. As JSON, a line shows `trace_id` and
    `span_id`.
    """

    __slots__ = ("_given", "count", "log_fields", "outcomes", "task", "topic")

    def __init__(self, topic: str, task: str, given: Sequence[tuple[Claimed, int]]) -> None:
        """`given`: what was claimed, and the engine's time then."""
        self.topic: str = topic
        self.task: str = task  # its name
        self.count: int = len(given)
        self.outcomes: Sequence[EndedAs | None] = [None] * len(given)
        self.log_fields: dict[str, str] = {}
        self._given = given

    @property
    def outcome(self) -> EndedAs | None:
        """What is to become of all of them; None where they differ."""
        [first, *_] = self.outcomes
        return first if all(each == first for each in self.outcomes) else None

    @property
    def messages(self) -> Sequence[MessagePart]:
        """Each message's own part."""
        return [part_of(claimed, now) for claimed, now in self._given]

    def _told(self) -> None:
        """A subscriber can change nothing here."""


class SubscribersAround:
    """Subscribers are told before and after. What they raise harms nobody, and they can't swallow what is raised within."""

    def __init__(self, subscriptions: Subscriptions, event: MessagesSending | MessagesHandling) -> None:
        kind: Kind = "sending" if isinstance(event, MessagesSending) else "handling"
        self._subscriptions = subscriptions
        self._kind = kind
        self._event = event
        self._entered: list[tuple[Subscription, Any]] = []

    def __enter__(self) -> Self:
        kind, event = self._kind, self._event
        try:
            for each in self._subscriptions.told(kind, event.topic):
                if (manager := each._call(kind, _enter, each, kind, event)) is not None:
                    self._entered.append((each, manager))
                each._call(kind, event._told)
        except BaseException:  # Ctrl-C
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            while self._entered:
                each, manager = self._entered.pop()
                each._call(self._kind, type(manager).__exit__, manager, kind, error, trace)
        finally:
            if self._entered:
                self.__exit__(kind, error, trace)

    def leave(self, error: BaseException | None) -> None:
        """As at the end of a block that has raised this, or has not."""
        if error is None:
            self.__exit__(None, None, None)
        else:
            self.__exit__(type(error), error, error.__traceback__)


def _enter(subscription: Subscription, kind: Kind, event: MessagesSending | MessagesHandling) -> Any:
    manager = subscription._asked(kind, event)
    if manager is not None:
        type(manager).__enter__(manager)
    return manager


def _wait(new: NewMessage, now: int) -> float:
    return (new.delay if new.at is None else max(0, new.at - now)) / 1000

"""Events: what has happened to messages. One is of many: what they have in common, and each one's own part when asked."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from bide.engines.base import Claimed, End, NewMessage
from bide.types import Outcome, Sent

EndedAs: TypeAlias = Literal["done", "retried", "released", "dead", "expired", "lost"]


class MessagePart(NamedTuple):
    """A message's own part of an event. What an event does not know of it is None; times are those of the engine's clock."""

    id: str
    key: str | None = None
    headers: Mapping[str, str] = {}
    due: int | None = None
    attempt: int | None = None  # of a delivery
    lateness: float | None = None  # seconds from its due time to this delivery
    seconds: float | None = None  # that its handler has taken; elsewhere, that its receiver has had it
    error: str | None = None  # of a message that has ended as retried or dead


class MessagesSent:
    """The engine has accepted messages of a topic. outcome: what these sends did, as in `Sent`."""

    __slots__ = ("_pairs", "count", "outcome", "topic")

    def __init__(self, topic: str, outcome: Outcome, pairs: Sequence[tuple[NewMessage, Sent]]) -> None:
        self.topic: str = topic
        self.outcome: Outcome = outcome
        self.count: int = len(pairs)
        self._pairs = pairs

    @property
    def messages(self) -> Sequence[MessagePart]:
        """Each message's own part."""
        return [MessagePart(sent.id, new.key, new.headers, sent.due) for new, sent in self._pairs]


class MessagesBegun:
    """Deliveries of messages of a topic have begun: a worker, a receiver or time travel has them."""

    __slots__ = ("_claimed", "_now", "count", "topic")

    def __init__(self, topic: str, claimed: Sequence[Claimed], now: int) -> None:
        self.topic: str = topic
        self.count: int = len(claimed)
        self._claimed = claimed
        self._now = now

    @property
    def lateness(self) -> Sequence[float]:
        """Of each, the seconds from its due time to this delivery."""
        return [(self._now - each.due) / 1000 for each in self._claimed]

    @property
    def messages(self) -> Sequence[MessagePart]:
        """Each message's own part."""
        return [_part(each, self._now) for each in self._claimed]


class MessagesEnded:
    """Deliveries of messages of a topic have ended, and the engine has answered.

    outcome: done, retried (it comes back for another attempt), released (it comes back, and this was no attempt), dead, expired
    (it would have come back too late), or lost (its lease was, so this end has changed nothing).
    """

    __slots__ = ("_ends", "count", "outcome", "topic")

    def __init__(self, topic: str, outcome: EndedAs, ends: Sequence[End]) -> None:
        self.topic: str = topic
        self.outcome: EndedAs = outcome
        self.count: int = len(ends)
        self._ends = ends

    @property
    def lateness(self) -> Sequence[float]:
        """Of each whose delivery has begun since you subscribed, the seconds from its due time to this delivery."""
        return [(each.noted.now - each.noted.claimed.due) / 1000 for each in self._ends if each.noted is not None]

    @property
    def seconds(self) -> Sequence[float]:
        """Of the same, how long the handler took; where there is none, how long its receiver has had it."""
        return [each.noted.seconds for each in self._ends if each.noted is not None]

    @property
    def messages(self) -> Sequence[MessagePart]:
        """Each message's own part."""
        return [
            MessagePart(each.id, error=each.error)
            if (noted := each.noted) is None
            else _part(noted.claimed, noted.now)._replace(seconds=noted.seconds, error=each.error)
            for each in self._ends
        ]


class CallFailed:
    """A call of the engine has raised an error.

    verb, topics, count: what was called, with how many messages. The topics are empty where the call names none.
    """

    __slots__ = ("count", "error", "seconds", "topics", "verb")

    def __init__(self, verb: str, topics: Sequence[str], count: int, seconds: float, error: Exception) -> None:
        self.verb: str = verb
        self.topics: Sequence[str] = topics
        self.count: int = count
        self.seconds: float = seconds  # that the call took
        self.error: Exception = error


Event: TypeAlias = MessagesSent | MessagesBegun | MessagesEnded | CallFailed


def _part(claimed: Claimed, now: int) -> MessagePart:
    late = (now - claimed.due) / 1000
    return MessagePart(claimed.id, claimed.key, claimed.headers, claimed.due, claimed.attempt, late)

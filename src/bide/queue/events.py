"""Events: what has happened to many messages at once, and how subscribers are told of it: harmlessly."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from bide.engines.base import Claimed, End, Ended, NewMessage
from bide.engines.guard.hooks import Call, Hook, Switch
from bide.engines.lots import Ends, Lot, Picked, Stretch
from bide.errors import ConfirmTimeout, OutcomeUnknown
from bide.queue.schedules.records import OWN
from bide.queue.subscription import AROUND, Kind, Subscription
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
    tried: float | None = None  # seconds from its first attempt to this delivery, 0 in the first; Snooze counts as one here


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
        claimed = self._claimed
        dues = claimed.dues() if isinstance(claimed, Picked) else [each.due for each in claimed]
        return [(self._now - due) / 1000 for due in dues]

    @property
    def messages(self) -> Sequence[MessagePart]:
        """Each message's own part."""
        return [part_of(each, self._now) for each in self._claimed]


class MessagesEnded:
    """Deliveries of messages of a topic have ended, and the engine has answered.

    outcome: done, retried (it comes back for another attempt), released (it comes back, and this was no attempt), dead, expired
    (it would have come back too late), or lost (its lease was, so this end has changed nothing).
    """

    __slots__ = ("_ends", "count", "outcome", "topic")

    def __init__(self, topic: str, outcome: EndedAs, ends: Ends) -> None:
        self.topic: str = topic
        self.outcome: EndedAs = outcome
        self.count: int = len(ends)
        self._ends = ends

    @property
    def lateness(self) -> Sequence[float]:
        """Of each whose delivery has begun since you subscribed, the seconds from its due time to this delivery."""
        return self._ends.lateness()

    @property
    def seconds(self) -> Sequence[float]:
        """Of the same, how long the handler took; where there is none, how long its receiver has had it."""
        return self._ends.seconds()

    @property
    def messages(self) -> Sequence[MessagePart]:
        """Each message's own part."""
        return [
            MessagePart(each.id, error=each.error)
            if (noted := each.noted) is None
            else part_of(noted.claimed, noted.now)._replace(seconds=noted.seconds, error=each.error)
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


class EngineCalled:
    """A call of the engine has ended, well or not: `error` is what it has raised, if it has. The rest is as in CallFailed."""

    __slots__ = ("count", "error", "seconds", "topics", "verb")

    def __init__(self, verb: str, topics: Sequence[str], count: int, seconds: float, error: BaseException | None) -> None:
        self.verb: str = verb
        self.topics: Sequence[str] = topics
        self.count: int = count
        self.seconds: float = seconds
        self.error: BaseException | None = error


Event: TypeAlias = MessagesSent | MessagesBegun | MessagesEnded | CallFailed | EngineCalled


def part_of(claimed: Claimed, now: int) -> MessagePart:
    """Of a message that was delivered. `now`: by the engine's clock, when it was handed out."""
    late, tried = now - claimed.due, 0 if claimed.began is None else now - claimed.began
    return MessagePart(claimed.id, claimed.key, claimed.headers, claimed.due, claimed.attempt, late / 1000, tried=tried / 1000)


_BY_VERDICT: Mapping[str, EndedAs] = {"done": "done", "retry": "retried", "release": "released", "dead": "dead"}


class Subscriptions:
    """Of a queue and its twin. Nothing is called and nothing is made while there is none."""

    def __init__(self) -> None:
        self._subscriptions: dict[int, Subscription] = {}
        self._kinds: frozenset[Kind] = frozenset()
        self.heard: bool = False  # whether anybody is told what has happened
        self.sends: bool = False  # whether anybody is told around sends,
        self.handles: bool = False  # and around handlers
        self.switch: Switch = Switch(_Calls(self))

    def add(self, subscriber: object) -> Subscription:
        made = Subscription(subscriber, self.leave)
        self.join(made)
        return made

    def join(self, made: Subscription) -> None:
        self._subscriptions[id(made)] = made
        self._changed()
        if made._closed:  # meanwhile
            self.leave(made)

    def leave(self, made: Subscription) -> None:
        if self._subscriptions.pop(id(made), None) is not None:
            self._changed()

    def told(self, kind: Kind, topic: str) -> Sequence[Subscription]:
        """Who is told of such an event of a topic."""
        return () if topic in OWN else [each for each in list(self._subscriptions.values()) if kind in each._kinds]

    def _changed(self) -> None:
        """No lock is taken: a signal handler may come in between. Whoever is last has seen what the others have done."""
        seen: list[Subscription] | None = None
        while seen != (now := list(self._subscriptions.values())):
            seen = now
            kinds = self._kinds = frozenset(kind for each in now for kind in each._kinds)
            self.heard = not kinds <= AROUND
            self.sends, self.handles = "sending" in kinds, "handling" in kinds
            self.switch.turn(self.heard)

    def sent(self, new: Sequence[NewMessage], answers: Sequence[Sent | None]) -> None:
        """The engine has answered a put; None where it is not known to have accepted a message."""
        if "sent" in self._kinds:
            alike: dict[tuple[str, Outcome], list[tuple[NewMessage, Sent]]] = {}
            for each, answer in zip(new, answers, strict=False):
                if answer is not None:
                    alike.setdefault((each.topic, answer.outcome), []).append((each, answer))
            self._tell("sent", (MessagesSent(*what, pairs) for what, pairs in alike.items()))

    def begun(self, claimed: Sequence[Claimed], now: int) -> None:
        """A claim has brought these."""
        if "begun" in self._kinds:
            self._tell("begun", (MessagesBegun(topic, some, now) for topic, some in _by_topic(claimed).items()))

    def ended(self, ends: Sequence[End], answers: Sequence[Ended | EndedAs | None]) -> None:
        """The engine has answered a settle; None where the answer is not known."""
        if "ended" not in self._kinds:
            return
        if isinstance(ends, Ends) and answers.count("done") == len(ends):  # what a lot has brought, as most is
            self._tell("ended", (MessagesEnded(topic, "done", some) for topic, some in ends.by_topic().items()))
        else:
            alike: dict[tuple[str, EndedAs], list[End]] = {}
            for each, answer in zip(ends, answers, strict=False):
                if answer is not None:
                    became = _BY_VERDICT[each.verdict] if answer == "scheduled" else answer
                    alike.setdefault((each.topic, became), []).append(each)
            self._tell("ended", (MessagesEnded(*what, Ends([Stretch(None, ends=some)])) for what, some in alike.items()))

    def called(self, call: Call) -> None:
        if "called" in self._kinds:
            self._tell("called", iter([EngineCalled(call.verb, call.topics, len(call.asked), call.seconds, call.error)]))

    def failed(self, call: Call, error: Exception) -> None:
        if "failed" in self._kinds:
            self._tell("failed", iter([CallFailed(call.verb, call.topics, len(call.asked), call.seconds, error)]))

    def _tell(self, kind: Kind, events: Iterator[Any]) -> None:
        for event in events:
            if getattr(event, "topic", "") not in OWN:
                for each in list(self._subscriptions.values()):
                    each._tell(kind, event)


class Events:
    """`queue.events`: what has happened to messages, for those who only observe."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    def subscribe(self, subscriber: object) -> Subscription:
        """Call the methods of an object for events from now on: those of `sent`, `begun`, `ended`, `failed`, `called`,
        `sending` and `handling` that it has.

        Each takes one event: MessagesSent, MessagesBegun, MessagesEnded, CallFailed or EngineCalled after the fact, in the
        thread or event loop that has called the engine; MessagesSending before a send and MessagesHandling before the call of a
        handler, in the context of the sender and of the handler. These two may return a context manager, which is left when
        that has ended. A method must be quick, must not wait, and may be called by several threads. If it raises, this is
        logged once, and nothing else changes.

        Raises BadOption for an object with none of these methods, or with an async one.
        """
        return self._subscriptions.add(subscriber)


class _Calls(Hook):
    """Makes events of the engine's answers: all that sends and ends messages, in whatever way, passes there."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    def after(self, call: Call) -> None:
        error = call.error
        self._subscriptions.called(call)
        if isinstance(error, Exception):
            self._subscriptions.failed(call, error)
        if call.verb == "put":
            self._subscriptions.sent(call.asked, call.answer if error is None else _accepted(error))
        elif call.verb == "settle":
            self._subscriptions.ended(call.asked, call.answer if error is None else _done(error, call.asked))


UNHEARD: Final = Subscriptions()
"""Of a receiver that belongs to no queue: nobody listens to it."""


def _by_topic(claimed: Sequence[Claimed]) -> Mapping[str, Sequence[Claimed]]:
    if isinstance(claimed, Lot):
        return {topic: Picked(claimed, some) for topic, some in claimed.by_topic(range(len(claimed))).items()}
    alike: dict[str, list[Claimed]] = {}
    for each in claimed:
        alike.setdefault(each.topic, []).append(each)
    return alike


class _Process:
    """The queues of this process, and what is told of all of them."""

    def __init__(self) -> None:
        self._queues: WeakValueDictionary[int, Subscriptions] = WeakValueDictionary()
        self._of_all: dict[int, Subscription] = {}

    def has(self, queue: Subscriptions) -> Subscriptions:
        """A new queue. No lock is taken: either this or a `subscribe` that comes in between sees the other."""
        self._queues[id(queue)] = queue
        for each in list(self._of_all.values()):
            queue.join(each)
        return queue

    def add(self, subscriber: object) -> Subscription:
        made = Subscription(subscriber, self._end)
        self._of_all[id(made)] = made
        for queue in self._known():
            queue.join(made)
        return made

    def _end(self, made: Subscription) -> None:
        self._of_all.pop(id(made), None)
        for queue in self._known():
            queue.leave(made)

    def _known(self) -> Sequence[Subscriptions]:
        return [queue for reference in self._queues.valuerefs() if (queue := reference()) is not None]


of_process: Final = _Process()


def subscribe(subscriber: object) -> Subscription:
    """Call the methods of an object for the events of all queues of this process: those that exist, and those that come.

    As `queue.events.subscribe`, for what observes a whole program. A forked child has the subscription, too.
    """
    return of_process.add(subscriber)


def _accepted(error: BaseException) -> Sequence[Sent | None]:
    """What is known to be accepted, though the call has failed."""
    return error.answers if isinstance(error, OutcomeUnknown) else ()


def _done(error: BaseException, ends: Sequence[End]) -> Sequence[Ended | EndedAs | None]:
    """What has ended, though the call has failed. What is only not confirmed has ended, too: nobody tells it again."""
    answers: Sequence[Ended | None] = (error.done or error.answers) if isinstance(error, OutcomeUnknown) else ()
    if not isinstance(error, ConfirmTimeout):
        return answers
    answers = answers or [None] * len(ends)
    return [answer or _BY_VERDICT[each.verdict] for each, answer in zip(ends, answers, strict=True)]

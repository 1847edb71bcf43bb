"""The ladder: queues whose messages expire after a fixed time, so that none waits behind a slower one, and how to climb it.

A delay is a number of ticks of 4 ms. Its whole seconds are written in binary digits, and the rest in two digits of base 16.
Each digit that is not 0 is a step: a queue in which a message stays for that long. When it has, the broker dead-letters it to
the exchange that comes after that digit, and its routing key, which names all of its steps, leads to the next one from there.

So the key of 20.2 s to the topic mail is `s4.s2.b.3.a.2.@.mail`: 16 s, 4 s, three times 64 ms, and twice 4 ms.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

TICK = 4  # ms
LEVELS = 28  # binary digits of whole seconds
_COARSE, _FINE = 64, TICK  # ms, of the digits b and a
_BASE = 16
MAX_DELAY = 2**LEVELS * 1000 - TICK  # ms; eight and a half years
_ARRIVED = "@"  # the word before the topic, after all steps
_PARKED = "!"  # begins the word that stands for a receiver

QUORUM: Mapping[str, Any] = {
    "x-queue-type": "quorum",
    "x-queue-leader-locator": "balanced",  # what passes between two queues stands still if both were led by a node that is lost
}


class LadderStep(NamedTuple):
    """A queue of the ladder. `pattern`: how a routing key names it; `digit`: whose exchange its messages leave by."""

    name: str
    pattern: str
    digit: str
    ms: int


def _steps() -> Iterator[LadderStep]:
    for level in reversed(range(LEVELS)):
        yield LadderStep(f"s{level}", f"s{level}", f"s{level}", 1000 * 2**level)
    for digit, unit in (("b", _COARSE), ("a", _FINE)):
        for times in range(1, _BASE):
            yield LadderStep(f"{digit}{times}", f"{digit}.{times}", digit, unit * times)


STEPS = tuple(_steps())
"""From the longest to the shortest, as a message takes them: one of each digit at most."""
DIGITS = tuple(dict.fromkeys(step.digit for step in STEPS))


def ticks(ms: int) -> int:
    """This long in whole ticks, rounded up: a message is never early."""
    return -(-ms // TICK) * TICK


def routing_key(ms: int, topic: str) -> str:
    """The steps of a delay, which is rounded up to whole ticks. One that is too long goes round from the end of the ladder."""
    seconds, rest = divmod(ticks(min(ms, MAX_DELAY)), 1000)
    words = [f"s{level}" for level in reversed(range(LEVELS)) if seconds >> level & 1]
    for digit, times in (("b", rest // _COARSE), ("a", rest % _COARSE // _FINE)):
        if times:
            words += [digit, str(times)]
    return ".".join([*words, _ARRIVED, word(topic)])


def word(topic: str) -> str:
    """A topic as one word of a routing key: the broker takes a dot for the end of a word."""
    return topic.replace(".", ":")


class QueueNames:
    """What the queues and exchanges of a namespace are called."""

    def __init__(self, namespace: str) -> None:
        self.prefix: str = f"{namespace}:"
        self.enter: str = f"{namespace}:enter"  # the exchange that delayed messages are sent to
        self.topics: str = f"{namespace}:topics"  # the exchange that leads to the queues of topics
        self.lost: str = f"{namespace}:lost"  # the exchange and queue of messages that lead nowhere
        self.index: str = f"{namespace}:index"  # the stream that holds the name of each topic, since a broker lists none
        self.made: str = f"{namespace}:made.1"  # the exchange that says that all of the ladder is there; it leads nowhere

    def after(self, digit: str) -> str:
        """The exchange of messages that have left a queue of this digit."""
        return f"{self.prefix}after:{digit}"

    def wait(self, step: LadderStep) -> str:
        return f"{self.prefix}wait:{step.name}"

    def topic(self, topic: str) -> str:
        return f"{self.prefix}topic:{topic}"

    def dead(self, topic: str) -> str:
        return f"{self.prefix}dead:{topic}"

    def parked(self, owner: str) -> str:
        """The queue in which a receiver keeps the messages that it works on for very long."""
        return f"{self.prefix}parked:{owner}"

    def parking(self, owner: str, topic: str | None = None) -> str:
        """The key by which a message gets into that queue, and then to its topic; without a topic, the pattern for all keys."""
        return f"{_PARKED}{owner}.#" if topic is None else f"{_PARKED}{owner}.{_ARRIVED}.{word(topic)}"

    def exchanges(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Name, type and arguments of each exchange. What leads nowhere goes to the lost ones, or it would block its queue."""
        kept = {"alternate-exchange": self.lost}
        yield self.lost, "fanout", {}
        yield self.enter, "topic", {}  # what leads nowhere from here is returned to its sender
        yield self.topics, "topic", kept
        for digit in DIGITS:
            yield self.after(digit), "topic", kept

    def queues(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Name and arguments of each queue of the ladder, and beside it of the lost messages and of the index."""
        yield self.lost, QUORUM
        yield self.index, {"x-queue-type": "stream"}
        for step in STEPS:
            yield self.wait(step), self.arguments(step.ms, self.after(step.digit))

    @staticmethod
    def arguments(ms: int, after: str) -> Mapping[str, Any]:
        """Of a queue whose messages go to the exchange `after` when they have been there for so long, and none is lost."""
        return {
            **QUORUM,
            "x-message-ttl": ms,
            "x-dead-letter-exchange": after,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",  # without it the broker takes the strategy for at-most-once, and does not say so
        }

    def bindings(self) -> Iterator[tuple[str, str, str]]:
        """Exchange, pattern and queue of each way to a step."""
        for exchange, prefix, later in self._places():
            for step in later:
                yield exchange, f"{prefix}{step.pattern}.#", self.wait(step)

    def arrivals(self) -> Iterator[tuple[str, str]]:
        """Exchange and pattern of each way to the topics, once all steps are taken."""
        for exchange, prefix, _ in self._places():
            yield exchange, f"{prefix}{_ARRIVED}.#"

    def to_topic(self, topic: str) -> str:
        """The pattern of the way from the topics to the queue of one."""
        return f"#.{_ARRIVED}.{word(topic)}"

    def _places(self) -> Iterator[tuple[str, str, tuple[LadderStep, ...]]]:
        """Each exchange that a message is at, what its key holds up to there, and the steps that may come next."""
        yield self.enter, "", STEPS
        for place, digit in enumerate(DIGITS):
            later = tuple(step for step in STEPS if DIGITS.index(step.digit) > place)
            done = f"{digit}.*" if digit in ("b", "a") else digit
            yield self.after(digit), f"#.{done}.", later

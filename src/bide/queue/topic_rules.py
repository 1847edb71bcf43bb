"""What holds for all that is sent to a topic, as its task says, or its sender's program."""

from collections.abc import Mapping
from typing import NamedTuple

from bide.core import options
from bide.core.times import life_ms
from bide.types import Duration


class Rule(NamedTuple):
    expires_in: int | None = None  # ms
    most_pending: int | None = None


def rule(expires_in: Duration | None, most_pending: int | None) -> Rule:
    """From what users hand in."""
    most = None if most_pending is None else options.count(most_pending, "most_pending", 2**40)
    return Rule(None if expires_in is None else life_ms(expires_in), most)


class TopicRules:
    """Of a queue and its twin. Of two rules for a topic the stricter one counts."""

    def __init__(self) -> None:
        self._of_tasks: dict[str, Rule] = {}
        self._said: dict[str, Rule] = {}
        self._lives: dict[str, int] = {}
        self._most: dict[str, int] = {}

    @property
    def lives(self) -> Mapping[str, int]:
        """By topic, how long a message lives after it fell due, in milliseconds."""
        return self._lives

    @property
    def most(self) -> Mapping[str, int]:
        """By topic, how many messages may be pending."""
        return self._most

    def of_task(self, topic: str, rule: Rule) -> None:
        """What the topic's task says; a task that is defined anew says it anew."""
        self._of_tasks[topic] = rule
        self._combine(topic)

    def say(self, topic: str, rule: Rule) -> None:
        """What the program says beside that."""
        self._said[topic] = rule
        self._combine(topic)

    def _combine(self, topic: str) -> None:
        rules = [each for each in (self._of_tasks.get(topic), self._said.get(topic)) if each is not None]
        _set(self._lives, topic, [each.expires_in for each in rules])
        _set(self._most, topic, [each.most_pending for each in rules])


def _set(into: dict[str, int], topic: str, values: list[int | None]) -> None:
    least = min((each for each in values if each is not None), default=None)
    if least is None:
        into.pop(topic, None)
    else:
        into[topic] = least


def shorter(one: int | None, other: int | None) -> int | None:
    """Of two lives, if there are any."""
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)

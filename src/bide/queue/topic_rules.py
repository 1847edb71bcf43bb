"""What holds for all that is sent to a topic: its rules, and how much room it has left."""

import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from bide.core import options
from bide.core.times import life_ms
from bide.types import Duration

SHARE = 20  # a count that takes long is made less often: once in so many times its length


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


OFTEN, SELDOM = 1.0, 5.0  # seconds between two counts: from half full on, and before


class TopicRoom:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counted: int | None = None  # that many were pending
        self._begun = 0  # all that was begun to be sent, but for what was not stored
        self._stored = 0  # all of it that is stored
        self._mark = 0  # so much was stored when it was counted
        self._answered = 0.0  # when, by time.monotonic()
        self._next = 0.0  # by time.monotonic(), when to count again
        self._soonest = 0.0  # when to, from half full on

    def is_stale(self) -> bool:
        return self._counted is None or time.monotonic() >= self._next

    def begin(self) -> int:
        """Somebody counts, and others need not: gives what `counted` wants to know."""
        with self._lock:
            self._next = time.monotonic() + OFTEN
            return self._stored

    def counted(self, pending: int, begun: int, seconds: float, most: int) -> None:
        """`begun`: as `begin` said. What was stored by then is counted; what was under way may not be."""
        with self._lock:
            now = time.monotonic()
            if begun < self._mark:  # a slow count: a later one was answered before
                return
            if self._counted is not None and now - seconds < self._answered and pending - begun >= self._counted - self._mark:
                return  # it began before another was answered, and may have seen what was sent since
            self._counted, self._mark, self._answered = pending, begun, now
            self._soonest = now + max(OFTEN, SHARE * seconds)
            self._next = now + max(SELDOM, SHARE * seconds)
            self._fill(most)

    @property
    def pending(self) -> int:
        return (self._counted or 0) + self._begun - self._mark

    def take(self, least: int, count: int, most: int) -> int:
        """Room for so many, or for fewer, but not for less than `least`; 0 if there is none."""
        with self._lock:
            count = min(count, most - self.pending)
            if count < least:
                count = 0
            self._begun += count
            self._fill(most)
            return count

    def _fill(self, most: int) -> None:
        """From half full on it is counted often, however empty it was when it was counted."""
        if 2 * self.pending >= most:
            self._next = min(self._next, self._soonest)

    def done(self, taken: int, stored: int) -> None:
        """Of what it was taken for, so much was stored."""
        with self._lock:
            self._begun -= taken - stored
            self._stored += stored

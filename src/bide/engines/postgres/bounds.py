"""From which time on a claim looks for due messages, so that it does not walk over those that have ended.

While a transaction elsewhere holds an old snapshot, PostgreSQL keeps their entries at the front of the index. A claim that is
slow tells of it. Later ones then begin where nothing was left, and look from the beginning every four seconds: so what
appears further back, such as a late commit, is found as soon as a sweep would find it.
"""

from collections.abc import Sequence
from typing import NamedTuple

BEGINNING = -1
SLOW, SLOW_EACH = 5_000, 100  # µs that a claim takes on the server at most, and for each message, if it isn't slow
SLACK = 1_000  # ms
EVERY = 4.0  # seconds between two looks from the beginning; less than a sweep


class Known(NamedTuple):
    """Of a topic. A change makes a new one, so a claim can see whether it is still what it began with."""

    first: int  # nothing was left that is due before; ms
    looked: float  # when a claim last looked from the beginning
    slow: bool  # that claim


class Look(NamedTuple):
    """One claim."""

    topics: Sequence[str]
    firsts: Sequence[int]
    known: Sequence[Known | None]
    at: float


class Bounds:
    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    def look(self, topics: Sequence[str], at: float) -> Look:
        """Where to begin now."""
        known = [self._known.get(topic) for topic in topics]
        firsts = [each.first if each is not None and each.slow and at < each.looked + EVERY else BEGINNING for each in known]
        return Look(topics, firsts, known, at)

    def learn(self, look: Look, none_before: int, took: int, messages: int) -> None:
        """After it took so many µs for so many messages, nothing is left that was due before that instant."""
        first = none_before - SLACK
        slow = took > SLOW + SLOW_EACH * messages
        for topic, began, known in zip(look.topics, look.firsts, look.known, strict=True):
            if self._known.get(topic) is not known:
                continue  # an earlier message was heard of meanwhile
            if began == BEGINNING or known is None:
                self._known[topic] = Known(first, look.at, slow)
            else:
                self._known[topic] = known._replace(first=max(first, known.first))

    def lower(self, topic: str, due: int) -> None:
        """A message is due then that may not have been there before."""
        known = self._known.get(topic)
        if known is not None and due < known.first:
            self._known[topic] = known._replace(first=due)

    def back(self, topic: str) -> None:
        """A message is there again, with the due time that it had; also for a claim that is under way."""
        self._known[topic] = Known(0, 0.0, slow=False) if topic not in self._known else self._known[topic]._replace(first=0)

    def forget(self) -> None:
        """Look from the beginning next."""
        self._known.clear()

    def patience(self, topics: Sequence[str], at: float, most: float) -> float:
        """Seconds after which somebody who sleeps has to look from the beginning."""
        slow = [known.looked + EVERY - at for known in map(self._known.get, topics) if known is not None and known.slow]
        return min(most, max(0.0, min(slow, default=most)))

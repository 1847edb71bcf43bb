"""What an engine remembers from call to call: from which time on claims look, and what happened a moment ago.

While a transaction elsewhere holds an old snapshot, PostgreSQL keeps the entries of ended messages at the front of the index. A
claim that is slow tells of it. Later ones then begin where nothing was left, and look from the beginning every four seconds: so
what appears further back, such as a late commit, is found as soon as a sweep would find it.

A receiver that was told looks at once, and again after each of AGAIN. So what is committed before the last of these is found,
and a client tells of a topic about fifty times a second, however much it sends: commits that notify wait for one another. Only
the end of a call shows whether it was in time, and whether the call that told has succeeded.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

BEGINNING = -1
SLOW, SLOW_EACH = 5_000, 100  # µs that a claim takes on the server at most, and for each message, if it isn't slow
SLACK = 1_000  # ms
EVERY = 4.0  # seconds between two looks from the beginning; less than a sweep
MOMENT = 1.0  # seconds for which it is known; longer than anybody asks for
QUIET = 0.02  # seconds from the beginning of a call that tells, in which others begin that need not tell
IN_TIME = 0.07  # seconds from the same instant, in which they have to end
AGAIN = (0.025, 0.075)  # seconds after a notification at which its receiver looks again


class KnownTopic(NamedTuple):
    """Of a topic. A change makes a new one, so a claim can see whether it is still what it began with."""

    first: int  # nothing was left that is due before; ms
    looked: float  # when a claim last looked from the beginning
    slow: bool  # that claim


class ClaimLook(NamedTuple):
    """One claim."""

    topics: Sequence[str]
    firsts: Sequence[int]
    known: Sequence[KnownTopic | None]
    at: float


class Bounds:
    def __init__(self) -> None:
        self._known: dict[str, KnownTopic] = {}

    def look(self, topics: Sequence[str], at: float) -> ClaimLook:
        """Where to begin now."""
        known = [self._known.get(topic) for topic in topics]
        firsts = [each.first if each is not None and each.slow and at < each.looked + EVERY else BEGINNING for each in known]
        return ClaimLook(topics, firsts, known, at)

    def learn(self, look: ClaimLook, none_before: int, took: int, messages: int) -> None:
        """After it took so many µs for so many messages, nothing is left that was due before that instant."""
        first = none_before - SLACK
        slow = took > SLOW + SLOW_EACH * messages
        for topic, began, known in zip(look.topics, look.firsts, look.known, strict=True):
            if self._known.get(topic) is not known:
                continue  # an earlier message was heard of meanwhile
            if began == BEGINNING or known is None:
                self._known[topic] = KnownTopic(first, look.at, slow)
            else:
                self._known[topic] = known._replace(first=max(first, known.first))

    def lower(self, topic: str, due: int) -> None:
        """A message is due then that may not have been there before."""
        known = self._known.get(topic)
        if known is not None and due < known.first:
            self._known[topic] = known._replace(first=due)

    def back(self, topic: str) -> None:
        """A message is there again, with the due time that it had; also for a claim that is under way."""
        self._known[topic] = (
            KnownTopic(0, 0.0, slow=False) if topic not in self._known else self._known[topic]._replace(first=0)
        )

    def forget(self) -> None:
        """Look from the beginning next."""
        self._known.clear()

    def patience(self, topics: Sequence[str], at: float, most: float) -> float:
        """Seconds after which somebody who sleeps has to look from the beginning."""
        slow = [known.looked + EVERY - at for known in map(self._known.get, topics) if known is not None and known.slow]
        return min(most, max(0.0, min(slow, default=most)))


class Recent:
    def __init__(self) -> None:
        self._young: dict[str, float] = {}
        self._old: dict[str, float] = {}  # before `_since`
        self._since = 0.0

    def at(self, name: str) -> float:
        """When it was; 0 if that is longer ago."""
        return self._young.get(name) or self._old.get(name, 0.0)

    def note(self, names: Iterable[str], now: float) -> None:
        if now >= self._since + MOMENT:
            self._old, self._young, self._since = self._young, {}, now
        self._young.update(dict.fromkeys(names, now))


class Notices:
    """Of one kind of call. Times are of time.monotonic."""

    def __init__(self) -> None:
        self._begun: Recent = Recent()
        self._done: Recent = Recent()  # by when it began

    def quiet(self, topics: Collection[str], now: float) -> list[str]:
        """Those of the topics of which a call that begins now need not tell. It tells of the others."""
        quiet = [topic for topic in topics if now < self._begun.at(topic) + QUIET]
        self._begun.note(set(topics).difference(quiet), now)
        return quiet

    def told(self, topics: Collection[str], began: float) -> None:
        """A call that began then has told of them, and is committed."""
        self._done.note(topics, began)

    def untold(self, quiet: Collection[str], now: float) -> list[str]:
        """Those of a call's quiet topics of which others have to be told, now that it has ended."""
        late = [topic for topic in quiet if now > self._done.at(topic) + IN_TIME]
        self._begun.note(late, now)
        return late


def look_again(heard: float, looked: float) -> float | None:
    """When to look after a notification, if one has looked since: at a time that is later than that."""
    return next((heard + after for after in AGAIN if looked < heard + after), None)

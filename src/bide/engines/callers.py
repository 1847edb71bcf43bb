"""The callers of an engine in this process: which sleep on which topics, and which of their connections are in use."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from bide.errors import Unsupported
from bide.wakeable import Wakeable

ONE_CALL = (
    "connection= is in the middle of another call, and a transaction takes one at a time: await each call before you make "
    "the next one, or use send_many. Nothing was changed by this call."
)
in_use: dict[int, object] = {}  # by the identity of the driver's connection


def take(number: int, mine: object) -> None:
    if in_use.setdefault(number, mine) is not mine:
        raise Unsupported(ONE_CALL)


Topic = TypeVar("Topic", bound=Hashable)


class Sleeper(Generic[Topic]):
    """A caller that sleeps. `woken_by` is the topic for which it was woken."""

    def __init__(self, signal: Wakeable, topics: Sequence[Topic]) -> None:
        self.signal = signal
        self.topics = topics
        self.woken_by: Topic | None = None


class Sleepers(Generic[Topic]):
    def __init__(self) -> None:
        self._asleep: dict[Topic, dict[Sleeper[Topic], None]] = {}
        self._kept: set[Topic] = set()  # topics whose wake-up found no sleeper

    def add(self, sleeper: Sleeper[Topic]) -> bool:
        """Register a sleeper; False when there is a wake-up already, which is then used up."""
        kept = self._kept.intersection(sleeper.topics)
        if kept:
            self._kept -= kept
            return False
        for topic in sleeper.topics:
            self._asleep.setdefault(topic, {})[sleeper] = None
        return True

    def remove(self, sleeper: Sleeper[Topic]) -> None:
        for topic in sleeper.topics:
            others = self._asleep.get(topic, {})
            others.pop(sleeper, None)
            if not others:
                self._asleep.pop(topic, None)

    def wake(self, topics: Iterable[Topic]) -> None:
        """Wake the sleeper of each topic that has slept longest; if there is none, keep the wake-up for the next."""
        for topic in topics:
            sleeper = next(iter(self._asleep.get(topic, ())), None)
            if sleeper is None:
                self._kept.add(topic)
            else:
                self.remove(sleeper)
                sleeper.woken_by = topic
                sleeper.signal.set()

    def has(self, topic: Topic) -> bool:
        """Whether somebody sleeps on it."""
        return topic in self._asleep

    def topics(self) -> list[Topic]:
        """Those that somebody sleeps on."""
        return list(self._asleep)

    def wake_all(self) -> None:
        for sleeper in {each for others in self._asleep.values() for each in others}:
            sleeper.signal.set()

    def forget(self, topic: Topic) -> None:
        self._kept.discard(topic)

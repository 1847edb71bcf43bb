"""Who sleeps on which topics, and whom to wake. Used under the store's lock."""

from collections.abc import Iterable, Sequence

from bide.signals import Raisable


class Sleeper:
    """One caller asleep. `woken_by` is the topic whose wake-up it was given."""

    def __init__(self, signal: Raisable, topics: Sequence[str]) -> None:
        self.signal = signal
        self.topics = topics
        self.woken_by: str | None = None


class Sleepers:
    def __init__(self) -> None:
        self._asleep: dict[str, dict[Sleeper, None]] = {}
        self._kept: set[str] = set()  # topics whose wake-up found nobody asleep

    def add(self, sleeper: Sleeper) -> bool:
        """Lie down; False when there is a wake-up already, which is then used up."""
        kept = self._kept.intersection(sleeper.topics)
        if kept:
            self._kept -= kept
            return False
        for topic in sleeper.topics:
            self._asleep.setdefault(topic, {})[sleeper] = None
        return True

    def remove(self, sleeper: Sleeper) -> None:
        for topic in sleeper.topics:
            others = self._asleep.get(topic, {})
            others.pop(sleeper, None)
            if not others:
                self._asleep.pop(topic, None)

    def wake(self, topics: Iterable[str]) -> None:
        """Wake one sleeper a topic, the one that has slept longest; with none, keep the wake-up for the next."""
        for topic in topics:
            sleeper = next(iter(self._asleep.get(topic, ())), None)
            if sleeper is None:
                self._kept.add(topic)
            else:
                self.remove(sleeper)
                sleeper.woken_by = topic
                sleeper.signal.set()

    def wake_all(self) -> None:
        for sleeper in {each for others in self._asleep.values() for each in others}:
            sleeper.signal.set()

    def forget(self, topic: str) -> None:
        self._kept.discard(topic)

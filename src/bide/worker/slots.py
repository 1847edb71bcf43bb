"""Who may run: how many messages of which topics a worker may take now. Pure counting; it asks nobody and waits for nothing."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from bide.core import options
from bide.errors import BadOption


class Ask(NamedTuple):
    """What to claim next: up to so many messages, of any of these topics."""

    topics: Sequence[str]
    limit: int


class Slots:
    """A handler holds a place while it runs; a sync one holds a thread too.

    `slots` are kept for their topics, with threads if they are sync; the rest is shared. Of what is shared, one topic
    alone may hold no more than nine tenths while there are others, so that a hundred slow messages of one never shut
    the door on the rest.
    """

    def __init__(
        self, topics: Collection[str], in_threads: Collection[str], *, concurrency: int, threads: int, slots: Mapping[str, int]
    ) -> None:
        self._kept = _checked(slots, topics, concurrency)
        _check_threads(self._kept, in_threads, threads)
        self._in_threads = frozenset(in_threads)
        self._held: dict[str, int] = dict.fromkeys(topics, 0)
        self._free = concurrency - sum(self._kept.values())  # of what is shared
        self._free_threads = threads - sum(self._kept.get(topic, 0) for topic in in_threads)
        most, most_in_threads = _most_of_one(self._free, len(topics)), _most_of_one(self._free_threads, len(in_threads))
        self._most = {topic: min(most, most_in_threads) if topic in self._in_threads else most for topic in topics}
        alike = ([each for each in topics if each not in in_threads], list(in_threads))
        self.groups: list[tuple[str, ...]] = [*((each,) for each in self._kept), *(tuple(each) for each in alike if each)]
        self.topics: int = len(self._held)
        self._turn = 0
        self.without_threads: bool = False  # the machine has none to give now: nothing is taken for sync tasks

    def in_turn(self) -> list[int]:
        """The groups, those with slots first: of the others each is first in its turn, or it would get what is left over."""
        self._turn += 1
        kept, shared = range(len(self._kept)), range(len(self._kept), len(self.groups))
        first = self._turn % max(1, len(shared))
        return [*kept, *shared[first:], *shared[:first]]

    def ask(self, group: int) -> Ask:
        """What may be claimed for a group: a topic with slots of its own, or all that run alike. A limit of 0: nothing."""
        topics = self.groups[group]
        in_threads = topics[0] in self._in_threads
        if in_threads and self.without_threads:
            return Ask(topics, 0)
        if group < len(self._kept):
            return Ask(topics, max(0, self._kept[topics[0]] - self._held[topics[0]]))
        limit = min(self._free, self._free_threads) if in_threads else self._free
        asked: list[str] = []
        for topic in topics:
            room = self._most[topic] - max(0, self._held[topic] - self._kept.get(topic, 0))
            if room > 0:
                asked.append(topic)
                limit = min(limit, room)
        return Ask(tuple(asked), max(0, limit) if asked else 0)

    def take(self, topic: str, count: int = 1) -> None:
        """A topic takes its own slots first, and then of those that are shared."""
        held, kept = self._held[topic], self._kept.get(topic, 0)
        self._held[topic] = held + count
        shared = max(0, held + count - kept) - max(0, held - kept)
        self._free -= shared
        if topic in self._in_threads:
            self._free_threads -= shared

    def give_back(self, topic: str) -> None:
        if self._held[topic] > self._kept.get(topic, 0):
            self._free += 1
            self._free_threads += topic in self._in_threads
        self._held[topic] -= 1


def _most_of_one(places: int, topics: int) -> int:
    return places if topics < 2 or places < 2 else places * 9 // 10


def _checked(slots: Mapping[str, int], topics: Collection[str], concurrency: int) -> dict[str, int]:
    kept = {topic: options.count(number, f"slots[{topic!r}]", 10_000) for topic, number in slots.items()}
    for topic in kept:
        if topic not in topics:
            raise BadOption(
                f"slots keeps places for {topic!a}, which this worker does not serve: name a topic that has a task."
            )
    if sum(kept.values()) > concurrency - (len(topics) > len(kept)):
        raise BadOption(
            f"slots keeps {sum(kept.values())} places and there are {concurrency}: leave at least one for the other topics."
        )
    return kept


def _check_threads(slots: Mapping[str, int], in_threads: Collection[str], threads: int) -> None:
    kept = sum(slots.get(topic, 0) for topic in in_threads)
    if kept > threads - any(topic not in slots for topic in in_threads):
        raise BadOption(
            f"slots keeps {kept} places for sync tasks and there are {threads} threads: keep fewer, or give more threads=, "
            "at least one for the other sync tasks."
        )

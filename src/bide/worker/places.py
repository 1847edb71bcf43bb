"""Who may run: how many messages of which topics a worker may take now. Pure counting; it asks nobody and waits for nothing."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from bide.core import options
from bide.errors import BadOption


class Ask(NamedTuple):
    """What to claim next: up to so many messages, of any of these topics."""

    topics: Sequence[str]
    limit: int


class Places:
    """A handler holds a place while it runs; a sync one holds a thread too.

    `slots` are kept for their topics, the rest is shared. Of what is shared, one topic alone may hold no more than nine
    tenths while there are others, so that a hundred slow messages of one never shut the door on the rest.
    """

    def __init__(
        self, topics: Collection[str], in_threads: Collection[str], *, concurrency: int, threads: int, slots: Mapping[str, int]
    ) -> None:
        self._slots = _checked(slots, topics, concurrency)
        self._held: dict[str, int] = dict.fromkeys(topics, 0)
        self._shared = concurrency - sum(self._slots.values())
        self._threads = threads
        self._in_threads = frozenset(in_threads)
        self._most = _most_of_one(self._shared, len(topics))
        self._most_threads = _most_of_one(threads, len(in_threads))
        groups = ([each for each in topics if each not in in_threads], list(in_threads))
        self.lines: list[tuple[str, ...]] = [*((each,) for each in self._slots), *(tuple(each) for each in groups if each)]
        self._kept_lines = len(self._slots)

    def ask(self, line: int) -> Ask:
        """What may be claimed for a line: a topic with slots of its own, or all that run alike. A limit of 0: nothing."""
        topics = self.lines[line]
        threads = self._threads - sum(self._held[topic] for topic in self._in_threads)
        free_threads = threads if topics[0] in self._in_threads else self._shared + self._threads
        if line < self._kept_lines:
            return Ask(topics, max(0, min(self._slots[topics[0]] - self._held[topics[0]], free_threads)))
        rooms = {topic: room for topic in topics if (room := self._room(topic)) > 0}
        free = self._shared - sum(map(self._shared_by, self._held))
        return Ask(tuple(rooms), max(0, min(free, free_threads, *rooms.values())) if rooms else 0)

    def take(self, topic: str) -> None:
        self._held[topic] += 1

    def give_back(self, topic: str) -> None:
        self._held[topic] -= 1

    def _shared_by(self, topic: str) -> int:
        """Of the places that are shared, those that a topic holds."""
        return max(0, self._held[topic] - self._slots.get(topic, 0))

    def _room(self, topic: str) -> int:
        """How many more of them it may hold."""
        room = self._most - self._shared_by(topic)
        return min(room, self._most_threads - self._held[topic]) if topic in self._in_threads else room


def _most_of_one(places: int, topics: int) -> int:
    return places if topics < 2 or places < 2 else places - max(1, places // 10)


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

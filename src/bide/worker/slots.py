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
        self._slots = _checked(slots, topics, concurrency)
        _check_threads(self._slots, in_threads, threads)
        self._held: dict[str, int] = dict.fromkeys(topics, 0)
        self._shared = concurrency - sum(self._slots.values())
        self._shared_threads = threads - sum(self._slots.get(topic, 0) for topic in in_threads)
        self._in_threads = frozenset(in_threads)
        self._most = _most_of_one(self._shared, len(topics))
        self._most_threads = _most_of_one(self._shared_threads, len(in_threads))
        groups = ([each for each in topics if each not in in_threads], list(in_threads))
        self.lines: list[tuple[str, ...]] = [*((each,) for each in self._slots), *(tuple(each) for each in groups if each)]
        self._kept_lines = len(self._slots)
        self._turn = 0
        self.without_threads: bool = False  # the machine has none to give now: nothing is taken for sync tasks

    def in_turn(self) -> list[int]:
        """The lines, those with slots first: of the others each is first in its turn, or it would get what is left over."""
        self._turn += 1
        kept, shared = range(self._kept_lines), range(self._kept_lines, len(self.lines))
        first = self._turn % max(1, len(shared))
        return [*kept, *shared[first:], *shared[:first]]

    def ask(self, line: int) -> Ask:
        """What may be claimed for a line: a topic with slots of its own, or all that run alike. A limit of 0: nothing."""
        topics = self.lines[line]
        if self.without_threads and topics[0] in self._in_threads:
            return Ask(topics, 0)
        if line < self._kept_lines:
            return Ask(topics, max(0, self._slots[topics[0]] - self._held[topics[0]]))
        rooms = {topic: room for topic in topics if (room := self._room(topic)) > 0}
        free = self._shared - sum(map(self._shared_by, self._held))
        if topics[0] in self._in_threads:
            free = min(free, self._shared_threads - sum(map(self._shared_by, self._in_threads)))
        return Ask(tuple(rooms), max(0, min(free, *rooms.values())) if rooms else 0)

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
        return min(room, self._most_threads - self._shared_by(topic)) if topic in self._in_threads else room


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

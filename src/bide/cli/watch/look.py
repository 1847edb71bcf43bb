"""What a look at a queue finds, and how much it may cost the server: a call for the counts, one for what workers tell of
themselves, and a few for what runs.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bide.cli.output import now_ms
from bide.cli.pages import topic_pattern
from bide.core import formats
from bide.types import Info, Stats, WorkerInfo

if TYPE_CHECKING:
    from bide.queue import Queue


READ = 4  # topics in one look whose running messages are read; the others keep what was read before
PAGE = 100  # messages of each
AT_MOST = 0.1  # of the time: how long the server may be busy with looks
OVER = 10.0  # seconds that a rate is taken over


class Running(NamedTuple):
    """What one worker process has of one topic, as far as it was read."""

    worker: str
    topic: str
    messages: int
    oldest: Info  # leased by it for the longest time


class WorkerLook(NamedTuple):
    """One worker process."""

    name: str
    messages: int
    topics: Sequence[str]  # of what it runs; else those that it serves
    oldest: Info | None  # None: nothing of what it runs was read
    told: Sequence[WorkerInfo]  # what it has told of itself; a process may have several workers


class QueueLook(NamedTuple):
    """A queue at one moment."""

    at: int
    topics: Mapping[str, Stats]  # those with most due messages first
    changes: Mapping[str, float]  # messages a second that a topic gains or loses; at first, none is known
    running: Sequence[Running]  # what has run longest first
    told: Sequence[WorkerInfo]  # of the workers that have not ended, and serve one of the topics asked for

    def count(self, state: str) -> int:
        return sum(getattr(counts, state) for counts in self.topics.values())

    @property
    def about(self) -> bool:
        return any(counts.about for counts in self.topics.values())

    @property
    def missing(self) -> Sequence[str]:
        """Servers that did not answer."""
        return sorted({server for counts in self.topics.values() for server in counts.missing})

    @property
    def change(self) -> float | None:
        return sum(self.changes.values()) if self.changes else None

    @property
    def unread(self) -> int:
        """Running messages that no worker is known of."""
        return max(0, self.count("leased") - sum(each.messages for each in self.running))

    def workers(self) -> list[WorkerLook]:
        """First those with messages, what has run longest first."""
        found: dict[str, WorkerLook] = {}
        for each in self.running:
            before = found.get(each.worker, WorkerLook(each.worker, 0, (), each.oldest, ()))
            found[each.worker] = before._replace(messages=before.messages + each.messages, topics=[*before.topics, each.topic])
        for info in self.told:
            before = found.get(info.name, WorkerLook(info.name, sum(info.running.values()), info.topics, None, ()))
            found[info.name] = before._replace(told=[*before.told, info])
        return list(found.values())

    def json(self) -> dict[str, Any]:
        return {
            **formats.instant("at", self.at),
            "topics": [
                {**formats.stats(topic, counts), "change": self.changes.get(topic)} for topic, counts in self.topics.items()
            ],
            "workers": [
                {
                    "worker": each.worker,
                    "topic": each.topic,
                    "messages": each.messages,
                    **formats.instant("since", each.oldest.leased_since),
                }
                for each in self.running
            ],
            "processes": [formats.worker(each) for each in self.told],
        }


class QueueWatch:
    """Looks at some topics again and again, and remembers what it needs to compare."""

    def __init__(self, pattern: str | None) -> None:
        self._pattern = pattern
        self._took = 0.0
        self._totals: deque[tuple[float, Mapping[str, int]]] = deque()
        self._read: dict[str, tuple[float, Sequence[Info]]] = {}  # of each topic with running messages: when, and what

    def look(self, queue: "Queue") -> QueueLook:
        self._took, began = 0.0, time.monotonic()  # a look that fails keeps no server busy
        topics = self._topics(queue)
        running, told = self._running(queue, topics), self._told(queue)
        self._took = time.monotonic() - began
        return QueueLook(now_ms(), topics, self._changes(began, topics), running, told)

    def rest(self, interval: float) -> float:
        """Seconds to wait after a look, so that a server with very many topics is not kept busy."""
        return max(interval - self._took, self._took * (1 / AT_MOST - 1))

    def _topics(self, queue: "Queue") -> Mapping[str, Stats]:
        if self._pattern is not None and "*" not in self._pattern:
            return {self._pattern: queue.stats(self._pattern)}
        wanted = topic_pattern(self._pattern)
        found = [(topic, counts) for topic, counts in queue.stats().topics.items() if wanted.fullmatch(topic)]
        return dict(sorted(found, key=_order))

    def _told(self, queue: "Queue") -> Sequence[WorkerInfo]:
        if not queue.capabilities.keys:
            return ()
        wanted = topic_pattern(self._pattern)
        return [each for each in queue.workers() if not each.stopped and any(map(wanted.fullmatch, each.topics))]

    def _running(self, queue: "Queue", topics: Mapping[str, Stats]) -> Sequence[Running]:
        """Of the topics where something runs, some are read anew, those first that were not for the longest time."""
        some = [topic for topic, counts in topics.items() if counts.leased]
        self._read = {topic: read for topic, read in self._read.items() if topic in some}
        for topic in sorted(some, key=lambda topic: self._read[topic][0] if topic in self._read else 0.0)[:READ]:
            self._read[topic] = time.monotonic(), list(queue.messages(topic, state="leased", limit=PAGE))
        groups: dict[tuple[str, str], list[Info]] = {}
        for topic, (_, messages) in self._read.items():
            for each in messages:
                groups.setdefault((each.worker or "?", topic), []).append(each)
        found = (Running(*names, len(each), min(each, key=_since)) for names, each in groups.items())
        return sorted(found, key=lambda each: (_since(each.oldest), each.worker, each.topic))

    def _changes(self, at: float, topics: Mapping[str, Stats]) -> Mapping[str, float]:
        totals = {topic: _stored(counts) for topic, counts in topics.items()}
        self._totals.append((at, totals))
        while len(self._totals) > 2 and self._totals[1][0] <= at - OVER:
            self._totals.popleft()
        first, before = self._totals[0]
        return {} if first == at else {topic: (totals[topic] - before.get(topic, 0)) / (at - first) for topic in totals}


def _order(named: tuple[str, Stats]) -> tuple[float, float, float, str]:
    topic, counts = named
    return -counts.ready, -counts.leased, counts.next_due or float("inf"), topic


def _since(info: Info) -> float:
    return info.leased_since or float("inf")


def _stored(counts: Stats) -> int:
    return counts.scheduled + counts.ready + counts.leased + counts.dead

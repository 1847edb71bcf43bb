# Generated from ../aio/ahead.py by tools/unasync.py; change that file instead.
"""Knows the next stop, and tells what falls due without a task, each message once and without looking at all of them."""

from collections import deque

from bide.engines.base import MAX_BATCH, Ref, Stored
from bide.engines.sync import Engine
from bide.queue.tasks.definition import Tasks
from bide.queue.travel.handled import Handled
from bide.types import State

MANY = 1_000  # messages of a topic that wait: from here on, that there are as many as before means that they are the same


class Ahead:
    def __init__(self, engine: Engine, tasks: Tasks) -> None:
        self._engine = engine
        self._tasks = tasks
        self._waiting: dict[str, set[str]] = {}  # by topic: the ids of what is ready and has no task
        self._coming: deque[Stored] = deque()  # what falls due next of what has no task
        self._busy: int | None = None  # when something may be to do for a task, or a lease ends
        self._beyond: int | None = None  # from here on nobody has looked what falls due

    def begin(self) -> None:
        """Take what is ready now for known."""
        self.fell_due()

    def fell_due(self) -> list[Handled]:
        """What has become ready since the last look, and has no task, in due order."""
        found: list[Stored] = []
        waiting: dict[str, set[str]] = {}
        for topic, counts in self._engine.stats().topics.items():
            if self._tasks.get(topic) is not None:
                continue
            known = self._waiting.get(topic, set())
            if counts.ready == len(known) >= MANY:
                waiting[topic] = known
                continue
            ready = all_in(self._engine, topic, "ready") if counts.ready else []
            waiting[topic] = {each.id for each in ready}
            found += [each for each in ready if each.id not in known]
        self._waiting = waiting
        return _told(found)

    def look(self) -> None:
        """Find out what falls due next."""
        stats = self._engine.stats()
        stops: list[int] = []
        found: list[Stored] = []
        beyond: list[int] = []
        for topic, counts in stats.topics.items():
            if counts.leased:
                stops += [each.lease_until for each in all_in(self._engine, topic, "leased") if each.lease_until]
            if counts.next_due is None:
                continue
            if self._tasks.get(topic) is not None:
                stops.append(counts.next_due)
            else:
                soon, rest = self._soon(topic)
                found += soon
                beyond += [rest] if rest is not None else []
        self._busy = min(stops, default=None)
        self._beyond = min(beyond, default=None)
        horizon = self._beyond
        self._coming = deque(
            sorted((each for each in found if horizon is None or each.due < horizon), key=lambda each: (each.due, each.id))
        )

    def _soon(self, topic: str) -> tuple[list[Stored], int | None]:
        """What falls due next of a topic, and when the rest begins: messages of one due time are not parted."""
        page = self._engine.scan(topic, "scheduled", MAX_BATCH)
        found = list(page.messages)
        while page.after is not None and found[0].due == found[-1].due:
            page = self._engine.scan(topic, "scheduled", MAX_BATCH, page.after)
            found += page.messages
        if page.after is None:
            return found, None
        return [each for each in found if each.due < found[-1].due], found[-1].due

    @property
    def stop(self) -> int | None:
        """When something falls due next, or a lease ends."""
        first = self._coming[0].due if self._coming else self._beyond
        return min((each for each in (first, self._busy) if each is not None), default=None)

    def quiet(self, now: int) -> bool:
        """Whether nothing has happened by then but that messages without a task have fallen due."""
        return all(each is None or now < each for each in (self._busy, self._beyond))

    def passed(self, now: int) -> list[Handled]:
        """Of these messages those that fell due by then, unless somebody has them or they have ended."""
        due = []
        while self._coming and self._coming[0].due <= now:
            due.append(self._coming.popleft())
        found = []
        for begin in range(0, len(due), MAX_BATCH):
            refs = [Ref(id=each.id) for each in due[begin : begin + MAX_BATCH]]
            found += [each for each in self._engine.get(refs) if each is not None and each.state == "ready"]
        for each in found:
            self._waiting.setdefault(each.topic, set()).add(each.id)
        return _told(found)


def all_in(engine: Engine, topic: str, state: State) -> list[Stored]:
    page = engine.scan(topic, state, MAX_BATCH)
    found = list(page.messages)
    while page.after is not None:
        page = engine.scan(topic, state, MAX_BATCH, page.after)
        found += page.messages
    return found


def _told(found: list[Stored]) -> list[Handled]:
    return [Handled(each.topic, each.id, "ready") for each in sorted(found, key=lambda each: (each.due, each.id))]

"""What has become of the messages of a namespace, as far as the answers of its engines tell."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from bide.core.times import Dues
from bide.engines.base import Claimed, End, Ended, Hold, NewMessage, Tended
from bide.types import Sent


class Entry(msgspec.Struct):
    """A message that has not ended."""

    topic: str
    due: int
    since: int
    life: int | None  # it expires so long after `since`
    state: Literal["waiting", "held", "dead"] = "waiting"
    until: int = 0  # the end of the lease
    token: str = ""
    request: str | None = None
    last: bool = False  # this is the last attempt

    @property
    def expires(self) -> float:
        return float("inf") if self.life is None else self.since + self.life


class Ledger:
    """One for all engines with the same messages. Times are milliseconds, and never go back."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}  # dead ones in the order in which they died
        self._now = 0

    def at(self, now: int | None) -> None:
        self._now = max(self._now, time.time_ns() // 1_000_000 if now is None else now)

    def due(self, topics: Sequence[str]) -> Counter[str]:
        """How many messages of each topic a claim could take."""
        waiting = [each for each in self._all() if each.state == "waiting" and each.topic in topics]
        return Counter(each.topic for each in waiting if each.due <= self._now < each.expires)

    def holds(self, request: str | None) -> bool:
        """Whether a claim of this name has messages, which it gets again."""
        return request is not None and any(each.state == "held" and each.request == request for each in self._all())

    def put(self, messages: Sequence[NewMessage], sent: Sequence[Sent]) -> None:
        for new, told in zip(messages, sent, strict=True):
            self._entries.setdefault(
                told.id, Entry(told.topic, told.due, told.due, new.expires_in)
            )  # it may be claimed already

    def claimed(self, messages: Sequence[Claimed], lease: int, request: str | None) -> None:
        for each in messages:
            entry = self._entries.setdefault(each.id, Entry(each.topic, each.due, each.since, None))
            if entry.state != "held" or entry.token != each.token:  # otherwise it is told once more
                entry.state, entry.token, entry.until = "held", each.token, self._now + lease
                entry.request, entry.last = request, each.attempt >= each.max_attempts

    def settled(self, ends: Sequence[End], answers: Sequence[Ended]) -> None:
        for end, answer in zip(ends, answers, strict=True):
            if answer in ("done", "expired"):
                self._entries.pop(end.id, None)
            elif answer == "dead":
                self._bury(end.id)
            elif answer == "scheduled" and (entry := self._entries.get(end.id)):
                entry.state = "waiting"
                if end.verdict == "retry" or end.delay:
                    entry.due = self._now + end.delay
                if end.aside:
                    entry.due = int(min(entry.due, entry.expires - 1))

    def extended(self, holds: Sequence[Hold], answers: Sequence[bool], lease: int) -> None:
        for hold, kept in zip(holds, answers, strict=True):
            if kept and (entry := self._entries.get(hold.id)):
                entry.until = self._now + lease

    def tended(self, did: Tended, ended_by: int | None) -> None:
        for id in self._ended(ended_by)[: did.returned]:
            if self._entries[id].last and did.buried:
                self._bury(id)
            else:
                self._entries[id].state = "waiting"

    def requeued(self, topic: str, ids: Sequence[str] | None, count: int, dues: Dues) -> None:
        for place, id in enumerate(self._dead(topic, ids)[:count]):
            entry = self._entries[id]
            entry.state = "waiting"
            entry.due = entry.since = dues.at(place, self._now, self._now)

    def purged(self, topic: str, ids: Sequence[str] | None, count: int) -> None:
        """Of dead letters."""
        self._forget(self._dead(topic, ids)[:count])

    def _all(self) -> list[Entry]:
        return list(self._entries.values())

    def _forget(self, ids: Sequence[str]) -> None:
        for id in ids:
            del self._entries[id]

    def _ended(self, ended_by: int | None) -> list[str]:
        """Whose lease has ended: the first first."""
        by = self._now if ended_by is None else min(ended_by, self._now)
        return sorted((id for id, each in self._entries.items() if each.state == "held" and each.until <= by), key=self._until)

    def _until(self, id: str) -> int:
        return self._entries[id].until

    def _dead(self, topic: str, ids: Sequence[str] | None) -> list[str]:
        dead = [id for id, each in self._entries.items() if (each.topic, each.state) == (topic, "dead")]
        return dead if ids is None else [id for id in dict.fromkeys(ids) if id in dead]

    def _bury(self, id: str) -> None:
        if entry := self._entries.pop(id, None):
            entry.state = "dead"
            self._entries[id] = entry

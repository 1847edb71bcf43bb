"""Counts of what is stored: what the scripts are told, and what they answer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bide.engines.base import Window, total
from bide.engines.redis.protocol import Arg
from bide.types import Stats

TOPICS = 50  # that one script is asked to count at most


class Counting:
    """Counts of topics, which may take several scripts. All of them count at the time of the first."""

    def __init__(self, topics: Iterable[str], window: Window | None) -> None:
        self._left: list[str] = list(topics)
        self._window: Sequence[int] = (window.start, window.end, window.parts) if window else (0, 0, 0)
        self._at: int | None = None
        self._mark: bytes = b""
        self.found: dict[str, Stats] = {}

    def args(self) -> list[Arg] | None:
        """What to ask next; None when all is counted."""
        if not self._left:
            return None
        return ["" if self._at is None else self._at, *self._window, self._mark, *self._left[:TOPICS]]

    def hear(self, reply: Sequence[Any]) -> None:
        now, counted, self._mark = reply
        self._at = int(now) if self._at is None else self._at
        for told in counted:
            topic = self._left.pop(0)
            if told:
                self.found[topic] = _stats(self._at, told)


def _stats(now: int, told: Sequence[Any]) -> Stats:
    scheduled, ready, leased, dead, dropped, paused, oldest, following, timeline = told
    return Stats(
        scheduled=scheduled,
        ready=ready,
        leased=leased,
        dead=dead,
        dead_dropped=dropped,
        paused=bool(paused),
        oldest_overdue=(now - int(oldest)) / 1000 if oldest else None,
        next_due=int(following) if following else None,
        timeline=timeline,
    )


def together(each: Sequence[Stats], topics: Mapping[str, Stats], parts: int) -> Stats:
    """Counts of several: of all topics, or of one topic's shards."""
    return total(each, topics, [sum(one.timeline[i] for one in each) for i in range(parts)])

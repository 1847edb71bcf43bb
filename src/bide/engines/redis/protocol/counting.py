"""Counts of what is stored: what the scripts are told, and what they answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from bide.engines.base import Window
from bide.engines.redis.protocol import Arg
from bide.types import Stats

TOPICS = 50  # that one script is asked to count at most


class Counting:
    """Counts of topics, which may take several scripts. All of them count at the time of the first."""

    def __init__(self, topics: Sequence[str], window: Window | None) -> None:
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
    scheduled, ready, leased, dead, dropped, paused, oldest, following, line = told
    return Stats(
        scheduled=scheduled,
        ready=ready,
        leased=leased,
        dead=dead,
        dead_dropped=dropped,
        paused=bool(paused),
        oldest_overdue=(now - int(oldest)) / 1000 if oldest else None,
        next_due=int(following) if following else None,
        timeline=line,
    )


def together(each: Sequence[Stats], topics: Mapping[str, Stats], parts: int) -> Stats:
    """Counts of several: of all topics, or of one topic's shards."""
    return Stats(
        scheduled=sum(one.scheduled for one in each),
        ready=sum(one.ready for one in each),
        leased=sum(one.leased for one in each),
        dead=sum(one.dead for one in each),
        dead_dropped=sum(one.dead_dropped for one in each),
        paused=any(one.paused for one in each),
        oldest_overdue=max((one.oldest_overdue for one in each if one.oldest_overdue is not None), default=None),
        next_due=min((one.next_due for one in each if one.next_due is not None), default=None),
        topics=topics,
        timeline=[sum(one.timeline[i] for one in each) for i in range(parts)],
    )

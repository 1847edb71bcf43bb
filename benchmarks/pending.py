"""A queue with many pending messages beside one with few: what single calls take on each."""

import random
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.measure import Figure, figure
from bide import CancelResult, Outgoing, Queue

FEW = 10_000
AT_ONCE = 10_000
DAY = 86_400


class Filled:
    """A queue with so many messages, due in the day that begins in an hour. Every 1,000th has a key."""

    def __init__(self, url: str, pending: int, body: object) -> None:
        self.pending = pending
        self._body = body
        self._random = random.Random(pending)
        self.queue = Queue(url)
        self.ids: list[str] = []
        self.rates: list[float] = []
        for first in range(0, pending, AT_ONCE):
            self._fill(range(first, min(first + AT_ONCE, pending)))

    def _fill(self, places: range) -> None:
        items = [
            Outgoing(self._body, delay=3_600 + self._random.random() * DAY, key=None if place % 1_000 else f"k{place // 1_000}")
            for place in places
        ]
        begin = time.perf_counter()
        sent = self.queue.send_many("t", items)
        self.rates.append(len(places) / (time.perf_counter() - begin))
        self.ids += (each.id for each in self._random.sample(sent, min(len(sent), max(3, AT_ONCE * AT_ONCE // self.pending))))

    def send(self) -> None:
        self.queue.send("t", self._body, delay=3_600 + self._random.random() * DAY)

    def send_now(self) -> None:
        self.queue.send("t", self._body)

    def send_hundred(self) -> None:
        self.queue.send_many("t", [self._body] * 100)

    def receive(self, count: int = 1) -> None:
        assert len(self.queue.receive("t", limit=count)) == count

    def cancel(self) -> None:
        which = self.ids.pop(self._random.randrange(len(self.ids)))
        assert self.queue.cancel(which) in (CancelResult.CANCELLED, CancelResult.GONE)

    def reschedule(self) -> None:
        self.queue.reschedule(self._random.choice(self.ids), delay=3_600 + self._random.random() * DAY)

    def get(self) -> None:
        self.queue.get(topic="t", key=f"k{self._random.randrange(self.pending // 1_000)}")

    def page(self) -> None:
        assert len(list(self.queue.messages("t", limit=100))) == 100

    def stats(self) -> None:
        assert self.queue.stats("t").scheduled > 0


Timed = tuple[str, int, Callable[[Filled], None], Callable[[Filled], None] | None]
"""What, of how many turns it has one, itself, and what goes before."""

WORK: tuple[Timed, ...] = (
    ("send with a delay", 1, Filled.send, None),
    ("receive 1", 1, Filled.receive, Filled.send_now),
    ("receive 100", 3, lambda filled: filled.receive(100), Filled.send_hundred),
    ("cancel by id", 1, Filled.cancel, None),
    ("reschedule by id", 1, Filled.reschedule, None),
    ("get by key", 1, Filled.get, None),
    ("the first 100 of messages()", 3, Filled.page, None),
    ("stats", 10, Filled.stats, None),
)


def compared(filled: Sequence[Filled], turns: int, bars: Mapping[str, str] | None = None) -> list[Figure]:
    """How long each call takes, on each of them by turns."""
    lines: list[Figure] = []
    for name, part, work, before in WORK:
        times: dict[int, list[float]] = {each.pending: [] for each in filled}
        for _ in range(turns // part):
            for each in filled:
                if before is not None:
                    before(each)
                begin = time.perf_counter()
                work(each)
                times[each.pending].append((time.perf_counter() - begin) * 1_000)
        few, many = (figure(f"{name}, of {pending:,}", "ms", values) for pending, values in times.items())
        ratio = figure(f"… {name}, many to few", "times", [many.median / few.median], (bars or {}).get(name, ""))
        lines += [few, many, ratio]
    return lines

"""An SQLite file with many pending messages beside one with 10,000: `python -m benchmarks.sqlite_pending --pending 10000000`.

What is compared takes turns. Due times are spread at random, the hardest case. Ten million messages take about ten minutes,
and 2 GB of the disk that holds the folder.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import HEADER, Figure, figure
from bide import CancelResult, Outgoing, Queue

BODY = {"order": 42, "customer": "c-1234567", "note": "x" * 50}
FEW = 10_000
AT_ONCE = 10_000
DAY = 86_400
TURNS = 200


class Filled:
    """A queue with so many messages, due in the day that begins in an hour. Every 1,000th has a key."""

    def __init__(self, folder: Path, pending: int) -> None:
        self.pending = pending
        self._path = folder / f"{pending}.db"
        self._random = random.Random(pending)
        self.queue = Queue(f"sqlite:///{self._path}")
        self.ids: list[str] = []
        self.rates: list[float] = []
        for first in range(0, pending, AT_ONCE):
            self._fill(range(first, min(first + AT_ONCE, pending)))
        self.keys = pending // 1_000

    def _fill(self, places: range) -> None:
        items = [
            Outgoing(BODY, delay=3_600 + self._random.random() * DAY, key=None if place % 1_000 else f"k{place // 1_000}")
            for place in places
        ]
        begin = time.perf_counter()
        sent = self.queue.send_many("t", items)
        self.rates.append(len(places) / (time.perf_counter() - begin))
        self.ids += (each.id for each in self._random.sample(sent, min(len(sent), max(1, AT_ONCE * AT_ONCE // self.pending))))

    def size(self) -> int:
        return os.path.getsize(self._path) + os.path.getsize(f"{self._path}-wal")

    def send(self) -> None:
        self.queue.send("t", BODY, delay=3_600 + self._random.random() * DAY)

    def send_now(self) -> None:
        self.queue.send("t", BODY)

    def send_hundred(self) -> None:
        self.queue.send_many("t", [BODY] * 100)

    def receive(self, count: int = 1) -> None:
        assert len(self.queue.receive("t", limit=count)) == count

    def cancel(self) -> None:
        which = self.ids.pop(self._random.randrange(len(self.ids)))
        assert self.queue.cancel(which) in (CancelResult.CANCELLED, CancelResult.GONE)

    def reschedule(self) -> None:
        self.queue.reschedule(self._random.choice(self.ids), delay=3_600 + self._random.random() * DAY)

    def get(self) -> None:
        self.queue.get(topic="t", key=f"k{self._random.randrange(self.keys)}")  # None for the few that were cancelled

    def page(self) -> None:
        assert len(list(self.queue.messages("t", limit=100))) == 100

    def stats(self) -> None:
        assert self.queue.stats("t").scheduled > 0


Timed = tuple[str, int, Callable[[Filled], None], Callable[[Filled], None] | None]  # what, turns, itself, what goes before
WORK: tuple[Timed, ...] = (
    ("send with a delay", TURNS, Filled.send, None),
    ("receive 1", TURNS, Filled.receive, Filled.send_now),
    ("receive 100", TURNS // 4, lambda filled: filled.receive(100), Filled.send_hundred),
    ("cancel by id", TURNS, Filled.cancel, None),
    ("reschedule by id", TURNS, Filled.reschedule, None),
    ("get by key", TURNS, Filled.get, None),
    ("the first 100 of messages()", TURNS // 4, Filled.page, None),
    ("stats", 5, Filled.stats, None),
)


def run(pending: int = 100_000, folder: Path | None = None) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bide-bench-", dir=folder) as here:
        filled = [Filled(Path(here), FEW), Filled(Path(here), pending)]
        figures = []
        for each in filled:
            figures += [
                figure(f"fill up to {each.pending:,}", "a second", each.rates),
                figure("… file with its log", "MB", [each.size() / 1e6]),
            ]
        for timed in WORK:
            figures += _compared(filled, *timed)
        for each in filled:
            each.queue.close()
        return figures


def _compared(
    filled: list[Filled], name: str, turns: int, work: Callable[[Filled], None], before: Callable[[Filled], None] | None
) -> list[Figure]:
    times: dict[int, list[float]] = {each.pending: [] for each in filled}
    for _ in range(turns):
        for each in filled:
            if before is not None:
                before(each)
            begin = time.perf_counter()
            work(each)
            times[each.pending].append((time.perf_counter() - begin) * 1_000)
    return [figure(f"{name}, of {pending:,}", "ms", values) for pending, values in times.items()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sqlite_pending", description=__doc__)
    parser.add_argument("--pending", type=int, default=100_000, help="100,000 by default")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; the temporary folder by default")
    options = parser.parse_args()
    print(HEADER)
    print("\n".join(each.line() for each in run(options.pending, options.folder)))


if __name__ == "__main__":
    main()

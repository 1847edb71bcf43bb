"""A PostgreSQL database with many pending messages beside one with 10,000, each claimed from by turns.

`python -m benchmarks.postgres_pending --pending 1000000`. Both are on one server. Due times are spread at random, the hardest
case. Five million messages take about five minutes, and 3 GB of the disk that holds the temporary folder.
"""

import argparse
import random
import time
from collections.abc import Callable

from benchmarks.measure import HEADER, Figure, figure
from benchmarks.postgres_meter import Meter
from benchmarks.postgres_rival import sizes
from benchmarks.redis_costs import body, load
from bide import CancelResult, Outgoing, Queue
from tests.servers.postgres import PostgresServer

BODY = body()
PENDING, FEW = 5_000_000, 10_000
AT_ONCE = 10_000
DAY = 86_400
TURNS = 300


class Filled:
    """A queue with so many messages, due in the day that begins in an hour. Every 1,000th has a key."""

    def __init__(self, meter: Meter, pending: int) -> None:
        self.pending = pending
        url = meter.more()
        self.database: str = url.rpartition("/")[2]
        self._random = random.Random(pending)
        self.queue = Queue(url)
        self.ids: list[str] = []
        self.rates: list[float] = []
        for first in range(0, pending, AT_ONCE):
            self._fill(range(first, min(first + AT_ONCE, pending)))

    def _fill(self, places: range) -> None:
        items = [
            Outgoing(BODY, delay=3_600 + self._random.random() * DAY, key=None if place % 1_000 else f"k{place // 1_000}")
            for place in places
        ]
        begin = time.perf_counter()
        sent = self.queue.send_many("t", items)
        self.rates.append(len(places) / (time.perf_counter() - begin))
        self.ids += (each.id for each in self._random.sample(sent, min(len(sent), max(3, AT_ONCE * AT_ONCE // self.pending))))

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
        self.queue.get(topic="t", key=f"k{self._random.randrange(self.pending // 1_000)}")

    def page(self) -> None:
        assert len(list(self.queue.messages("t", limit=100))) == 100

    def stats(self) -> None:
        assert self.queue.stats("t").scheduled > 0


Timed = tuple[str, int, Callable[[Filled], None], Callable[[Filled], None] | None]  # what, turns, itself, what goes before
WORK: tuple[Timed, ...] = (
    ("send with a delay", TURNS, Filled.send, None),
    ("receive 1", TURNS, Filled.receive, Filled.send_now),
    ("receive 100", TURNS // 3, lambda filled: filled.receive(100), Filled.send_hundred),
    ("cancel by id", TURNS, Filled.cancel, None),
    ("reschedule by id", TURNS, Filled.reschedule, None),
    ("get by key", TURNS, Filled.get, None),
    ("the first 100 of messages()", TURNS // 3, Filled.page, None),
    ("stats", TURNS // 10, Filled.stats, None),
)
BARS = {"receive 1": "<= 1.5", "receive 100": "<= 1.5"}


def run(pending: int = PENDING) -> list[Figure]:
    with PostgresServer(fsync=True) as server:
        meter = Meter(server)
        rivals = sizes(meter)
        filled = [Filled(meter, FEW), Filled(meter, pending)]
        figures = []
        for each in filled:
            table, indexes = meter.sizes(each.database, "bide.message")
            figures += [
                figure(f"fill up to {each.pending:,}", "a second", each.rates),
                figure(f"bide of {each.pending:,}, table a message", "bytes", [table / each.pending]),
                figure(f"bide of {each.pending:,}, indexes a message", "bytes", [indexes / each.pending]),
            ]
        meter.settle_down()
        for timed in WORK:
            figures += _compared(filled, *timed)
        for each in filled:
            each.queue.close()
        return [*rivals, *figures, load()]


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
    lines = [figure(f"{name}, of {pending:,}", "ms", values) for pending, values in times.items()]
    return [*lines, figure(f"… {name}, many to few", "times", [lines[1].median / lines[0].median], BARS.get(name, ""))]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres_pending", description=__doc__)
    parser.add_argument("--pending", type=int, default=PENDING, help=f"{PENDING:,} by default")
    options = parser.parse_args()
    print(HEADER)
    print("\n".join(each.line() for each in run(options.pending)))


if __name__ == "__main__":
    main()

"""A PostgreSQL database with many pending messages beside one with 10,000, each claimed from by turns.

`python -m benchmarks.postgres_pending --pending 1000000`. Both are on one server. Due times are spread at random, the hardest
case. Five million messages take about five minutes, and 3 GB of the disk that holds the temporary folder.
"""

import argparse

from benchmarks.costs import body, load
from benchmarks.measure import HEADER, Figure, figure
from benchmarks.pending import FEW, Filled, compared
from benchmarks.postgres_meter import Meter
from benchmarks.postgres_rival import sizes
from tests.servers.postgres import PostgresServer

PENDING = 5_000_000
TURNS = 300
BARS = {"receive 1": "<= 1.5", "receive 100": "<= 1.5"}


def run(pending: int = PENDING) -> list[Figure]:
    with PostgresServer(fsync=True) as server:
        meter = Meter(server)
        rivals = sizes(meter)
        urls = meter.more(), meter.more()
        filled = [Filled(url, count, body()) for url, count in zip(urls, (FEW, pending), strict=True)]
        figures = []
        for each, url in zip(filled, urls, strict=True):
            table, indexes = meter.sizes(url.rpartition("/")[2], "bide.message")
            figures += [
                figure(f"fill up to {each.pending:,}", "a second", each.rates),
                figure(f"bide of {each.pending:,}, table a message", "bytes", [table / each.pending]),
                figure(f"bide of {each.pending:,}, indexes a message", "bytes", [indexes / each.pending]),
            ]
        meter.settle_down()
        figures += compared(filled, TURNS, BARS)
        for each in filled:
            each.queue.close()
        return [*rivals, *figures, load()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres_pending", description=__doc__)
    parser.add_argument("--pending", type=int, default=PENDING, help=f"{PENDING:,} by default")
    options = parser.parse_args()
    print(HEADER)
    print("\n".join(each.line() for each in run(options.pending)))


if __name__ == "__main__":
    main()

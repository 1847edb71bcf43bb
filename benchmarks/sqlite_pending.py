"""An SQLite file with many pending messages beside one with 10,000: `python -m benchmarks.sqlite_pending --pending 10000000`.

What is compared takes turns. Due times are spread at random, the hardest case. Ten million messages take about ten minutes,
and 2 GB of the disk that holds the folder.
"""

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks.measure import HEADER, Figure, figure
from benchmarks.pending import FEW, Filled, compared

BODY = {"order": 42, "customer": "c-1234567", "note": "x" * 50}
TURNS = 200


def run(pending: int = 100_000, folder: Path | None = None) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bide-bench-", dir=folder) as here:
        paths = [f"{here}/{count}.db" for count in (FEW, pending)]
        filled = [Filled(f"sqlite:///{path}", count, BODY) for path, count in zip(paths, (FEW, pending), strict=True)]
        figures = []
        for each, path in zip(filled, paths, strict=True):
            size = os.path.getsize(path) + os.path.getsize(f"{path}-wal")
            figures += [
                figure(f"fill up to {each.pending:,}", "a second", each.rates),
                figure("… file with its log", "MB", [size / 1e6]),
            ]
        figures += compared(filled, TURNS)
        for each in filled:
            each.queue.close()
        return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sqlite_pending", description=__doc__)
    parser.add_argument("--pending", type=int, default=100_000, help="100,000 by default")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; the temporary folder by default")
    options = parser.parse_args()
    print(HEADER)
    print("\n".join(each.line() for each in run(options.pending, options.folder)))


if __name__ == "__main__":
    main()

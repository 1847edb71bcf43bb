"""What `import bide` costs over a bare interpreter."""

import subprocess
import sys
import time

from benchmarks.measure import RUNS, Figure, figure


def run() -> list[Figure]:
    bare, package, queue = [], [], []
    for _ in range(4 * RUNS):
        empty = _milliseconds("pass")
        bare.append(empty)
        package.append(_milliseconds("import bide") - empty)
        queue.append(_milliseconds("from bide import AsyncQueue") - empty)
    return [
        figure("a bare interpreter", "ms", bare),
        figure("import bide, over that", "ms", package, "<= 80"),
        figure("from bide import AsyncQueue, over that", "ms", queue),
    ]


def _milliseconds(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1000

"""What `import bide` costs over a bare interpreter."""

import subprocess
import sys
import time

from benchmarks.measure import RUNS, Figure, figure


def run() -> list[Figure]:
    bare, more = [], []
    for _ in range(4 * RUNS):
        empty = _milliseconds("pass")
        bare.append(empty)
        more.append(_milliseconds("import bide") - empty)
    return [figure("a bare interpreter", "ms", bare), figure("import bide, over that", "ms", more, "<= 80")]


def _milliseconds(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1000

"""What benchmarks/sqlite_bare.py runs in Huey's own environment: SqliteHuey on a file, each commit synced, no results kept.

`main` reads lines of a count and a delay in seconds (0: due at once), sends so many messages one by
one, and answers each line with what it took, as JSON. Huey's consumer imports this module, for the drain.
"""

import itertools
import json
import os
import sys
import time

from huey import SqliteHuey  # type: ignore[import-untyped, import-not-found, unused-ignore]

MANY = int(os.environ.get("BIDE_BENCH_MANY", "0"))

huey = SqliteHuey("bench", filename=os.environ["BIDE_BENCH_FILE"], fsync=True, results=False)
calls = itertools.count(1)
began: list[float] = []


@huey.task()  # type: ignore[untyped-decorator, unused-ignore]
def handle(order: int, customer: str, note: str) -> None:
    call = next(calls)
    if call == 1:
        begin()
    elif call == MANY:
        tell()  # its message was deleted before this call: there is no end to wait for


def begin() -> None:
    began[:] = time.perf_counter(), time.process_time()


def tell() -> None:
    seconds, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    settings = {name: huey.storage.sql(f"pragma {name}", results=True)[0][0] for name in ("journal_mode", "synchronous")}
    print(json.dumps({"seconds": seconds, "cpu": cpu, "settings": settings}), flush=True)


def send(count: int, delay: float) -> None:
    body = json.loads(os.environ["BIDE_BENCH_BODY"])
    begin()
    for _ in range(count):
        if delay:
            handle.schedule(kwargs=body, delay=delay)
        else:
            handle(**body)
    tell()


def main() -> None:
    for line in sys.stdin:
        count, delay = line.split()
        send(int(count), float(delay))

"""An application of Celery: its worker records what it runs.

fill COUNT FIRST BEGIN LENGTH: so many tasks, due evenly within LENGTH seconds from BEGIN seconds on, numbered from FIRST.
produce …: the same, one after the other.
"""

import os
import sys
import time
from datetime import UTC, datetime
from typing import Any

from celery import Celery  # type: ignore[import-not-found,unused-ignore]

from tests.adopt.programs.recording import record

app: Any = Celery("shop", broker=os.environ["BROKER"])


@app.task(name="order")  # type: ignore[untyped-decorator,unused-ignore]
def order(n: int, due: int) -> None:
    record([(n, due)])


def send(count: int, first: int, begin: int, length: int, *, singly: bool) -> None:
    now = time.time_ns() // 1_000_000
    with app.producer_or_acquire() as producer:
        for number in range(count):
            due = now + begin * 1000 + length * 1000 * number // count
            eta = datetime.fromtimestamp(due / 1000, UTC)
            order.apply_async(args=[first + number, due], eta=eta, producer=producer)
            if singly:
                time.sleep(0.002)


if __name__ == "__main__":
    send(*map(int, sys.argv[2:]), singly=sys.argv[1] == "produce")

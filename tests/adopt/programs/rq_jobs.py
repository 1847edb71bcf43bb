"""An application of RQ: its workers record what they run.

fill COUNT FIRST BEGIN LENGTH: so many jobs, due evenly within LENGTH seconds from BEGIN seconds on, numbered from FIRST.
produce …: the same, one after the other.
"""

import os
import sys
import time
from datetime import UTC, datetime
from typing import Any

import redis
from rq import Queue  # type: ignore[import-not-found,unused-ignore]

from tests.adopt.programs.recording import record


def order(n: int, due: int) -> None:
    record([(n, due)])


def send(count: int, first: int, begin: int, length: int, *, singly: bool) -> None:
    client = redis.Redis.from_url(os.environ["BROKER"])
    queue: Any = Queue("order", connection=client)
    now = int(time.time())  # RQ keeps whole seconds
    pipe = client.pipeline()
    for number in range(count):
        due = now + begin + length * number // count
        job = queue.create_job("tests.adopt.programs.rq_jobs.order", args=(first + number, due * 1000), result_ttl=0)
        queue.schedule_job(job, datetime.fromtimestamp(due, UTC), pipeline=pipe)
        if singly or number % 1_000 == 999:
            pipe.execute()
        if singly:
            time.sleep(0.002)
    pipe.execute()


if __name__ == "__main__":
    send(*map(int, sys.argv[2:]), singly=sys.argv[1] == "produce")

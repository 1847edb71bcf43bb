"""A plain list as a queue: LPUSH, and consumers with BRPOP. fill COUNT FIRST, produce COUNT FIRST, work.

A consumer takes a millisecond for each message, as one that does some work.
"""

import json
import sys
import time
from typing import Any

import redis

from tests.adopt.programs.recording import record

client: Any = redis.Redis.from_url(sys.argv[1], socket_timeout=60)
KEY = "ready"


def send(count: int, first: int, *, singly: bool) -> None:
    for start in range(0, count, 1_000):
        now = int(time.time() * 1000)
        texts = [json.dumps({"n": first + number, "due": now}) for number in range(start, min(count, start + 1_000))]
        if not singly:
            client.lpush(KEY, *texts)
            continue
        for text in texts:
            client.lpush(KEY, text)
            time.sleep(0.002)


def work() -> None:
    while True:
        popped = client.brpop([KEY], timeout=5)
        if popped is not None:
            each = json.loads(popped[1])
            record([(each["n"], each["due"])])
            time.sleep(0.001)


if sys.argv[2] == "work":
    work()
else:
    send(*map(int, sys.argv[3:5]), singly=sys.argv[2] == "produce")

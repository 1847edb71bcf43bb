"""The well-known delay queue of Java: DelayBucket (ids by due time in ms), JobPool (jobs by id), and a ready list a topic.

fill COUNT FIRST BEGIN LENGTH, produce …: jobs as in php_like.py. move: from the bucket to the ready list. work: the consumer.
"""

import json
import sys
import time
from typing import Any

import redis

from tests.adopt.programs.recording import record

client: Any = redis.Redis.from_url(sys.argv[1], socket_timeout=60)
BUCKET, POOL, READY = "DelayBucket", "JobPool", "ReadyQueue:order"


def job(number: int, due: int) -> str:
    return json.dumps(
        {"topic": "order", "id": f"job-{number}", "delayTime": due, "ttrTime": 60_000, "message": {"n": number, "due": due}}
    )


def send(count: int, first: int, begin: int, length: int, *, singly: bool) -> None:
    now = int(time.time() * 1000)
    for start in range(0, count, 1_000):
        pipe = client.pipeline(transaction=False)
        for number in range(start, min(count, start + 1_000)):
            due = now + begin * 1000 + length * 1000 * number // count
            pipe.hset(POOL, f"job-{first + number}", job(first + number, due))
            pipe.zadd(BUCKET, {f"job-{first + number}": due})
            if singly:
                pipe.execute()
                time.sleep(0.002)
        pipe.execute()


def move() -> None:
    while True:
        ids = client.zrangebyscore(BUCKET, 0, int(time.time() * 1000), start=0, num=100)
        for id in ids:
            if client.zrem(BUCKET, id):
                client.rpush(READY, id)
        if not ids:
            time.sleep(0.1)


def work() -> None:
    while True:
        popped = client.blpop([READY], timeout=5)
        text = None if popped is None else client.hget(POOL, popped[1])
        if text is not None:
            each = json.loads(text)
            record([(each["message"]["n"], each["message"]["due"])])
            client.hdel(POOL, each["id"])


if sys.argv[2] in ("move", "work"):
    {"move": move, "work": work}[sys.argv[2]]()
else:
    send(*map(int, sys.argv[3:]), singly=sys.argv[2] == "produce")

"""The loop around a sorted set that many write by hand: ZADD, ZRANGEBYSCORE, ZREM. A crash loses what is in hand."""

import sys
import time
import uuid
from collections.abc import Sequence

import redis
from workload import URL, Item, handle, main, parts

KEY = "delayed"
SLEEP = 0.01  # seconds between looks at an empty queue
ID = 32  # characters, so that two equal messages are two members

client = redis.Redis.from_url(URL)


def send(payload: str, due: float | None) -> None:
    client.zadd(KEY, {uuid.uuid4().hex + payload: due or time.time()})


def send_many(items: Sequence[Item]) -> None:
    for part in parts(items):
        pipeline = client.pipeline(transaction=False)
        for payload, due in part:
            pipeline.zadd(KEY, {uuid.uuid4().hex + payload: due or time.time()})
        pipeline.execute()


def work() -> None:
    while True:
        found = client.zrangebyscore(KEY, 0, time.time(), start=0, num=1)
        if not found:
            time.sleep(SLEEP)
        elif client.zrem(KEY, found[0]):
            handle(found[0].decode()[ID:])


if __name__ == "__main__":
    if sys.argv[1] == "send":
        main(send, send_many)
    else:
        work()

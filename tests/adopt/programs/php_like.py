"""What the PHP blogs do: zAdd('delay_queue', time() + $delay, json_encode($job)), and a loop of zRangeByScore and zRem.

fill COUNT FIRST BEGIN LENGTH: so many jobs, due evenly within LENGTH seconds from BEGIN seconds on, numbered from FIRST.
produce …: the same, one after the other. work: the consumer.
"""

import json
import sys
import time
from typing import Any

import redis

from tests.adopt.programs.recording import record

client: Any = redis.Redis.from_url(sys.argv[1], socket_timeout=60)
KEY = "delay_queue"


def job(number: int, due: int) -> str:
    text = json.dumps({"n": number, "due": due * 1000, "url": "https://shop.example/张"}, separators=(",", ":"))
    return text.replace("/", "\\/")  # as json_encode does


def send(count: int, first: int, begin: int, length: int, *, singly: bool) -> None:
    now = int(time.time())
    for start in range(0, count, 1_000):
        dues = {number: now + begin + length * number // count for number in range(start, min(count, start + 1_000))}
        jobs = {job(first + number, due): due for number, due in dues.items()}
        if not singly:
            client.zadd(KEY, jobs)
            continue
        for text, due in jobs.items():
            client.zadd(KEY, {text: due})
            time.sleep(0.002)


def work() -> None:
    while True:
        found = client.zrangebyscore(KEY, 0, int(time.time()), start=0, num=10)
        for text in found:
            if client.zrem(KEY, text):
                each = json.loads(text)
                record([(each["n"], each["due"])])
        if not found:
            time.sleep(0.2)


if sys.argv[2] == "work":
    work()
else:
    send(*map(int, sys.argv[3:]), singly=sys.argv[2] == "produce")

"""The loop means to look once a second. `usleep` takes microseconds, so it looks without a pause."""

import ctypes
import os
import time
from typing import Any

import redis

db: Any = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True)
usleep = ctypes.CDLL(None).usleep


def work(seconds: float) -> int:
    looks, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        looks += 1
        for job in db.zrangebyscore("delayed", 0, time.time()):
            print(job)
        usleep(1)  # one second?
    return looks


if __name__ == "__main__":
    db.delete("delayed")
    print(f"2 seconds with nothing to do, {work(2)} looks")

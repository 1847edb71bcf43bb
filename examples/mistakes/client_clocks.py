"""Each machine uses its own clock. A worker whose clock is 20 minutes fast runs a job of 15 minutes at once."""

import os
import time
from typing import Any

import redis

db: Any = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True)


class Machine:
    def __init__(self, fast: float) -> None:
        self.fast = fast  # seconds by which its clock is wrong

    def send(self, job: str, delay: float) -> None:
        db.zadd("delayed", {job: time.time() + self.fast + delay})

    def due(self) -> Any:
        return db.zrangebyscore("delayed", 0, time.time() + self.fast)


if __name__ == "__main__":
    db.delete("delayed")
    right, fast = Machine(0), Machine(20 * 60)
    right.send("in 15 minutes", 15 * 60)
    print("the fast worker runs now:", fast.due())
    db.delete("delayed")
    fast.send("now", 0)
    print("the right worker runs now:", right.due())

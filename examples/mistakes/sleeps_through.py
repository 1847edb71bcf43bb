"""The worker sleeps until its next job is due. A job that is sent meanwhile, and due sooner, waits for the end of the sleep."""

import os
import threading
import time
from typing import Any

import redis

db: Any = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True)
asleep = threading.Event()


def work() -> None:
    due = db.zrange("delayed", 0, 0, withscores=True)[0][1]
    asleep.set()
    time.sleep(due - time.time())  # nothing is due before
    print("due when the worker looks again:", db.zrangebyscore("delayed", 0, time.time()))


if __name__ == "__main__":
    db.delete("delayed")
    db.zadd("delayed", {"in 3 s": time.time() + 3})
    worker = threading.Thread(target=work)
    worker.start()
    asleep.wait()
    db.zadd("delayed", {"in 0.1 s": time.time() + 0.1})
    worker.join()

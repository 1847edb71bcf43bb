"""A mover takes due jobs from one key and puts them into another, in two steps. It is killed between the two."""

import os
import signal
import time
from multiprocessing import Process
from typing import Any

import redis

db: Any = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)  # a deploy that does not wait


def move() -> None:
    for job in db.zrangebyscore("delayed", 0, time.time()):
        if db.zrem("delayed", job):
            killed()
            db.lpush("ready", job)


if __name__ == "__main__":
    db.delete("delayed", "ready")
    db.zadd("delayed", {"order 42": time.time()})
    mover = Process(target=move)
    mover.start()
    mover.join()
    print(f"1 job sent, {db.zcard('delayed')} delayed, {db.llen('ready')} ready")

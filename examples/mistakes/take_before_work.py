"""The worker removes the job, then works. The process is killed during the work, and the job is gone."""

import os
import signal
import time
from multiprocessing import Process
from typing import Any

import redis

db: Any = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True)


def cancel_order(job: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)  # out of memory, or a power failure


def work() -> None:
    for job in db.zrangebyscore("delayed", 0, time.time()):
        if db.zrem("delayed", job):  # so that no other worker takes it
            cancel_order(job)


if __name__ == "__main__":
    db.delete("delayed")
    db.zadd("delayed", {"order 42": time.time()})
    worker = Process(target=work)
    worker.start()
    worker.join()
    print(f"1 job sent, 0 done, {db.zcard('delayed')} left")

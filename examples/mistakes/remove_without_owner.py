"""A worker releases a lease that another worker has by now. A third worker begins the same order."""

import os
import time
from typing import Any

import redis

db: Any = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True)


def take(worker: str) -> bool:
    return db.set("lease:42", worker, nx=True, px=100) is not None


def release() -> None:
    db.delete("lease:42")


if __name__ == "__main__":
    db.delete("lease:42")
    first = take("A")
    while db.exists("lease:42"):  # A is frozen until its lease has ended
        time.sleep(0.01)
    second = db.set("lease:42", "B", nx=True, ex=60) is not None  # B begins the order
    release()  # A goes on, and releases what is B's
    third = take("C")
    print(f"A began: {first}, B began: {second}, C began while B was at work: {third}")

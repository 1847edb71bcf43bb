"""Each job waits for the lock of its order, in a thread. Jobs of order 1 take both threads, and order 2 can't run."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis

db: Any = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True)
order_2_ran = threading.Event()
seen: list[bool] = []


def handle(order: int) -> None:
    with db.lock(f"order:{order}", timeout=60):  # waits, in the thread, until the lock is free
        if order == 2:
            order_2_ran.set()
        else:
            seen.append(order_2_ran.wait(1))  # at work, for a second at most


if __name__ == "__main__":
    db.delete("order:1", "order:2")
    with ThreadPoolExecutor(2) as threads:
        for order in (1, 1, 1, 2):
            threads.submit(handle, order)
    print(f"order 2 ran while order 1 was at work: {seen[0]}")

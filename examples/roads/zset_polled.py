"""A sorted set in Redis: the score is the due time, and each consumer looks every second."""

import time
from collections.abc import Callable
from typing import Any

from redis import Redis


def connect(url: str) -> Redis:
    return Redis.from_url(url, decode_responses=True)


def send(server: Redis, body: str, delay: float) -> None:
    server.zadd("orders", {body: time.time() + delay})


def work(server: Any, handle: Callable[[str], None], period: float = 1.0) -> None:
    while True:
        due = server.zrangebyscore("orders", 0, time.time(), start=0, num=100)
        for body in due:
            if server.zrem("orders", body):  # whoever removes it has it
                handle(body)  # a crash here loses the message
        if not due:
            time.sleep(period)

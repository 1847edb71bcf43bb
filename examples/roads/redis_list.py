"""A list in Redis: what is not due goes back to its end."""

import time
from collections.abc import Callable
from typing import Any

from redis import Redis


def connect(url: str) -> Redis:
    return Redis.from_url(url, decode_responses=True, socket_timeout=None)  # BRPOP waits for as long as it takes


def send(server: Redis, body: str, delay: float) -> None:
    server.lpush("orders", f"{time.time() + delay} {body}")


def work(server: Any, handle: Callable[[str], None]) -> None:
    while True:
        [_, entry] = server.brpop(["orders"])
        due, _, body = entry.partition(" ")
        if float(due) > time.time():
            server.lpush("orders", entry)  # a crash before this line loses a message that is not even due
        else:
            handle(body)

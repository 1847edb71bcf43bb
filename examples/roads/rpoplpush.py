"""A sorted set for what waits, a list for what is due, and RPOPLPUSH into a list of what is being done."""

import time
from collections.abc import Callable
from typing import Any

from redis import Redis

MOVE = """
local due = redis.call('zrangebyscore', KEYS[1], 0, ARGV[1], 'limit', 0, 100)
for _, body in ipairs(due) do redis.call('zrem', KEYS[1], body); redis.call('lpush', KEYS[2], body) end
return #due
"""


def connect(url: str) -> Redis:
    return Redis.from_url(url, decode_responses=True)


def send(server: Redis, body: str, delay: float) -> None:
    server.zadd("orders", {body: time.time() + delay})


def work(server: Any, handle: Callable[[str], None], period: float = 0.1) -> None:
    move = server.register_script(MOVE)
    while True:
        moved = move(keys=["orders", "due"], args=[time.time()])
        while body := server.rpoplpush("due", "doing"):
            handle(body)  # after a crash here the message stays in "doing", and nobody looks there
            server.lrem("doing", 1, body)
        if not moved:
            time.sleep(period)

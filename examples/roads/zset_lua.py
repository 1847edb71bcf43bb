"""A sorted set in Redis, with a Lua script that takes what is due in one step."""

import time
from collections.abc import Callable

from redis import Redis

TAKE = """
local due = redis.call('zrangebyscore', KEYS[1], 0, ARGV[1], 'limit', 0, 100)
if #due > 0 then redis.call('zrem', KEYS[1], unpack(due)) end
return due
"""


def connect(url: str) -> Redis:
    return Redis.from_url(url, decode_responses=True)


def send(server: Redis, body: str, delay: float) -> None:
    server.zadd("orders", {body: time.time() + delay})


def work(server: Redis, handle: Callable[[str], None], period: float = 0.1) -> None:
    take = server.register_script(TAKE)
    while True:
        due = take(keys=["orders"], args=[time.time()])
        for body in due:
            handle(body)  # a crash here loses all that was taken and is not handled
        if not due:
            time.sleep(period)

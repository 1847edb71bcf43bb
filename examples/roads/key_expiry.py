"""A key in Redis for each message, and the event that Redis publishes when the key expires."""

from collections.abc import Callable
from typing import Any

from redis import Redis


def connect(url: str) -> Redis:
    server = Redis.from_url(url, decode_responses=True)
    server.config_set("notify-keyspace-events", "Ex")
    return server


def send(server: Redis, body: str, delay: float) -> None:
    server.set(f"timer:{body}", "", px=max(1, round(1000 * delay)))  # the event has the key, and not the value


def work(server: Any, handle: Callable[[str], None]) -> None:
    events = server.pubsub(ignore_subscribe_messages=True)
    events.psubscribe("__keyevent@*__:expired")
    for event in events.listen():  # an event that nobody listens to is gone
        handle(event["data"].removeprefix("timer:"))

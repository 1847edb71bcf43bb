"""The job is a key that expires, and a worker listens for the event. A worker that restarts meanwhile never hears of it."""

import os
import time
from typing import Any

import redis

db: Any = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True)


def listen() -> list[str]:
    events = db.pubsub(ignore_subscribe_messages=True)
    events.psubscribe("__keyevent@*__:expired")
    heard = []
    end = time.monotonic() + 2
    while time.monotonic() < end:
        if event := events.get_message(timeout=0.1):
            heard.append(event["data"])
    return heard


if __name__ == "__main__":
    db.config_set("notify-keyspace-events", "Ex")
    db.set("cancel:order:42", "", px=100)
    while db.exists("cancel:order:42"):  # the worker is being restarted
        time.sleep(0.01)
    print(f"1 key expired, events heard: {listen()}")

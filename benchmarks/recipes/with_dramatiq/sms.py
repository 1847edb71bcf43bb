"""An SMS gateway takes 100 messages a minute: from all workers together, no more are sent."""

import os

import dramatiq
from dramatiq.middleware import CurrentMessage
from dramatiq.rate_limits import WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend

from benchmarks.recipes.shop import REDIS
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

LIMIT, _, UNIT = os.environ.get("SMS_RATE", "100/m").partition("/")
rate = WindowRateLimiter(RedisBackend(url=REDIS), "sms", limit=int(LIMIT), window={"s": 1, "m": 60}[UNIT])


@dramatiq.actor(max_retries=None, min_backoff=1000, max_backoff=10_000, time_limit=10_000, priority=10)
def send_sms(number: str, text: str) -> None:
    with rate.acquire():  # raises if there is no room: the message is tried again, in any order, until there is
        gateway(CurrentMessage.get_current_message().message_id, number, text)


@dramatiq.actor(max_retries=None, min_backoff=1000, max_backoff=2000, time_limit=10_000, max_age=300_000, priority=0)
def send_code(number: str, code: str) -> None:
    with rate.acquire():
        gateway(CurrentMessage.get_current_message().message_id, number, f"Your code is {code}")


def gateway(reference: str, number: str, text: str) -> None:
    print(f"{number}: {text}")


if __name__ == "__main__":
    for each in range(3):
        send_sms.send(str(each), "Everything must go!")
    send_code.send("3", "271828")

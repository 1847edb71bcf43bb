"""A webhook is tried again after 1 s, 5 s, 10 s and 1 min. Then it is a dead letter, and somebody is told."""

import os
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import dramatiq
from dramatiq.middleware import CurrentMessage

from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

LADDER = [int(float(each.removesuffix("s")) * 1000) for each in os.environ.get("LADDER", "1s 5s 10s 60s").split()]


@dramatiq.actor
def give_up(message: dict[str, Any], retries: dict[str, int]) -> None:
    """Dramatiq keeps the dead letter for 7 days; nothing of its own sends it again."""
    reason = message["options"]["traceback"].splitlines()[-1]
    print(f"webhook for order {message['args'][1]} is given up after {retries['retries'] + 1} attempts: {reason}")


@dramatiq.actor(max_retries=len(LADDER), on_retry_exhausted="give_up", time_limit=30_000)
def post(url: str, order: int) -> None:
    message = CurrentMessage.get_current_message()
    request = Request(url, b'{"paid": %d}' % order, {"Idempotency-Key": message.message_id})
    try:
        urlopen(request, timeout=10).close()
    except Exception as error:
        attempt = message.options.get("retries", 0)
        if isinstance(error, HTTPError) and error.code < 500 and error.code != 429:
            message.options["max_retries"] = attempt
        raise dramatiq.Retry(str(error), delay=LADDER[min(attempt, len(LADDER) - 1)]) from error
    print(f"webhook for order {order} is delivered")


if __name__ == "__main__":
    post.send("http://127.0.0.1:9/nobody-listens-here", 1)

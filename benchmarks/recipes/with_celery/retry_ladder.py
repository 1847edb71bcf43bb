"""A webhook is tried again after 1 s, 5 s, 10 s and 1 min. Then it is a dead letter, and somebody is told."""

import json
import os
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from redis import Redis

from benchmarks.recipes.shop import REDIS
from benchmarks.recipes.with_celery.app import app

LADDER = [float(each.removesuffix("s")) for each in os.environ.get("LADDER", "1s 5s 10s 60s").split()]
redis = Redis.from_url(REDIS)


def bury(order: int, url: str, attempts: int, error: Exception) -> None:
    """Celery keeps no dead letters, so they are a list of our own."""
    redis.rpush("dead:webhook.post", json.dumps([url, order]))
    print(f"webhook for order {order} is given up after {attempts} attempts: {error}")


def requeue() -> None:
    while dead := redis.lpop("dead:webhook.post"):
        post.delay(*json.loads(dead))


@app.task(name="webhook.post", bind=True, max_retries=len(LADDER), soft_time_limit=30)
def post(self: Any, url: str, order: int) -> None:
    request = Request(url, b'{"paid": %d}' % order, {"Idempotency-Key": self.request.id})
    try:
        urlopen(request, timeout=10).close()
    except Exception as error:
        attempt = self.request.retries
        for_good = isinstance(error, HTTPError) and error.code < 500 and error.code != 429
        if for_good or attempt == len(LADDER):
            bury(order, url, attempt + 1, error)
            return
        raise self.retry(countdown=LADDER[attempt], exc=error) from error
    print(f"webhook for order {order} is delivered")


if __name__ == "__main__":
    post.delay("http://127.0.0.1:9/nobody-listens-here", 1)

"""One thing at a time is done to an order. What comes meanwhile waits, comes back later, or is refused at once."""

import time
from typing import Any

from redis import Redis
from redis.exceptions import LockError

from benchmarks.recipes.shop import REDIS
from benchmarks.recipes.with_celery.app import app

redis = Redis.from_url(REDIS)


def lock(order: int, wait: float = 0) -> Any:
    """Redis's lock is not renewed, so its time must be longer than the work."""
    return redis.lock(f"order:{order}", timeout=60, blocking_timeout=wait)


@app.task(name="order.ship", bind=True, max_retries=600)
def ship(self: Any, order: int) -> None:
    try:
        with lock(order):
            print(f"order {order} is shipped")
    except LockError as error:
        raise self.retry(countdown=1) from error  # asks again each second, for 10 minutes


@app.task(name="order.recount", bind=True, max_retries=None)
def recount(self: Any, order: int) -> None:
    try:
        with lock(order):
            print(f"order {order} is counted again")
    except LockError as error:
        raise self.retry(countdown=1) from error


@app.task(name="order.refund")
def refund(order: int) -> None:
    try:
        with lock(order):
            print(f"order {order} is refunded")
    except LockError as error:
        print(f"order {order} can't be refunded now: {error}")


def edit(order: int, text: str) -> None:
    with lock(order, wait=5):
        check(order, text)
        print(f"order {order}: {text}")


def check(order: int, text: str) -> None:
    for task in (ship, recount, refund):
        task.delay(order)
    time.sleep(10)


if __name__ == "__main__":
    edit(1, "gift wrapping")

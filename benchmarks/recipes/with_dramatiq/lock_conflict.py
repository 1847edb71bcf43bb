"""One thing at a time is done to an order. What comes meanwhile waits, comes back later, or is refused at once."""

import time

import dramatiq
from dramatiq.rate_limits import ConcurrentRateLimiter
from dramatiq.rate_limits.backends import RedisBackend

from benchmarks.recipes.shop import REDIS
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

backend = RedisBackend(url=REDIS)


def lock(order: int) -> ConcurrentRateLimiter:
    """It is not renewed: what takes longer than 15 minutes loses it, and a holder that dies keeps it as long."""
    return ConcurrentRateLimiter(backend, f"order:{order}", limit=1)


@dramatiq.actor(max_retries=600, min_backoff=1000, max_backoff=1000)
def ship(order: int) -> None:
    with lock(order).acquire():  # raises if it is taken: tried again each second, for 10 minutes
        print(f"order {order} is shipped")


@dramatiq.actor(max_retries=None, min_backoff=1000, max_backoff=1000)
def recount(order: int) -> None:
    with lock(order).acquire():
        print(f"order {order} is counted again")


@dramatiq.actor
def refund(order: int) -> None:
    with lock(order).acquire(raise_on_failure=False) as mine:
        if mine:
            print(f"order {order} is refunded")
        else:
            print(f"order {order} can't be refunded now: somebody has it")


def edit(order: int, text: str) -> None:
    for _ in range(50):  # a limiter doesn't wait
        with lock(order).acquire(raise_on_failure=False) as mine:
            if mine:
                check(order, text)
                print(f"order {order}: {text}")
                return
        time.sleep(0.1)
    raise TimeoutError(f"somebody has order {order}")


def check(order: int, text: str) -> None:
    for task in (ship, recount, refund):
        task.send(order)
    time.sleep(10)


if __name__ == "__main__":
    edit(1, "gift wrapping")

"""One thing at a time is done to an order. What comes meanwhile waits, comes back later, or is refused at once."""

import time

from bide import Delivery, Queue
from examples.recipes.database import URL

queue = Queue(URL)


@queue.task("order.ship", lock="order:{order}")  # on_conflict="wait": as soon as the lock is free
def ship(order: int) -> None:
    print(f"order {order} is shipped")


@queue.task("order.recount", lock="order:{order}", on_conflict="defer", lock_delay="1s")  # later; others go first
def recount(order: int) -> None:
    print(f"order {order} is counted again")


def refused(delivery: Delivery, reason: str) -> None:
    print(f"order {delivery.body['order']} can't be refunded now: {reason}")


@queue.task("order.refund", lock="order:{order}", on_conflict="error", on_dead=refused)  # somebody waits for the answer
def refund(order: int) -> None:
    print(f"order {order} is refunded")


def edit(order: int, text: str) -> None:
    """A program takes the lock, too. If its machine dies, the lock is free 30 seconds later."""
    with queue.lock(f"order:{order}", ttl="30s", wait="5s") as lock:
        check(order, text)
        lock.check()  # still ours? If not, LockLost is raised here, before anything is written
        print(f"order {order}: {text}")


def check(order: int, text: str) -> None:
    """Stands in for what takes long. While it does, the lock is renewed, and these messages come."""
    for task in (ship, recount, refund):
        task.send(order)
    while not queue.stats(refund.topic).dead:
        time.sleep(0.1)


if __name__ == "__main__":
    edit(1, "gift wrapping")

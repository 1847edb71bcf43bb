"""The worker of the shop: its tasks are in Python, and their messages come from Node."""

import os

from bide import Queue

queue = Queue(os.environ.get("REDIS_URL", "redis://localhost:6379"))


@queue.task("order.cancel")
def cancel_unpaid(order: int) -> None:
    print(f"order {order} was not paid and is cancelled", flush=True)


@queue.task("order.remind")
def remind(order: int) -> None:
    print(f"a reminder for order {order}", flush=True)


@queue.task("order.pack")
def pack(order: int) -> None:
    print(f"order {order} is packed", flush=True)

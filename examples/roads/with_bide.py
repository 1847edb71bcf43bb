"""bide: the same program on Redis, PostgreSQL, RabbitMQ, SQLite, or in memory. The URL says where."""

from collections.abc import Callable

from bide import Queue


def connect(url: str) -> Queue:
    return Queue(url)


def send(queue: Queue, body: str, delay: float) -> None:
    queue.send("orders", body, delay=delay)


def work(queue: Queue, handle: Callable[[str], None]) -> None:
    for delivery in queue.listen("orders", limit=100):
        with delivery:  # its end acks; after a crash in this block the message comes back
            handle(delivery.body)

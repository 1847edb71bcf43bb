"""Dramatiq on Redis."""

import time
from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from workload import URL, Item, handle, main

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor
def work(payload: str) -> None:
    handle(payload)


def send(payload: str, due: float | None) -> None:
    if due is None:
        work.send(payload)
    else:
        work.send_with_options(args=(payload,), delay=max(1, round((due - time.time()) * 1000)))


def send_many(items: Sequence[Item]) -> None:
    for payload, due in items:  # there are no batches
        send(payload, due)


if __name__ == "__main__":
    main(send, send_many)

"""Huey on Redis."""

from collections.abc import Sequence
from datetime import UTC, datetime

import redis
from huey import RedisHuey
from workload import URL, Item, handle, main

huey = RedisHuey("peer", connection_pool=redis.ConnectionPool.from_url(URL))


@huey.task()
def work(payload: str) -> None:
    handle(payload)


def send(payload: str, due: float | None) -> None:
    if due is None:
        work(payload)
    else:
        work.schedule(args=(payload,), eta=datetime.fromtimestamp(due, UTC))


def send_many(items: Sequence[Item]) -> None:
    for payload, due in items:  # there are no batches
        send(payload, due)


if __name__ == "__main__":
    import on_huey  # tasks are named by their module

    main(on_huey.send, on_huey.send_many)

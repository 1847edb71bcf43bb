"""Celery on Redis."""

from collections.abc import Sequence
from datetime import UTC, datetime

from celery import Celery
from workload import URL, Item, handle, main

app = Celery("on_celery", broker=URL)
app.conf.task_ignore_result = True
app.conf.worker_hijack_root_logger = False
app.conf.broker_connection_retry_on_startup = True


@app.task(name="work")
def work(payload: str) -> None:
    handle(payload)


def send(payload: str, due: float | None, producer: object = None) -> None:
    work.apply_async((payload,), eta=datetime.fromtimestamp(due, UTC) if due else None, producer=producer)


def send_many(items: Sequence[Item]) -> None:
    with app.producer_pool.acquire(block=True) as producer:  # there are no batches
        for payload, due in items:
            send(payload, due, producer)


if __name__ == "__main__":
    main(send, send_many)

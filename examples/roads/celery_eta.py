"""Celery on Redis, with `countdown`: a worker takes the message at once, and keeps it in its memory until it is due."""

import os
from collections.abc import Callable

from celery import Celery

VISIBILITY = float(os.environ.get("VISIBILITY_TIMEOUT", "3600"))  # seconds; this is Celery's default


def connect(url: str) -> Celery:
    app = Celery("roads", broker=url)
    app.conf.broker_transport_options = {"visibility_timeout": VISIBILITY}
    return app


def send(app: Celery, body: str, delay: float) -> None:
    app.send_task("order", [body], countdown=delay)


def work(app: Celery, handle: Callable[[str], None]) -> None:
    app.task(name="order", ignore_result=True)(handle)
    app.worker_main(["worker", "--loglevel", "WARNING", "--concurrency", "2"])

"""django-ox on PostgreSQL: Django's tasks, in a project of one file, which is its manage.py, too.

A batch has one due time, so messages with times of their own are sent one by one.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from workload import URL, WORK, Item, handle, main, parts

place = urlsplit(URL)
if not settings.configured:
    settings.configure(
        INSTALLED_APPS=["django_ox"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": place.hostname,
                "PORT": place.port,
                "USER": place.username,
                "NAME": place.path.lstrip("/"),
            }
        },
        TASKS={"default": {"BACKEND": "django_ox.backend.OxBackend"}},
        USE_TZ=True,
    )
    django.setup()

from django.core.management import execute_from_command_line  # noqa: E402 - these need the settings
from django.tasks import task  # noqa: E402
from django_ox.bulk import enqueue_many  # noqa: E402


@task
def work(payload: str) -> None:
    handle(payload)


def _due(due: float | None) -> Any:
    return work.using(run_after=datetime.fromtimestamp(due, UTC)) if due else work


def send(payload: str, due: float | None) -> None:
    _due(due).enqueue(payload)


def send_many(items: Sequence[Item]) -> None:
    one_time = WORK in ("drain", "burst", "batch", "memory", "crash")
    for part in parts(items, 1_000 if one_time else 1):
        enqueue_many(_due(part[0][1]), [((payload,), {}) for payload, _ in part])


if __name__ == "__main__":
    if sys.argv[1] == "send":
        import on_django_ox  # tasks are named by their module

        main(on_django_ox.send, on_django_ox.send_many)
    else:
        execute_from_command_line(sys.argv)

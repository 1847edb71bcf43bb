"""What a worker was asked for, read and checked."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bide.core import options
from bide.errors import BadOption
from bide.queue.tasks.middleware import Middleware
from bide.worker.ledger import Ledger


class Plan(NamedTuple):
    topics: tuple[str, ...] | None
    concurrency: int
    slots: Mapping[str, int]
    threads: int
    lease_ms: int
    grace: float
    middleware: tuple[Middleware, ...]
    ledger: Ledger | None = None


def topics(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str):
        raise BadOption("topics is one text. Give a list, as in topics=['order.cancel'].")
    if not isinstance(given, Iterable):
        raise BadOption(f"topics is a {type(given).__name__}. Give a list, as in topics=['order.cancel'].")
    return options.topics(tuple(given))


def slots(given: Any) -> Mapping[str, int]:
    """Whether they fit the tasks is seen when the worker begins."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadOption(f"slots is a {type(given).__name__}. Give the number for each topic: slots={{'order.cancel': 10}}.")
    return dict(given)

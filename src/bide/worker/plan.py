"""What a worker was asked for, read and checked."""

from collections.abc import Mapping
from typing import NamedTuple

from bide.worker.handling import Middleware
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

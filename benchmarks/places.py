"""Where a benchmark of several engines works: a file, or a server that runs for as long as it lasts."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


@contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="bide-bench-") as folder:
        yield f"sqlite:///{folder}/bide.db"


@contextmanager
def _redis() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


@contextmanager
def _postgres() -> Iterator[str]:
    with PostgresServer(fsync=True) as server:
        yield server.url


PLACES: Mapping[str, Callable[[], AbstractContextManager[str]]] = {"redis": _redis, "sqlite": _sqlite, "postgres": _postgres}
"""Gives the URL of an empty queue."""

"""An old system's server, an empty queue, and the command."""

from collections.abc import Iterator

import pytest
import redis

from tests.cli.conftest import at_terminal, bide, folder
from tests.servers.redis import RedisServer

__all__ = ["at_terminal", "bide", "folder", "old"]


@pytest.fixture
def old(redis_server: RedisServer, redis_url: str) -> Iterator[redis.Redis]:
    """A client of the old system's Redis, which is at `redis_url`."""
    with redis_server.client() as client:
        yield client

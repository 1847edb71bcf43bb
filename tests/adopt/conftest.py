"""An old system's server, an empty queue, and the command."""

from collections.abc import Iterator

import pytest
import redis

from tests.cli.conftest import bide, bide_process, folder
from tests.servers.redis import RedisServer

__all__ = ["bide", "bide_process", "folder", "old"]


@pytest.fixture
def old(redis_server: RedisServer, redis_url: str) -> Iterator[redis.Redis]:
    """A client of the old system's Redis, which is at `redis_url`."""
    with redis_server.client() as client:
        yield client

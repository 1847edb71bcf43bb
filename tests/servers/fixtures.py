"""Gives tests their servers, and marks the tests that ask for one."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from tests.servers.certificates import Certificates
from tests.servers.programs import is_without_tls, lacking, needs_program
from tests.servers.redis import NotStarted, RedisServer, Setting

ASK_FOR_A_SERVER = {"redis_server", "redis_url", "new_redis"}


class NewRedis(Protocol):
    """Starts a server with settings of its own, which is stopped when the test ends."""

    def __call__(self, *, tls: Certificates | None = None, tls_clients: bool = False, **settings: Setting) -> RedisServer: ...


def pytest_itemcollected(item: pytest.Item) -> None:
    """So that `-m "not server"` leaves out each of them."""
    if ASK_FOR_A_SERVER.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("server")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for all tests of this process. Don't stop it or set it up anew: `new_redis` is for that."""
    needs_program("redis-server")
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The URL of the shared server, which is empty and has counted nothing yet."""
    with redis_server.client() as client:
        client.flushall()
        client.acl_log_reset()
        client.config_resetstat()
    return redis_server.url


@pytest.fixture
def new_redis() -> Iterator[NewRedis]:
    needs_program("redis-server")
    with ExitStack() as started:

        def start(**options: Any) -> RedisServer:
            try:
                return started.enter_context(RedisServer(**options))
            except NotStarted as error:
                if is_without_tls(str(error)):
                    lacking("redis-server was built without TLS")
                raise

        yield start

"""Gives tests their servers, and marks the tests that ask for one."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from tests.servers.certificates import Certificates
from tests.servers.cluster import RedisCluster
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.postgres import Setting as PostgresSetting
from tests.servers.programs import is_without_tls, lacking, needs_groups, needs_postgres, needs_program
from tests.servers.redis import RedisServer, Setting
from tests.servers.sentinel import SentinelGroup
from tests.servers.server import PATIENCE, NotStarted
from tests.servers.standby import PostgresStandby

CALM = 30_000  # milliseconds of silence before a server of a shared group is missed, however busy the machine is

ASK_FOR_A_SERVER = {
    *("redis_server", "redis_url", "new_redis"),
    *("redis_cluster", "redis_cluster_url", "new_cluster"),
    *("redis_sentinels", "redis_sentinels_url", "new_sentinels"),
    *("postgres_server", "postgres_url", "postgres_used_url", "new_postgres", "new_standby"),
    *("pgbouncer", "pgbouncer_url", "pgbouncer_used_url", "new_pgbouncer"),
    *("rabbitmq_server", "rabbitmq_url", "rabbitmq_shared_url", "new_rabbitmq", "rabbitmq_cluster"),
}


class NewRedis(Protocol):
    """Starts a server with settings of its own, which is stopped when the test ends."""

    def __call__(
        self, *, tls: Certificates | None = None, tls_clients: bool = False, patience: float = PATIENCE, **settings: Setting
    ) -> RedisServer: ...


class NewPostgres(Protocol):
    """Starts a server with settings of its own, which is stopped when the test ends."""

    def __call__(
        self, *, fsync: bool = False, password: str | None = None, patience: float = PATIENCE, **settings: PostgresSetting
    ) -> PostgresServer: ...


class NewStandby(Protocol):
    """Starts a server that follows another one, and is stopped when the test ends. Settings are those of postgresql.conf."""

    def __call__(self, primary: PostgresServer, name: str = "standby", **settings: PostgresSetting) -> PostgresStandby: ...


class NewPgBouncer(Protocol):
    """Starts a pool before a server, which is stopped when the test ends. Settings are those of pgbouncer.ini."""

    def __call__(self, server: PostgresServer, **settings: str | int) -> PgBouncer: ...


class NewCluster(Protocol):
    """Starts a Redis Cluster, which is stopped when the test ends."""

    def __call__(
        self, masters: int = 3, replicas: int = 1, *, appendonly: str = "no", relayed: bool = False, **settings: Setting
    ) -> RedisCluster: ...


class NewSentinels(Protocol):
    """Starts a master, its replicas and their sentinels, which are stopped when the test ends. Options: SentinelGroup's."""

    def __call__(self, replicas: int = 2, sentinels: int = 3, **options: Any) -> SentinelGroup: ...


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
    _forget(redis_server)
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


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """Three masters with a replica each, for all tests of this process. Don't break it: `new_cluster` is for that."""
    needs_groups()
    with RedisCluster() as cluster:
        for node in cluster.nodes:
            node.ask("CONFIG", "SET", "cluster-node-timeout", CALM)  # now that it has started quickly
        yield cluster


@pytest.fixture
def redis_cluster_url(redis_cluster: RedisCluster) -> str:
    """The URL of the shared cluster, which is whole and empty and has counted nothing yet."""
    redis_cluster.wait_until_whole()
    redis_cluster.empty()
    _forget(*redis_cluster.members)
    return redis_cluster.url


@pytest.fixture
def new_cluster() -> Iterator[NewCluster]:
    needs_groups()
    with ExitStack() as started:
        yield lambda *counts, **options: started.enter_context(RedisCluster(*counts, **options))


@pytest.fixture(scope="session")
def redis_sentinels() -> Iterator[SentinelGroup]:
    """A master, two replicas, three sentinels, for all tests of this process. Don't break them: `new_sentinels` is for that."""
    needs_groups()
    with SentinelGroup(down_after_milliseconds=CALM) as group:
        yield group


@pytest.fixture
def redis_sentinels_url(redis_sentinels: SentinelGroup) -> str:
    """The URL of the shared group, which is whole and empty and has counted nothing yet."""
    redis_sentinels.wait_until_whole()
    redis_sentinels.empty()
    _forget(*redis_sentinels.nodes)
    return redis_sentinels.url


@pytest.fixture
def new_sentinels() -> Iterator[NewSentinels]:
    needs_groups()
    with ExitStack() as started:
        yield lambda *counts, **options: started.enter_context(SentinelGroup(*counts, **options))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of this process. Don't stop it or set it up anew: `new_postgres` is for that."""
    needs_postgres()
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of an empty database of the shared server, which has no other database, and no role but the one in the URL."""
    # Not at the end of a test: the server first waits for clients that are just leaving.
    postgres_server.drop_all()
    return postgres_server.database(f"test{next(_numbers)}")


@pytest.fixture
def postgres_used_url(postgres_server: PostgresServer) -> str:
    """The URL of a database that has tables already, all empty: for tests to which it makes no difference. It takes a tenth."""
    return postgres_server.emptied("used")


@pytest.fixture
def new_postgres() -> Iterator[NewPostgres]:
    needs_postgres()
    with ExitStack() as started:
        yield lambda **options: started.enter_context(PostgresServer(**options))


@pytest.fixture
def new_standby() -> Iterator[NewStandby]:
    needs_postgres()
    with ExitStack() as started:
        yield lambda *primary, **settings: started.enter_context(PostgresStandby(*primary, **settings))


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """A pool before the shared server, for all tests of this process. Don't stop it: `new_pgbouncer` is for that."""
    needs_program("pgbouncer")
    with PgBouncer(postgres_server) as pool:
        yield pool


@pytest.fixture
def pgbouncer_url(pgbouncer: PgBouncer, postgres_url: str) -> str:
    """The URL of the database of `postgres_url`, through a pool that lends a connection for a transaction."""
    return pgbouncer.url_of(postgres_url.rpartition("/")[2])


@pytest.fixture
def pgbouncer_used_url(pgbouncer: PgBouncer, postgres_used_url: str) -> str:
    return pgbouncer.url_of(postgres_used_url.rpartition("/")[2])


@pytest.fixture
def new_pgbouncer() -> Iterator[NewPgBouncer]:
    needs_program("pgbouncer")
    with ExitStack() as started:
        yield lambda server, **settings: started.enter_context(PgBouncer(server, **settings))


_numbers = itertools.count()  # so that a client that a test has left behind finds no database of a later test


def _forget(*servers: RedisServer) -> None:
    """Nothing is left of the tests before: no keys, no counts, and nothing that is told of keys."""
    for server in servers:
        with server.client() as client:
            if client.role()[0] == b"master":
                client.flushall()
            client.config_set("notify-keyspace-events", "")
            client.acl_log_reset()
            client.config_resetstat()

"""Each engine's place, and what can be done to it there: freeze it, fail it over, or take away its wake-ups."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple

import redis

from bide import Queue
from tests.servers.cluster import RedisCluster
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer
from tests.servers.sentinel import SentinelGroup
from tests.servers.standby import PostgresStandby

LEASE = 15.0  # seconds: a worker's, if it is told nothing else
CALM = 30_000  # milliseconds of silence after which a node of the cluster is taken for dead, where none is to be
UNTOLD = "create or replace function bide.tell(of text, due bigint, now bigint) returns void language sql as ''"
Losing = Callable[[str], AbstractContextManager[Callable[[], bool]]]


class Place(NamedTuple):
    """What an engine has no cause for is None. `fail_over` kills, and gives when a server takes writes again.

    `losing` takes the wake-ups of a topic away while it lasts. It gives a function that tells whether it took some since it was
    last asked.
    """

    url: str
    confirm: str = "memory"
    dies: bool = True  # a worker may die, and its messages stay
    lease: float = LEASE  # how long a dead worker's messages stay with it
    freeze: Callable[[], None] | None = None
    thaw: Callable[[], None] | None = None
    fail_over: Callable[[], float] | None = None
    losing: Losing | None = None

    def where(self, queue: Queue) -> str | Queue:
        """Where receivers find it: only this queue has the messages in memory."""
        return self.url if self.dies else queue


Begin = Callable[[], AbstractContextManager[Place]]


@contextmanager
def _memory() -> Iterator[Place]:
    yield Place("memory://", dies=False)


@contextmanager
def _sqlite() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="bide-bench-") as folder:
        yield Place(f"sqlite:///{folder}/bide.db")


@contextmanager
def _redis() -> Iterator[Place]:
    with RedisServer() as server:
        yield Place(server.url, freeze=server.freeze, thaw=server.thaw, losing=_thief([server]))


@contextmanager
def _sentinels() -> Iterator[Place]:
    with SentinelGroup() as group:

        def fail_over() -> float:
            group.wait_for_promotion(of=group.kill_master())
            return time.time()

        yield Place(group.url, confirm="replicas:1", fail_over=fail_over)


@contextmanager
def _cluster() -> Iterator[Place]:
    with RedisCluster() as cluster:
        frozen = cluster.masters()[0]

        def freeze() -> None:
            _set_timeout(cluster, CALM)
            frozen.freeze()

        def thaw() -> None:
            frozen.thaw()
            _set_timeout(cluster, 2_000)

        def fail_over() -> float:
            old = cluster.masters()[0]
            cluster.kill(old)
            cluster.wait_for_promotion(of=old)
            return time.time()

        losing = _thief(cluster.masters())
        yield Place(cluster.url, confirm="replicas:1", freeze=freeze, thaw=thaw, fail_over=fail_over, losing=losing)


def _set_timeout(cluster: RedisCluster, milliseconds: int) -> None:
    for node in cluster.nodes:
        node.ask("CONFIG", "SET", "cluster-node-timeout", milliseconds)


@contextmanager
def _postgres() -> Iterator[Place]:
    with PostgresServer(fsync=True) as server:

        @contextmanager
        def losing(topic: str) -> Iterator[Callable[[], bool]]:
            told = "select pg_get_functiondef('bide.tell'::regproc)"
            [(plain,)] = server.ask(told)
            server.ask(UNTOLD)
            try:
                yield lambda: server.ask(told) != [(plain,)]
            finally:
                server.ask(plain)

        yield Place(server.url, freeze=server.freeze, thaw=server.thaw, losing=losing)


@contextmanager
def _standby() -> Iterator[Place]:
    with PostgresServer(fsync=True) as primary, PostgresStandby(primary) as standby:
        standby.make_synchronous()

        def fail_over() -> float:
            primary.kill()
            standby.promote()
            return time.time()

        yield Place(
            f"postgres://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres?timeout=2", fail_over=fail_over
        )


@contextmanager
def _rabbitmq() -> Iterator[Place]:
    with RabbitServer(tuned=True) as server:

        def fail_over() -> float:
            server.kill()
            server.start()
            return time.time()

        yield Place(server.url, lease=0.0, freeze=server.freeze, thaw=server.thaw, fail_over=fail_over)


def _thief(servers: Sequence[RedisServer]) -> Losing:
    """Another client that waits for tokens, and has waited for longer than any receiver, so that it gets them all."""

    @contextmanager
    def losing(topic: str) -> Iterator[Callable[[], bool]]:
        stolen: list[object] = []
        clients: list[redis.Redis] = []

        def steal(client: Any, wakes: Sequence[bytes]) -> None:
            with suppress(redis.RedisError, OSError, ValueError):  # its connection is closed at the end
                while True:
                    stolen.append(client.blpop(wakes, timeout=0))

        def took() -> bool:
            some = bool(stolen)
            stolen.clear()
            return some

        try:
            for server in servers:
                with server.client() as asks:
                    wakes = [each.removesuffix(b"meta") + b"w:" + topic.encode() for each in asks.scan_iter("*:meta")]
                    if wakes:
                        clients.append(server.client(socket_timeout=None, single_connection_client=True))
                        threading.Thread(target=steal, args=(clients[-1], wakes), daemon=True).start()
                        while not asks.info("clients")["blocked_clients"]:
                            time.sleep(0.01)
            yield took
        finally:
            for server in servers:
                with server.client() as asks:
                    asks.client_kill_filter(_type="normal", skipme=True)

    return losing


PLACES: Mapping[str, Sequence[Begin]] = {
    "memory": [_memory],
    "SQLite": [_sqlite],
    "Redis": [_redis, _sentinels],
    "Redis Cluster": [_cluster],
    "PostgreSQL": [_postgres, _standby],
    "RabbitMQ": [_rabbitmq],
}
"""The second place of an engine is for its failover."""

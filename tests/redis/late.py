"""Commands that the network keeps back: sent, repeated and answered, and only then delivered."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Any, NamedTuple, cast

from bide.engines.base import MAX_BATCH, Tended
from bide.engines.redis.aio.gates import recall as of_async
from bide.engines.redis.script import scripts
from bide.engines.redis.sync.gates import recall as of_sync
from bide.testing.contract import Recoloured
from bide.testing.contract.bench import Bench
from tests.redis.keyspace import bench_at
from tests.redis.proxy import HOST, Proxy, proxied
from tests.servers.cluster import ClusterNode
from tests.servers.redis import RedisServer
from tests.servers.sentinel import SentinelGroup


class Place(NamedTuple):
    """A server, and its URL; `led_to` has those who ask where it is go to another port for a while."""

    server: RedisServer
    url: str
    led_to: Callable[[int], AbstractContextManager[object]] = nullcontext

    def url_at(self, port: int) -> str:
        """Of the same server behind a proxy."""
        own = self.url if self.url.startswith("redis+sentinel:") else self.url.replace(f":{self.server.port}", f":{port}")
        return f"{own}{'&' if '?' in own else '?'}timeout=30"


def place_in_cluster(node: ClusterNode) -> Place:
    """The only node of a Cluster."""

    @contextmanager
    def led_to(port: int) -> Iterator[None]:
        node.ask("CONFIG", "SET", "cluster-announce-port", port)
        try:
            yield
        finally:
            node.ask("CONFIG", "SET", "cluster-announce-port", node.port)

    return Place(node, f"redis+cluster://{node.host_and_port}", led_to)


def place_in_group(group: SentinelGroup) -> Place:
    """The only server that the only Sentinel watches."""
    [node], [sentinel] = group.nodes, group.sentinels

    def watch(port: int) -> None:
        sentinel.ask("SENTINEL", "REMOVE", group.service)
        sentinel.ask("SENTINEL", "MONITOR", group.service, HOST, port, 1)

    @contextmanager
    def led_to(port: int) -> Iterator[None]:
        watch(port)
        try:
            yield
        finally:
            watch(node.port)

    return Place(node, group.url, led_to)


@asynccontextmanager
async def delayed(place: Place, colour: str) -> AsyncIterator[tuple[Bench, Proxy]]:
    """A bench whose commands a proxy can keep back, on a server that knows the scripts."""
    with place.server.client() as client:
        for script in scripts().values():
            client.script_load(script.text)
    async with proxied(place.server.port) as proxy:
        with place.led_to(proxy.port):
            async with bench_at(place.url_at(proxy.port), colour) as bench:
                await bench.claim("none")
                yield bench, proxy


async def recall(bench: Bench, limit: int = MAX_BATCH) -> Tended:
    """The script that a tend sends after its own, where gates need it."""
    engine: Any = bench.engine
    if isinstance(engine, Recoloured):
        return await asyncio.to_thread(of_sync, cast(Any, engine.engine)._engine._shards[0], limit, bench.now)
    return await of_async(engine._engine._shards[0], limit, bench.now)


async def repeated(proxy: Proxy, act: Callable[[], Awaitable[object]]) -> None:
    """One call whose first bytes are kept back, and which is then made again by the engine, and answered."""
    proxy.once = "hold request"
    await act()
    assert len(proxy.held) == 1

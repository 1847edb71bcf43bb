"""Commands that the network keeps back: sent, repeated and answered, and only then delivered."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bide.engines.redis.script import scripts
from bide.testing.contract.bench import Bench
from tests.redis.keyspace import bench_at
from tests.redis.proxy import Proxy, proxied
from tests.servers.redis import RedisServer


@asynccontextmanager
async def delayed(server: RedisServer, colour: str) -> AsyncIterator[tuple[Bench, Proxy]]:
    """A bench whose commands a proxy can keep back, on a server that knows the scripts."""
    with server.client() as client:
        for script in scripts().values():
            client.script_load(script.text)
    async with proxied(server.port) as proxy, bench_at(proxy.patient_url, colour) as bench:
        await bench.claim("none")
        yield bench, proxy


async def repeated(proxy: Proxy, act: Callable[[], Awaitable[object]]) -> None:
    """One call whose first bytes are kept back, and which is then made again by the engine, and answered."""
    proxy.once = "hold request"
    await act()
    assert len(proxy.held) == 1

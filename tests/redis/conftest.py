"""A crowded keyspace, for the tests that attack it."""

import asyncio
from collections.abc import Iterator

import pytest
import redis

from tests.redis.crowd import SETTINGS, Scene, gather_crowd
from tests.redis.keyspace import bench_at, picture
from tests.redis.small import use_small_scripts
from tests.servers.redis import RedisServer


@pytest.fixture
def scene(redis_url: str, redis_server: RedisServer) -> Iterator[Scene]:
    async def make(client: redis.Redis) -> Scene:
        async with bench_at(redis_url, **SETTINGS) as bench:
            crowd = await gather_crowd(bench)
            return Scene(client, redis_url, picture(client), crowd, bench.now)

    with redis_server.client() as client:
        yield asyncio.run(make(client))


@pytest.fixture
def small_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_scripts(monkeypatch)

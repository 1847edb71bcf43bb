"""A crowded keyspace, for the tests that attack it."""

import asyncio
from collections.abc import Iterator

import pytest
import redis

from tests.redis.crowd import SETTINGS, Scene, gather_crowd
from tests.redis.keyspace import bench_at, picture
from tests.redis.late import Place, place_in_cluster, place_in_group
from tests.redis.small import use_small_scripts
from tests.servers.cluster import RedisCluster
from tests.servers.programs import needs_groups
from tests.servers.redis import RedisServer
from tests.servers.sentinel import SentinelGroup


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


@pytest.fixture(scope="session")
def lone_cluster() -> Iterator[RedisCluster]:
    needs_groups()
    with RedisCluster(masters=1, replicas=0) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def lone_sentinel() -> Iterator[SentinelGroup]:
    needs_groups()
    with SentinelGroup(replicas=0, sentinels=1, down_after_milliseconds=30_000) as group:
        yield group


GROUPS = [pytest.param(each, marks=pytest.mark.slow) for each in ("in a Cluster", "watched by a Sentinel")]


@pytest.fixture(params=["alone", *GROUPS])
def place(request: pytest.FixtureRequest) -> Place:
    """An empty server, in each way that engines find one."""
    if request.param == "alone":
        return Place(request.getfixturevalue("redis_server"), request.getfixturevalue("redis_url"))
    if request.param == "in a Cluster":
        found = place_in_cluster(request.getfixturevalue("lone_cluster").nodes[0])
    else:
        found = place_in_group(request.getfixturevalue("lone_sentinel"))
    with found.server.client() as client:
        client.flushall()
    return found

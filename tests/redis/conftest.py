"""A crowded keyspace, for the tests that attack it."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from bide.engines.redis.aio import engine as engine_aio
from bide.engines.redis.aio import sends as sends_aio
from bide.engines.redis.sync import engine as engine_sync
from bide.engines.redis.sync import sends as sends_sync
from tests.model.runner import Runner
from tests.redis.crowd import SETTINGS, Scene, gather_crowd
from tests.redis.keyspace import bench_at, picture
from tests.redis.late import Place, place_in_cluster, place_in_group
from tests.redis.small import use_small_scripts
from tests.servers.cluster import RedisCluster
from tests.servers.programs import needs_groups
from tests.servers.redis import RedisServer
from tests.servers.sentinel import SentinelGroup

CALM = 60_000  # milliseconds
_namespaces = map("away{}".format, itertools.count())


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


@pytest.fixture(scope="module")
def masters() -> Iterator[RedisCluster]:
    """Three without replicas, which serve their slots also while another one is away."""
    needs_groups()
    with RedisCluster(masters=3, replicas=0, cluster_require_full_coverage="no") as cluster:
        for node in cluster.nodes:  # or a busy machine has them miss one another, and the whole Cluster stops
            node.ask("CONFIG", "SET", "cluster-node-timeout", CALM)
        yield cluster


@pytest.fixture(scope="module")
def group() -> Iterator[RedisCluster]:
    """Three masters, each with a replica."""
    needs_groups()
    with RedisCluster(masters=3, replicas=1) as cluster:
        for node in cluster.nodes:
            node.ask("CONFIG", "SET", "cluster-node-timeout", CALM)
        yield cluster


@pytest.fixture
def masters_url(masters: RedisCluster) -> str:
    return f"{masters.url}?namespace={next(_namespaces)}"


@pytest.fixture(scope="session")
def lone_sentinel() -> Iterator[SentinelGroup]:
    needs_groups()
    with SentinelGroup(replicas=0, sentinels=1, down_after_milliseconds=30_000) as group:
        yield group


GROUPS = [pytest.param(each, marks=pytest.mark.slow) for each in ("in a Cluster", "watched by a Sentinel")]


@pytest.fixture(params=["alone", "in three shards", *GROUPS])
def place(request: pytest.FixtureRequest) -> Place:
    """An empty server, in each way that engines find one and spread messages there."""
    if request.param == "in three shards":
        return Place(request.getfixturevalue("redis_server"), f"{request.getfixturevalue('redis_url')}?shards=3")
    if request.param == "alone":
        return Place(request.getfixturevalue("redis_server"), request.getfixturevalue("redis_url"))
    if request.param == "in a Cluster":
        found = place_in_cluster(request.getfixturevalue("lone_cluster").nodes[0])
    else:
        found = place_in_group(request.getfixturevalue("lone_sentinel"))
    with found.server.client() as client:
        client.flushall()
    return found


@pytest.fixture
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what several shards can't do: know which dead letter is the oldest of all.

    Where a message goes is by chance, which is taken out, or a history could not be played again.
    """
    requeue, begin = Runner.requeue, Runner.__init__
    count = itertools.count()

    def requeue_all(self: Runner, topic: str, ids: Any, delay: int, over: int, limit: int) -> Any:
        return requeue(self, topic, ids, delay, over, 1_000)

    def keep_all(self: Runner, *args: Any, dead_max: int, **options: Any) -> None:
        begin(self, *args, dead_max=1_000, **options)

    monkeypatch.setattr(Runner, "requeue", requeue_all)
    monkeypatch.setattr(Runner, "__init__", keep_all)
    for colour in (engine_aio, engine_sync, sends_aio, sends_sync):
        monkeypatch.setattr(colour, "randrange", lambda _: 0)
        monkeypatch.setattr(colour, "lane", lambda: f"{next(count):016x}")


@pytest.fixture
def forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of histories is never set back: on several servers each shard has a time of its own, and the model has one."""

    def clock(self: Runner) -> int:
        return int(vars(self).get("latest", 0))

    def turn(self: Runner, to: int) -> None:
        vars(self)["latest"] = max(clock(self), to)

    monkeypatch.setattr(Runner, "clock", property(clock, turn), raising=False)

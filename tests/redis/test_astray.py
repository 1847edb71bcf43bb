"""A URL that leads to another kind of server: the call says at once what to write in its place."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bide import ConfigError, Queue, Unavailable
from bide.engines.redis import failures
from bide.engines.redis.topology import slot_of
from tests.redis.keyspace import COLOURS, bench_at
from tests.servers.certificates import make_certificates
from tests.servers.cluster import RedisCluster
from tests.servers.fixtures import NewCluster, NewRedis
from tests.servers.redis import RedisServer
from tests.servers.sentinel import SentinelGroup

both_colours = pytest.mark.parametrize("colour", COLOURS)


async def refusal(url: str, colour: str) -> str:
    """Why nothing can be sent there, said after at most one look at each server: a second one would not end."""
    with pytest.raises(ConfigError) as told:
        async with bench_at(url + ("&" if "?" in url else "?") + "timeout=600", colour) as bench:
            await bench.put("t", b"x")
    return str(told.value)


async def unreached(url: str, colour: str, seconds: float = 0.2) -> str:
    with pytest.raises(Unavailable) as told:
        async with bench_at(f"{url}?timeout={seconds}&connect_timeout={seconds}", colour) as bench:
            await bench.put("t", b"x")
    return str(told.value)


def another_node(cluster: RedisCluster) -> Any:
    """A master that does not have the keys of the first shard."""
    owner = cluster.node_of(slot_of("bide:0"))
    return next(node for node in cluster.masters() if node is not owner)


@both_colours
async def test_one_node_of_a_cluster(redis_cluster: RedisCluster, redis_cluster_url: str, colour: str) -> None:
    node = another_node(redis_cluster)
    told = await refusal(node.url, colour)
    assert "names a node of a Redis Cluster" in told
    assert f"write redis+cluster://{node.host_and_port}, or give a RedisCluster as client=" in told
    assert "names a node of a Redis Cluster" in await refusal(node.url.replace("/0", "/3"), colour)


@both_colours
async def test_a_sentinel_in_place_of_a_server(redis_sentinels: SentinelGroup, redis_sentinels_url: str, colour: str) -> None:
    sentinel = redis_sentinels.sentinels[0]
    for url in (sentinel.url, sentinel.url.replace("/0", "/3")):
        told = await refusal(url, colour)
        assert f"write redis+sentinel://{sentinel.host_and_port}/SERVICE with the name of the service" in told


@both_colours
async def test_no_cluster(redis_server: RedisServer, redis_url: str, redis_sentinels: SentinelGroup, colour: str) -> None:
    place = f"127.0.0.1:{redis_server.port}"
    told = await refusal(f"redis+cluster://{place}", colour)
    assert f"names a server that is no node of a Cluster: write redis://{place}/0." in told
    told = await refusal(f"redis+cluster://{redis_sentinels.sentinels[0].host_and_port}", colour)
    assert "knows nothing of Clusters" in told
    assert "redis+sentinel://" in told


@both_colours
async def test_no_sentinel(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    place = f"127.0.0.1:{redis_server.port}"
    told = await refusal(f"redis+sentinel://{place}/mymaster", colour)
    assert "names a server that is no Sentinel" in told
    assert f"write redis://{place}/0" in told


@both_colours
async def test_a_service_that_the_sentinels_do_not_know(
    redis_sentinels: SentinelGroup, redis_sentinels_url: str, colour: str
) -> None:
    told = await refusal(redis_sentinels_url.replace("/mymaster", "/other"), colour)
    assert "know no service other: correct its name" in told


@both_colours
async def test_a_password_that_the_sentinels_refuse(
    redis_sentinels: SentinelGroup, redis_sentinels_url: str, colour: str
) -> None:
    told = await refusal(f"{redis_sentinels_url}?sentinel_username=nobody&sentinel_password=geheim", colour)
    assert "A Sentinel of redis+sentinel://" in told
    assert "write sentinel_password=…" in told
    assert "geheim" not in told


@pytest.fixture
def watcher(redis_sentinels: SentinelGroup, redis_sentinels_url: str) -> Iterator[str]:
    """The group's URL with a user who may ask its Sentinels nothing."""
    for sentinel in redis_sentinels.sentinels:
        sentinel.ask("ACL", "SETUSER", "watcher", "on", ">geheim", "-@all")
    yield f"{redis_sentinels_url}?sentinel_username=watcher&sentinel_password=geheim"
    for sentinel in redis_sentinels.sentinels:
        sentinel.ask("ACL", "DELUSER", "watcher")


@both_colours
async def test_a_user_who_may_not_ask_the_sentinels(watcher: str, redis_sentinels: SentinelGroup, colour: str) -> None:
    assert "may not ask for the master: allow it there" in await refusal(watcher, colour)
    [*_, told] = Queue(watcher).examine()
    assert (told.name, told.level) == ("sentinels", "bad")
    assert "allow it there, with ACL SETUSER" in told.advice


async def test_the_right_to_ask_for_the_master_is_all_that_a_user_of_the_sentinels_needs(
    watcher: str, redis_sentinels: SentinelGroup
) -> None:
    for sentinel in redis_sentinels.sentinels:
        sentinel.ask("ACL", "SETUSER", "watcher", "+sentinel|master")
    async with bench_at(watcher) as bench:
        await bench.put("t", b"x")
    [nodes] = [each for each in Queue(watcher).examine() if each.name == "nodes"]
    assert nodes.value == "which replicas there are is not known: this user may not call SENTINEL REPLICAS"


def test_a_server_that_sentinels_watch_from_now_on_has_its_messages_under_both_urls(
    redis_sentinels: SentinelGroup, redis_sentinels_url: str
) -> None:
    with Queue(redis_sentinels.master().url) as before, Queue(redis_sentinels_url) as now:
        first = before.send("t", 1, delay="1h", key="k")
        assert now.send("t", 2, key="k").id == first.id
        assert before.get(now.send("t", 3).id) is not None


@both_colours
async def test_sentinels_that_refuse_the_password_are_passed_over_while_one_takes_it(
    watcher: str, redis_sentinels: SentinelGroup, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    monkeypatch.setattr("random.shuffle", lambda places: None)  # they are asked in the order of the URL
    *others, last = redis_sentinels.sentinels
    last.ask("ACL", "SETUSER", "watcher", "+sentinel|master")
    for sentinel in others:
        sentinel.ask("ACL", "SETUSER", "watcher", "resetpass", ">another")
    async with bench_at(watcher, colour) as bench:
        await bench.put("t", b"x")


async def test_one_of_three_sentinels_that_knows_nothing_is_passed_over(
    redis_sentinels: SentinelGroup, redis_sentinels_url: str, redis_server: RedisServer
) -> None:
    seeds = [redis_sentinels.sentinels[0].host_and_port, f"127.0.0.1:{redis_server.port}", "127.0.0.1:1"]
    async with bench_at(f"redis+sentinel://{','.join(seeds)}/mymaster") as bench:
        await bench.put("t", b"x")


def test_a_url_keeps_its_tls_and_its_place() -> None:
    assert str(failures.of_cluster("rediss://a:1/0")).endswith("write rediss+cluster://a:1, or give a RedisCluster as client=.")
    assert failures.to_cluster("unix:///tmp/redis.sock?db=0").startswith("write redis+cluster://host:6379")
    assert failures.to_server("rediss+sentinel://a:1,b:2/main/0") == "write rediss://a:1/0"


def test_other_errors_are_left_alone() -> None:
    assert failures.from_server("redis://a", "ERR wrong number of arguments") is None
    assert failures.from_node("redis+cluster://a", "LOADING the dataset") is None
    assert failures.from_sentinel("redis+sentinel://a/m", "m", "LOADING the dataset") is None


@both_colours
async def test_a_url_with_tls_for_a_server_without_it_and_the_other_way_round(
    new_redis: NewRedis, tmp_path: Path, colour: str
) -> None:
    certificates = make_certificates(tmp_path)
    server = new_redis(tls=certificates)
    assert "does this port speak TLS?" in await unreached(server.url.replace("redis://", "rediss://"), colour)
    assert "write rediss:// in the URL" in await unreached(server.tls_url.replace("rediss://", "redis://"), colour)
    assert "signed by the CA in ca=" in await unreached(server.tls_url, colour, seconds=2)  # it answers, and in its own time
    nobody = await unreached("redis://127.0.0.1:1", colour)
    assert "Nothing was done. Is the server running" in nobody
    assert "TLS" not in nobody


async def test_a_node_that_was_given_no_slots_yet(new_cluster: NewCluster) -> None:
    cluster = new_cluster(masters=1, replicas=0)
    cluster.nodes[0].ask("CLUSTER", "FLUSHSLOTS")
    for colour in COLOURS:
        assert "no node has slots, which `redis-cli --cluster create` gives them" in await unreached(cluster.url, colour)
    found = {each.name: each for each in Queue(cluster.url).examine()}
    assert found["cluster"].value == "cluster_state:fail"
    assert (found["slots"].level, found["slots"].value) == ("bad", "no node has any")
    assert "redis-cli --cluster create" in found["slots"].advice

"""URLs and clients of several servers: Sentinels, or the nodes of a Cluster."""

import re

import pytest
import redis
import redis.asyncio as aioredis

from bide import BadUrl, ConfigError
from bide.engines.redis.client import sentinel_address
from bide.engines.redis.topology import ServerPlace
from tests.redis.test_url import CANARY, ENCODED, address, assert_hidden, refusal


@pytest.mark.parametrize(
    ("url", "shown", "seeds", "service", "db"),
    [
        ("redis+sentinel://a/main", "redis+sentinel://a:26379/main/0", [("a", 26379)], "main", 0),
        (
            "redis+sentinel://u:p@a:1,b,[::1]:3/main/4?timeout=3",
            "redis+sentinel://a:1,b:26379,[::1]:3/main/4",
            [("a", 1), ("b", 26379), ("::1", 3)],
            "main",
            4,
        ),
        ("rediss+sentinel://a/my.main-1?db=2", "rediss+sentinel://a:26379/my.main-1/2", [("a", 26379)], "my.main-1", 2),
        ("redis+cluster://a,b:7000", "redis+cluster://a:6379,b:7000", [("a", 6379), ("b", 7000)], "", 0),
        ("rediss+cluster://u:p@a/?shards=6", "rediss+cluster://a:6379", [("a", 6379)], "", 0),
        ("redis+cluster://a/0?db=0", "redis+cluster://a:6379", [("a", 6379)], "", 0),
    ],
)
def test_several_servers_are_read(url: str, shown: str, seeds: list[tuple[str, int]], service: str, db: int) -> None:
    found = address(url)
    assert (found.shown, list(found.seeds), found.service, found.db) == (
        shown,
        [ServerPlace(*each) for each in seeds],
        service,
        db,
    )
    assert found.clustered == (not service)
    assert found.client.scheme == url.partition("+")[0]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis+sentinel://a", "names no service"),
        ("redis+sentinel://a/", "names no service"),
        ("redis+sentinel://a/two words", "names no service"),
        ("redis+sentinel://a/main/x", "the number of the database"),
        ("redis+sentinel://a:0/main", "port"),
        ("redis+sentinel://a b/main", "host can't be read"),
        ("redis+cluster://a/1", "one database only"),
        ("redis+cluster://a?db=1", "one database only"),
        ("redis+cluster://a/x", "one database only"),
        ("redis+cluster://a?sentinel_password=x", "redis+sentinel://"),
        ("redis://a?sentinel_username=x", "redis+sentinel://"),
        ("redis+cluster://a?verify=none", "write rediss://"),
        ("redis+other://a", "There is no engine"),
    ],
)
def test_what_can_not_be_read_is_refused(url: str, told: str) -> None:
    if "other" in url:
        from bide import Queue, UnknownEngine

        with pytest.raises(UnknownEngine, match=told):
            Queue(url)
        return
    assert told in refusal(url, BadUrl)


def test_sentinels_have_a_login_of_their_own_and_no_databases() -> None:
    found = address(f"redis+sentinel://me:own@a/main/3?sentinel_username=watch&sentinel_password={ENCODED}")
    of_master, of_sentinels = found.connection_kwargs(), sentinel_address(found).connection_kwargs()
    assert of_master["credential_provider"].get_credentials() == ("me", "own")
    assert of_sentinels["credential_provider"].get_credentials() == ("watch", CANARY)
    assert (of_master["db"], "db" in of_sentinels) == (3, False)
    assert CANARY in found.secrets
    assert_hidden(repr(found), repr(of_sentinels))


def test_a_client_of_a_cluster_is_taken_over(redis_cluster_url: str) -> None:
    nodes = re.findall(r"([\d.]+):(\d+)", redis_cluster_url)
    sync = redis.RedisCluster(host=nodes[0][0], port=int(nodes[0][1]), socket_timeout=3.0)
    with sync:
        found = address("redis://?namespace=shop", client=sync)
    assert found.clustered
    assert found.seeds
    assert (found.timeout, found.namespace, found.client.scheme) == (3.0, "shop", "redis")
    assert found.shown.startswith("redis+cluster://")
    own = address("redis://", client=aioredis.RedisCluster(host="db.example", port=7000, username="me", password="own"))
    assert own.seeds == (ServerPlace("db.example", 7000),)
    assert own.connection_kwargs("async")["credential_provider"].get_credentials() == ("me", "own")


def test_a_url_beside_a_client_of_a_cluster_names_no_server() -> None:
    for url in ("redis+cluster://", "redis+cluster://a", "redis://a"):
        assert "beside client=" in refusal(url, ConfigError, client=aioredis.RedisCluster(host="db.example"))

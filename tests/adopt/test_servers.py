"""Old systems in a Cluster, behind Sentinels, with TLS or a password."""

from pathlib import Path

import pytest
import redis

from tests.adopt.reading import everything
from tests.cli.running import Bide
from tests.servers.cluster import RedisCluster
from tests.servers.fixtures import NewRedis
from tests.servers.sentinel import SentinelGroup

COMMAND = ("adopt", "redis-zset", "{old}:bucket", "--job-hash", "{old}:jobs", "--topic", "t", "--source")


def fill(client: "redis.Redis | redis.RedisCluster", count: int = 1_500) -> None:
    client.delete("{old}:bucket", "{old}:jobs")
    client.hset("{old}:jobs", mapping={f"id-{number}": str(number) for number in range(count)})
    client.zadd("{old}:bucket", {f"id-{number}": 4_000_000_000 + number for number in range(count)})


def adopted() -> list[int]:
    return [each.body for each in everything("t")]


@pytest.mark.slow
def test_keys_of_one_slot_are_adopted_from_a_cluster(bide: Bide, redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    first = redis_cluster.nodes[0]
    with redis.RedisCluster(host="127.0.0.1", port=first.port) as client:
        fill(client)
        ended = bide(*COMMAND, redis_cluster_url)
        assert (ended.code, ended.err) == (0, "")
        assert client.exists("{old}:bucket", "{old}:jobs") == 0
    assert adopted() == list(range(1_500))
    apart = bide("adopt", "redis-zset", "bucket", "--job-hash", "jobs", "--topic", "t", "--source", redis_cluster_url)
    assert apart.code == 0  # there is nothing
    with redis.RedisCluster(host="127.0.0.1", port=first.port) as client:
        client.zadd("bucket", {"1": 4_000_000_000})
        client.hset("jobs", "1", "1")
        apart = bide("adopt", "redis-zset", "bucket", "--job-hash", "jobs", "--topic", "t", "--source", redis_cluster_url)
        assert apart.code == 1
        assert "are on several nodes of the Cluster" in apart.err
        assert client.zcard("bucket") == 1


@pytest.mark.slow
def test_keys_are_adopted_from_the_master_that_sentinels_name(
    bide: Bide, redis_sentinels: SentinelGroup, redis_sentinels_url: str
) -> None:
    with redis.Redis(host="127.0.0.1", port=redis_sentinels.master().port) as client:
        fill(client)
    assert bide(*COMMAND, redis_sentinels_url).code == 0
    assert adopted() == list(range(1_500))


def test_a_password_is_read_from_a_file_and_never_shown(bide: Bide, new_redis: NewRedis, folder: Path) -> None:
    server = new_redis(requirepass="geheim")
    with server.client() as client:
        fill(client)
    (folder / "source").write_text(f"redis://:wrong@127.0.0.1:{server.port}/0\n")
    command = (*COMMAND[:-1], "--source-file", "source")
    wrong = bide(*command)
    assert wrong.code == 1
    assert "refused the user or the password" in wrong.err
    assert "wrong" not in wrong.err.replace("WRONGPASS", "")
    (folder / "source").write_text(f"redis://:geheim@127.0.0.1:{server.port}/0\n")
    ended = bide(*command)
    assert (ended.code, "geheim" in ended.out) == (0, False)
    assert adopted() == list(range(1_500))

"""A program in another language needs no right that `bide doctor --acl` does not give to a producer."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.exceptions as theirs

from bide.engines.redis.doctor import rights
from bide.engines.redis.script import commands, send_script
from tests.redis.foreign import Foreign
from tests.redis.keyspace import held
from tests.servers.programs import is_redis_6
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.server, pytest.mark.skipif(is_redis_6(), reason="Redis 6.2 checks rights in another way")]

SENDS: list[list[Any]] = [
    [], ["delay", "1h", "expires_in", "1h"], ["key", "k", "delay", "1h"], ["key", "k", "if_exists", "replace"],
    ["key", "k", "if_exists", "later", "max_wait", "1h"],
    ["key", "k2", "unique_for", "1h"], ["key", "k3", "if_exists", "merge"], ["key", "k3", "if_exists", "merge"],
    ["operation", "once"], ["headers", '{"a": "b"}', "priority", "low"], ["key", "k", "if_exists", "later", "at",
    "2100-01-01T00:00Z"],
]  # fmt: skip


@pytest.fixture
def admin(redis_url: str, redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        client.execute_command(*rights.line("producer", "bide").split())
        client.acl_log_reset()
        yield client
        client.acl_deluser("bide-producer")


@pytest.fixture
def producer(admin: redis.Redis, redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client(username="bide-producer", password="CHANGE-ME") as client:
        yield client


def test_a_producer_may_send(admin: redis.Redis, producer: redis.Redis) -> None:
    foreign = Foreign(producer)
    for args in SENDS:
        foreign.send("t", '"' + "x" * 2_000 + '"', *args, "shards", 2)
    sha = admin.script_load(send_script())
    producer.evalsha(sha, 2, *foreign.first, "t", "1")
    assert {entry["object"] for entry in admin.acl_log()} <= {"client|setinfo"}


def test_a_producer_may_not_send_to_another_namespace(producer: redis.Redis) -> None:
    with pytest.raises(theirs.NoPermissionError):
        Foreign(producer, "shop").send("t", "1", "shards", 1)


@pytest.mark.parametrize("name", sorted(set(commands(send_script()))))
def test_a_right_that_is_missing_is_named_before_anything_is_sent(admin: redis.Redis, producer: redis.Redis, name: str) -> None:
    Foreign(admin).send("t", "1", "shards", 1)
    admin.acl_setuser("bide-producer", enabled=True, commands=[f"-{name}"])
    before = held(admin)
    with pytest.raises(theirs.ResponseError, match=f"(?i){name}"):
        Foreign(producer).send("t", "1", "key", "k", "operation", "once")
    assert held(admin) == before

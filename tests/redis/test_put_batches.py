"""A batch comes to what its messages would come to one by one, however they name one another."""

import random
from typing import Any

import pytest

from bide.engines.base import NewMessage, Ref
from bide.testing.contract.bench import Bench
from tests.redis.counted import counted
from tests.redis.invariants import invariants_hold
from tests.redis.keyspace import bench_at
from tests.servers.redis import RedisServer

DAY = 86_400_000
HOLDERS = [Ref(topic=topic, key=key) for topic in "ab" for key in ("k1", "k2", "k3")]


def batch(chance: random.Random) -> list[NewMessage]:
    return [
        NewMessage(
            chance.choice("ab"),
            b"x",
            delay=chance.choice((0, 1_000, 60_000, DAY)),
            key=chance.choice((None, "k1", "k2", "k3")),
            if_exists=chance.choice(("keep", "error", "replace", "later")),
            expires_in=chance.choice((None, 1_000, DAY)),
            operation=chance.choice((None, None, "o1", "o2")),
        )
        for _ in range(chance.randrange(1, 12))
    ]


async def put(bench: Bench, batches: list[list[NewMessage]], *, alone: bool) -> list[tuple[Any, ...]]:
    """What became of each: which message it was told to be, in the order of the first mention; when due; and how."""
    order: dict[str, int] = {}
    found: list[tuple[Any, ...]] = []
    for new in batches:
        sent = [each for one in new for each in await bench.put_all(one)] if alone else await bench.put_all(*new)
        found += [(order.setdefault(each.id, len(order)), each.due, each.outcome) for each in sent]
    return found


def written(client: Any) -> list[Any]:
    """What is kept of topics, keys, expiries and changes, whatever numbers topics and messages have."""

    def keys(end: str) -> list[bytes]:
        found: list[bytes] = client.keys(f"*:{end}")
        return sorted(found)

    def hashes(end: str) -> list[dict[bytes, bytes]]:
        found: list[Any] = [client.hgetall(key) for key in keys(end)]
        return found

    counts = (b"name", b"live", b"keys", b"next")
    return [
        sorted((name, told.partition(b"@")[2]) for each in hashes("topics") for name, told in each.items()),
        sorted([each.get(field, b"") for field in counts] for each in hashes("h")),
        sorted(len(bucket) for each in hashes("k0") for bucket in each.values()),
        sorted(life for each in hashes("life") for life in each.values()),
        sorted(time for key in keys("exp") for _, time in client.zrange(key, 0, -1, withscores=True)),
    ]


@pytest.mark.parametrize("seed", range(8))
async def test_a_batch_comes_to_what_its_messages_come_to_one_by_one(
    redis_server: RedisServer, redis_url: str, seed: int
) -> None:
    chance = random.Random(seed)
    batches = [batch(chance) for _ in range(4)]
    seen: list[Any] = []
    with redis_server.client() as client:
        for alone in (True, False):
            client.flushall()
            async with bench_at(redis_url) as bench:
                told = await put(bench, batches, alone=alone)
                held = [each and (each.due, each.body) for each in await bench.engine.get(HOLDERS, now=bench.now)]
                seen.append((told, await bench.engine.stats(now=bench.now), written(client), held))
    assert seen[0] == seen[1]


async def test_a_message_replaced_twice_in_a_batch_expires_as_the_last_says(redis_server: RedisServer, redis_url: str) -> None:
    with redis_server.client() as client:
        async with bench_at(redis_url) as bench:
            await bench.put("t", b"first", delay=1_000, key="k", expires_in=DAY)
            second = NewMessage("t", b"second", delay=1_000, key="k", if_exists="replace", expires_in=1_000)
            last = NewMessage("t", b"last", delay=1_000, key="k", if_exists="replace")
            await bench.put_all(second, last)
            assert client.keys("*:exp") == []


async def test_a_message_that_expires_at_once_ends_with_the_next_of_its_key(redis_server: RedisServer, redis_url: str) -> None:
    with redis_server.client() as client:
        async with bench_at(redis_url) as bench:
            await bench.put("t", b"first", delay=DAY, key="k")
            second = NewMessage("t", b"second", key="k", if_exists="replace", expires_in=0)
            third = NewMessage("t", b"third", delay=DAY, key="k")
            await bench.put_all(second, third)
            assert client.keys("*:exp") == []
            invariants_hold(client)


async def test_what_is_noted_of_keys_and_operations_is_written_at_once(redis_server: RedisServer, redis_url: str) -> None:
    new = [NewMessage("t", b"x", delay=DAY, key=f"{i}", expires_in=DAY, operation=f"o{i}") for i in range(1_000)]
    with redis_server.client() as client, counted(client) as ran:
        async with bench_at(redis_url) as bench:
            await bench.put_all(*new)
            await bench.put_all(*new)
    assert [each.calls < 100 for each in ran if each.name == "put_named"] == [True, True]

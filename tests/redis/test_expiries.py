"""When messages expire is noted in many small keys, and where a release before has noted it."""

import random

import pytest
import redis

from bide.engines.base import NewMessage
from bide.testing.contract.bench import Bench
from tests.redis.invariants import invariants_hold
from tests.redis.keyspace import COLOURS, bench_at, names
from tests.servers.redis import RedisServer

P = "{shop:0}:"
OLD, NEXT = f"{P}exp", f"{P}exp:next"
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
PARTS = 127

both_colours = pytest.mark.parametrize("colour", COLOURS)


def parts(client: redis.Redis) -> list[str]:
    return [each for each in names(client) if each.startswith(f"{OLD}:") and each != NEXT]


def as_before(client: redis.Redis) -> int:
    """What is noted becomes what the release before would have noted; gives how many there are."""
    noted = parts(client)
    if noted:
        client.zunionstore(OLD, [OLD, *noted], aggregate="MIN")
        client.delete(NEXT, *noted)
    return client.zcard(OLD)


async def tended(bench: Bench) -> int:
    """How many have expired."""
    count = 0
    while True:
        told = await bench.engine.tend(now=bench.now)
        count += told.expired
        if not told.more:
            return count


@both_colours
async def test_many_expiries_are_spread_evenly(redis_url: str, redis_server: RedisServer, colour: str) -> None:
    chance, many = random.Random(1), 20_000
    async with bench_at(redis_url, colour) as bench:
        for _ in range(0, many, 1_000):
            await bench.put_all(*[NewMessage("t", b"x", delay=chance.randrange(HOUR), expires_in=DAY) for _ in range(1_000)])
        with redis_server.client() as client:
            sizes = [client.zcard(each) for each in parts(client)]
            assert (len(sizes), sum(sizes), client.exists(OLD)) == (PARTS, many, 0)
            assert max(sizes) < 2 * many / PARTS, sorted(sizes)
            invariants_hold(client)


@both_colours
async def test_a_message_whose_expiry_a_release_before_has_noted_expires(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with bench_at(redis_url, colour) as bench:
        for delay in range(5):
            await bench.put("t", delay=delay, expires_in=DAY)
        with redis_server.client() as client:
            assert as_before(client) == 5
            await bench.put("t", delay=2, expires_in=DAY)
            bench.move(DAY + 1)
            assert await tended(bench) == 2
            bench.move(1)
            assert await tended(bench) == 2
            bench.move(2)
            assert await tended(bench) == 2
            assert not client.exists(OLD, NEXT, *parts(client))


@both_colours
async def test_an_expiry_that_a_release_before_has_noted_is_noted_once(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    """Whatever becomes of its message."""
    async with bench_at(redis_url, colour) as bench:
        with redis_server.client() as client:

            def before_left(count: int) -> None:
                assert client.zcard(OLD) == count
                invariants_hold(client)

            held = [await bench.running("t", expires_in=DAY) for _ in range(4)]
            waiting = [await bench.put("t", delay=HOUR, expires_in=DAY, key=f"k{n}") for n in range(5)]
            assert as_before(client) == 9
            await bench.end(held[0], "done")
            before_left(8)
            await bench.end(held[1], "retry", delay=SECOND)
            before_left(7)
            await bench.end(held[2], "release")
            before_left(6)
            await bench.end(held[3], "dead")
            before_left(5)
            await bench.engine.requeue("t", now=bench.now)
            before_left(5)
            await bench.cancel(id=waiting[0].id)
            before_left(4)
            await bench.reschedule(waiting[1].id, delay=2 * HOUR)
            before_left(3)
            await bench.put("t", delay=3 * HOUR, key="k2", if_exists="replace")
            before_left(2)
            await bench.put("t", delay=3 * HOUR, key="k3", if_exists="later", expires_in=HOUR)
            before_left(1)
            await bench.engine.purge("t", "scheduled", now=bench.now)
            before_left(0)


@both_colours
async def test_what_has_ended_before_it_expired_asks_for_upkeep_once(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with bench_at(redis_url, colour) as bench:
        first = await bench.put("t", delay=1, expires_in=HOUR)
        await bench.put("t", delay=2, expires_in=2 * HOUR)
        await bench.cancel(id=first.id)
        with redis_server.client() as client:
            assert len(parts(client)) == 1
            bench.move(HOUR + 1)
            assert await tended(bench) == 0
            assert int(client.hget(f"{P}meta", "upkeep")) > bench.now
            bench.move(HOUR + 1)
            assert await tended(bench) == 1
            assert not client.exists(NEXT)

"""When messages expire is noted in many small keys, and where a release before has noted it."""

import random

import pytest
import redis

from bide.engines.base import NewMessage
from bide.testing.contract.bench import Bench
from tests.redis.invariants import invariants_hold
from tests.redis.keyspace import COLOURS, bench_at, names, note_as_before, parts_of_expiries
from tests.servers.redis import RedisServer

P = "{shop:0}:"
OLD, NEXT = f"{P}exp", f"{P}exp:next"
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
PARTS = 127

both_colours = pytest.mark.parametrize("colour", COLOURS)


def parts(client: redis.Redis) -> list[str]:
    return parts_of_expiries(client, P)


def as_before(client: redis.Redis) -> int:
    return note_as_before(client, P)


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
async def test_expiries_of_a_batch_that_a_release_before_has_noted_are_noted_once(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with bench_at(redis_url, colour) as bench:
        with redis_server.client() as client:
            some = [NewMessage("t", b"x", delay=HOUR, expires_in=DAY, key=f"k{n}", if_exists="replace") for n in range(5)]
            await bench.put_all(*some)
            assert as_before(client) == 5
            await bench.put_all(*some[:4], NewMessage("t", b"x", expires_in=DAY))
            assert client.zcard(OLD) == 1
            invariants_hold(client)


@both_colours
async def test_a_message_that_a_batch_replaces_twice_has_the_expiry_of_the_second(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with bench_at(redis_url, colour) as bench:
        with redis_server.client() as client:
            plain = NewMessage("t", b"x", delay=HOUR, key="k", if_exists="replace")
            expiring = NewMessage("t", b"x", delay=HOUR, key="k", if_exists="replace", expires_in=DAY)
            for batch in ([plain], [expiring, plain], [plain, expiring], [expiring, expiring, plain]):
                await bench.put_all(*batch)
                assert len(parts(client)) == (batch[-1] is expiring)
                invariants_hold(client)


@both_colours
async def test_with_the_last_topic_nothing_is_left_of_expiries(redis_url: str, redis_server: RedisServer, colour: str) -> None:
    """At once, and also of a topic that a release before made."""
    async with bench_at(redis_url, colour) as bench:
        with redis_server.client() as client:
            for key in ("put", "moved"):
                sent = await bench.put("t", delay=HOUR, expires_in=DAY)
                if key == "moved":
                    as_before(client)
                    [topic] = [each for each in names(client) if each.endswith(":h")]
                    client.hdel(topic, "expires")
                    await bench.reschedule(sent.id, delay=2 * HOUR)
                assert client.exists(NEXT)
                await bench.cancel(id=sent.id)
                assert not client.exists(OLD, NEXT, *parts(client)), key


@both_colours
@pytest.mark.parametrize("budget", [1, 2, 3])
async def test_small_budgets_end_all_that_has_expired(
    redis_url: str, redis_server: RedisServer, colour: str, budget: int
) -> None:
    """Although most times at which to look into a part are of messages that have ended, as are some entries."""
    async with bench_at(redis_url, colour) as bench:
        with redis_server.client() as client:
            ids = [(await bench.put(f"t{n % 7}", delay=n * SECOND, expires_in=HOUR)).id for n in range(40)]
            for each in ids[::2]:
                await bench.cancel(id=each)
            noted = {name: client.zrange(name, 0, 0)[0] for name in parts(client)}
            for name, full in noted.items():
                client.zadd(name, {full[:-1] + b"?": 1})  # as a release before leaves it, which ends the message
                client.zadd(NEXT, {name.removeprefix(f"{OLD}:"): 1})
            bench.move(2 * HOUR)
            count, more = 0, True
            while more:
                told = await bench.engine.tend(budget, now=bench.now)
                assert told.expired <= budget
                count, more = count + told.expired, told.more
            assert count == 20
            assert not client.exists(OLD, NEXT, *parts(client))


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


@both_colours
async def test_a_claim_tells_of_upkeep_in_time_again_once_it_was_told_too_late(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    """The upkeep of a release before doesn't know of these expiries. That of this one does, even with nothing to do."""
    async with bench_at(redis_url, colour) as bench:
        await bench.put("t", expires_in=HOUR)
        with redis_server.client() as client:
            client.hset(f"{P}meta", "upkeep", bench.now + DAY)
        assert await tended(bench) == 0
        assert (await bench.look("other")).upkeep == bench.now + HOUR

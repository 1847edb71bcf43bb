"""A claim of many topics opens those of which something is due, whatever becomes of the others."""

import random

import pytest
import redis

from bide.engines.base import Move, NewMessage, Ref
from bide.testing.contract.bench import Bench, ending
from tests.redis.crowd import TOPICS, Scene
from tests.redis.keyspace import COLOURS, bench_at, drain, every, finish_all, names, take_all
from tests.servers.redis import RedisServer

both_colours = pytest.mark.parametrize("colour", COLOURS)
MANY = [f"t{i}" for i in range(400)]
HOUR = 3_600_000
MOST = 2_500  # commands that one script calls


def commands(client: redis.Redis) -> int:
    """How many the scripts have called since the counts began anew, which they do now."""
    told = client.info("commandstats")
    client.config_resetstat()
    return sum(int(each["calls"]) for name, each in told.items() if name.partition("|")[0] not in OUTSIDE)


OUTSIDE = {"cmdstat_evalsha", "cmdstat_eval", "cmdstat_info", "cmdstat_config"}


async def put_in_all(bench: Bench, **options: int) -> None:
    await bench.put_all(*[NewMessage(topic, b"x", **options) for topic in MANY])  # type: ignore[arg-type]


@both_colours
async def test_a_claim_of_many_topics_is_bounded_however_many_are_due(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with bench_at(redis_url, colour) as bench:
        for level in (0, 1, 2):
            for delay in (0, HOUR, 100 * HOUR):
                await put_in_all(bench, level=level, delay=delay)
        with redis_server.client() as client:
            got = 0
            client.config_resetstat()
            while True:
                claim = await bench.engine.claim(MANY, 100, 60_000, now=bench.now)
                assert commands(client) <= MOST
                if not claim.messages and not claim.more:
                    break
                got += len(claim.messages)
                assert len(claim.messages) >= 50 or got == 3 * len(MANY)
            assert got == 3 * len(MANY)


@both_colours
async def test_a_claim_asks_nothing_of_topics_that_have_nothing_due(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with bench_at(redis_url, colour) as bench:
        await put_in_all(bench, delay=HOUR)
        await put_in_all(bench)
        await bench.engine.pause("t7", True)
        await finish_all(bench, await take_all(bench, *MANY))
        with redis_server.client() as client:
            assert not await bench.claim(*MANY)
            client.config_resetstat()
            claim = await bench.engine.claim(MANY, 100, 60_000, now=bench.now)
            assert commands(client) <= 20
            assert (list(claim.messages), claim.more) == ([], False)
            assert claim.next_due is None or bench.now < claim.next_due <= bench.now + HOUR
            sent = await bench.put("t3", delay=5)
            bench.move(5)
            client.config_resetstat()
            assert [each.id for each in await bench.claim(*MANY)] == [sent.id]
            assert commands(client) <= 60


@both_colours
async def test_a_claim_that_finds_nothing_takes_the_tokens_away(redis_url: str, redis_server: RedisServer, colour: str) -> None:
    """Or each of them would wake the next sleeper for nothing."""
    async with bench_at(redis_url, colour) as bench:
        await put_in_all(bench, delay=HOUR)
        await put_in_all(bench)
        with redis_server.client() as client:
            await finish_all(bench, await take_all(bench, *MANY))
            assert not {name for name in names(client) if ":w:" in name}
            await bench.put("t1")
            await bench.put("t2")
            assert not await bench.claim("t3")
            assert {name for name in names(client) if ":w:" in name} == {"{shop:0}:w:t1", "{shop:0}:w:t2"}


@both_colours
async def test_topics_that_are_left_behind_have_their_turn(redis_url: str, colour: str) -> None:
    """Each has more than enough for every claim."""
    async with bench_at(redis_url, colour) as bench:
        for _ in range(20):
            await put_in_all(bench)
        met: set[str] = set()
        for _ in range(200):
            claim = await bench.engine.claim(MANY, 10, 60_000, now=bench.now)
            bench.now += 1
            met |= {each.topic for each in claim.messages}
        assert len(met) > 0.9 * len(MANY)


@pytest.mark.parametrize("again", [False, True], ids=["ready", "retried"])
async def test_a_claim_reads_each_bucket_of_three_levels_once(redis_url: str, redis_server: RedisServer, again: bool) -> None:
    """Though levels take turns, a few messages at a time; and the oldest of a level come first."""
    async with bench_at(redis_url) as bench:
        ids: list[list[str]] = []
        for level in (0, 1, 2):
            batch = [NewMessage("t", b"x", level=level)] * 400
            ids.append([each.id for each in await bench.put_all(*batch)])
            bench.move(1)
        if again:
            ends = [ending(each, "release", delay=5_000) for each in await take_all(bench, "t")]
            for i in range(0, len(ends), 250):
                await bench.engine.settle(ends[i : i + 250], now=bench.now)
            bench.move(5_000)
        with redis_server.client() as client:
            commands(client)
            claim = await bench.engine.claim(["t"], 500, 60_000, now=bench.now)
            assert commands(client) <= (200 if again else 60)
        got = [each.id for each in claim.messages]
        assert (len(got), claim.more) == (500, False)
        for level, many in ((0, 400), (1, 80)) if not again else ():
            mine = [id for id in got if id in set(ids[level])]
            assert mine == ids[level][: len(mine)]
            assert len(mine) >= many
        rest = await take_all(bench, "t")
        assert sorted([*got, *(each.id for each in rest)]) == sorted(id for some in ids for id in some)


# what a claim goes by


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_claim_over_several_shards_takes_of_each_topic(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url + "?shards=2", colour) as bench:
        topics = ["a", "b", "c"]
        for _ in range(2):  # a batch without keys lies on one shard, the next one on the other
            await bench.engine.put([NewMessage(topic, b"") for topic in topics for _ in range(100)], now=bench.now)
        for _ in range(40):
            claimed = await bench.claim(*topics, limit=len(topics))
            assert sorted(each.topic for each in claimed) == topics
            bench.now += random.randrange(10)


async def never_too_late(client: redis.Redis, bench: Bench, topics: list[str]) -> None:
    """The time that a topic is known by is no later than that of its first message."""
    known: dict[bytes, bytes] = client.hgetall("{shop:0}:topics")  # type: ignore[assignment]
    told = {name.decode(): int(at.partition(b"@")[2] or 0) for name, at in known.items()}
    paused = {name for name in told if (await bench.engine.stats(name, now=bench.now)).paused}
    for each in await every(bench, topics):
        if each.state in ("scheduled", "ready") and each.topic not in paused:
            assert told[each.topic] <= each.due, each


async def test_the_time_of_a_topic_is_never_too_late_in_a_crowd(scene: Scene) -> None:
    async with bench_at(scene.url, now=scene.now) as bench:
        await never_too_late(scene.client, bench, list(TOPICS))
        await bench.claim(*TOPICS, limit=1)
        await never_too_late(scene.client, bench, list(TOPICS))
        await drain(bench, TOPICS)


@pytest.mark.parametrize("seed", range(6))
async def test_the_time_of_a_topic_is_never_too_late(redis_url: str, redis_server: RedisServer, seed: int) -> None:
    chance, topics = random.Random(seed), ["a", "b", "c"]
    delays = [0, 0, 1, 50, 3_000, 70_000, HOUR, 30 * HOUR, 1_000 * HOUR]
    ids: list[str] = []
    with redis_server.client() as client:
        async with bench_at(redis_url) as bench:
            for _ in range(150):
                topic, delay, what = chance.choice(topics), chance.choice(delays), chance.randrange(9)
                if what < 3:
                    ids.append((await bench.put(topic, delay=delay, level=chance.randrange(3))).id)
                elif what == 3 and ids:
                    await bench.engine.reschedule([Move(Ref(chance.choice(ids)), delay)], now=bench.now)
                elif what == 4 and ids:
                    await bench.engine.cancel([Ref(chance.choice(ids))], now=bench.now)
                elif what == 5:
                    await bench.engine.pause(topic, chance.random() < 0.4)
                elif what == 6:
                    bench.move(chance.choice(delays))
                    await bench.tend()
                else:
                    for each in await bench.claim(*topics, limit=chance.choice([1, 3, 50]), lease=2_000):
                        if chance.random() < 0.7:
                            await bench.end(each, chance.choice(["done", "retry", "release"]), delay=chance.choice(delays))
                await never_too_late(client, bench, topics)
            await drain(bench, topics)

"""Kept results on Redis: what is in its keys, that they go by themselves, and what a reshard does with them."""

from collections.abc import Sequence

import pytest

from bide.engines.redis import resharding
from bide.engines.redis.protocol import results
from bide.engines.results import OPEN, Arrival, Dependent, Expected, Follow, Kept, Result
from bide.testing.contract.bench import Bench
from tests.redis.keyspace import COLOURS, bench_at
from tests.redis.test_gates_resharded import begin, step
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.usefixtures("forgetful")
both_colours = pytest.mark.parametrize("colour", COLOURS)
DONE = Result(done=True, value=b"7")


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old shards need not wait until nobody sends again what he sent before."""
    monkeypatch.setattr(resharding, "REMEMBERED", 0)


@both_colours
async def test_all_keys_of_results_end_by_themselves(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    async with bench_at(f"{redis_url}?shards=3", colour) as bench:
        ids = [(await bench.put("t", delay=60_000)).id for _ in range(10)]
        results, until = bench.engine.results, bench.now + 60_000
        await results.expect([Expected(each, until) for each in ids], now=bench.now)
        await results.expect([Dependent(each, tuple(ids), until) for each in ids[:5]], now=bench.now)
        await results.follow([Follow(ids[0], each, until) for each in ids], now=bench.now)
        await results.fulfil([Kept(each, 1_000, b"7") for each in ids[:7]], now=bench.now)
        with redis_server.client() as client:
            mine = [key for kind in ("result", "waiting", "followers") for key in client.keys(f"*:{kind}:*")]
            assert len(mine) == 10 + 5 + 10
            lives = [client.pttl(key) for key in mine]
        assert all(0 < each <= 120_000 for each in lives)


@both_colours
async def test_a_message_without_keep_costs_no_key(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        held = await bench.running("t")
        assert await bench.end(held, "done") == "done"
        with redis_server.client() as client:
            assert not [key for kind in ("result", "waiting", "followers") for key in client.keys(f"*:{kind}:*")]
            assert client.hget("{shop:0}:meta", "kept") is None


@both_colours
async def test_an_old_shard_keeps_its_results_and_is_given_up_when_their_time_is_over(
    redis_server: RedisServer, redis_url: str, colour: str
) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour, now=0) as old, bench_at(url, colour, now=0) as new:
        ids = [(await old.put("t", delay=60_000)).id for _ in range(12)]
        [dependent] = [(await old.put("t", delay=60_000)).id]
        far = 4_000_000_000_000
        await old.engine.results.expect([Expected(each, far) for each in ids])
        begin(redis_url, 2)
        # Whoever knows of the new shards finds what is in the old ones, and puts more there
        await new.engine.results.expect([Dependent(dependent, tuple(ids), far)])
        assert await new.engine.results.follow([Follow(dependent, each, far) for each in ids]) == [False] * 12
        told = await new.engine.results.fulfil([Kept(each, 3_600_000, b"7") for each in ids[:6]])
        assert told == [[dependent]] * 6
        assert await old.engine.results.read(ids) == [DONE] * 6 + [OPEN] * 6
        await old.engine.results.fulfil([Kept(each, 3_600_000, b"7") for each in ids[6:]])
        assert await new.engine.results.read(ids) == [DONE] * 12
        assert (await new.engine.results.arrive([Arrival(dependent, each) for each in ids]))[-1]
        for each in [*ids, dependent]:
            assert (await new.cancel(id=each)).name == "CANCELLED"
        left = step(redis_url)
        assert left is not None
        assert left.pending == 0
        assert 3_500 < left.seconds <= 3_600
        with redis_server.client() as client:
            for number in range(3):
                client.hset(f"{{shop:{number}}}:meta", "kept", 0)
        assert step(redis_url) is None


@both_colours
async def test_who_follows_is_not_read_when_one_more_does(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    """Any number of messages may wait for the same one."""
    async with bench_at(redis_url, colour) as bench:
        part, *waiting = [(await bench.put("t", delay=60_000)).id for _ in range(4)]
        results, until = bench.engine.results, bench.now + 60_000
        await results.expect([Expected(part, until)], now=bench.now)
        await results.follow([Follow(waiting[0], part, until + 5_000)], now=bench.now)
        with redis_server.client() as client:
            client.config_resetstat()
            await results.follow([Follow(each, part, until) for each in waiting[1:]], now=bench.now)
            called = set(redis_server.commandstats())
            assert called >= {"hset", "pexpire"}
            assert called.isdisjoint({"hgetall", "hkeys", "hvals", "hscan"})
            [key] = client.keys("*:followers:*")
            assert 60_000 < client.pttl(key) - 60_000 <= 65_000  # as long as the first one waits
        [told] = await results.fulfil([Kept(part, 1_000, b"7")], now=bench.now)
        assert sorted(told) == sorted(waiting)


async def followed(bench: Bench, count: int) -> tuple[str, list[str]]:
    """A message, and the ids of so many that follow it."""
    part = (await bench.put("t", delay=60_000)).id
    results, until = bench.engine.results, bench.now + 60_000
    await results.expect([Expected(part, until)], now=bench.now)
    names = [f"0{i:023x}" for i in range(count)]
    for first in range(0, count, 1_000):
        await results.follow([Follow(each, part, until) for each in names[first : first + 1_000]], now=bench.now)
    return part, names


@both_colours
async def test_any_number_of_followers_is_told_in_pieces(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        part, names = await followed(bench, 5_000)
        few, others = await followed(bench, 3)
        with redis_server.client() as client:
            client.config_resetstat()
            told = await bench.engine.results.fulfil([Kept(part, 1_000, b"7"), Kept(few, 1_000, b"7")], now=bench.now)
            assert list(map(sorted, told)) == [names, others]
            called = redis_server.commandstats()
            assert called.keys() & {"hkeys", "hgetall", "hvals"} == set()
            assert called["hscan"]["calls"] > 5


@both_colours
async def test_no_follower_is_left_out_when_another_server_takes_over(
    new_redis: NewRedis, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each server has them in an order of its own, so where a page of one begins means nothing to another."""
    server, heard, hear = new_redis(appendonly="yes", appendfsync="always"), list[int](), results.Followers.hear

    def restart(pages: results.Followers, page: Sequence[bytes]) -> None:
        hear(pages, page)
        heard.append(len(page))
        if len(heard) in (2, 4):
            server.kill()
            server.start()

    monkeypatch.setattr(results.Followers, "hear", restart)
    async with bench_at(server.url, colour) as bench:
        part, names = await followed(bench, 3_000)
        [told] = await bench.engine.results.fulfil([Kept(part, 60_000, b"7")], now=bench.now)
        assert sorted(told) == names

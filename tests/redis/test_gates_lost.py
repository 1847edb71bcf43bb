"""Gates when answers are lost, and when servers die: nothing is done twice, and no place is given to two."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bide.engines.gates import AGAIN_MS, Called, Entry, Held, Spend
from bide.errors import OutcomeUnknown
from bide.testing.contract.bench import Bench
from tests.redis.keyspace import COLOURS, bench_at
from tests.redis.late import Place, delayed, recall
from tests.redis.proxy import hasty, proxied
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

both_colours = pytest.mark.parametrize("colour", COLOURS)
LEASE = 60_000


async def enter(bench: Bench, holder: str, **options: Any) -> Held | None:
    [entered] = await bench.engine.gates.enter([Entry("g", holder, LEASE, **options)], now=bench.now)
    return None if entered.token is None else Held("g", holder, entered.token)


async def spent(bench: Bench) -> int:
    [told] = await bench.engine.gates.spend([Spend("r", 10, 60_000, 2)], now=bench.now)
    return len(told.at)


@both_colours
async def test_a_verb_whose_answer_is_lost_is_repeated_and_done_once(place: Place, colour: str) -> None:
    async with delayed(place, colour) as (bench, proxy):
        gates = bench.engine.gates

        async def lost(act: Callable[[], Awaitable[Any]]) -> Any:
            proxy.once, before = "lose answer", proxy.scripts
            told = await act()
            assert proxy.scripts > before + 1
            return told

        held = await lost(lambda: enter(bench, "a"))
        assert held is not None
        assert await lost(lambda: enter(bench, "b", waiter="w")) is None
        assert await lost(lambda: gates.keep([held], LEASE, now=bench.now)) == [True]
        left = await lost(lambda: gates.leave([held], now=bench.now))
        assert (left.answers, left.called) == ([True], [Called("g", "w")])
        assert await lost(lambda: spent(bench)) == 2
        [rest] = await gates.spend([Spend("r", 10, 60_000, 10)], now=bench.now)
        assert len(rest.at) == 8


@both_colours
async def test_who_was_named_to_nobody_is_named_again(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    async with delayed(Place(redis_server, redis_url), colour) as (bench, proxy):
        await enter(bench, "a")
        await enter(bench, "b", waiter="w")
        bench.move(LEASE)
        proxy.once = "lose answer"
        assert (await recall(bench)).called == ()
        bench.move(AGAIN_MS)
        assert (await bench.engine.tend(now=bench.now)).called == (Called("g", "w"),)


@both_colours
async def test_who_never_hears_that_it_got_in_asks_again(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    async with (
        proxied(redis_server.port) as proxy,
        bench_at(proxy.patient_url, colour) as bench,
        bench_at(redis_url, colour) as other,
    ):
        proxy.what = "lose answer"
        with hasty(proxy):
            with pytest.raises(OutcomeUnknown):
                await enter(bench, "a")
            with pytest.raises(OutcomeUnknown):
                await spent(bench)
        proxy.what = "pass"
        held = await enter(bench, "a")
        assert held is not None
        assert await enter(bench, "a") == held
        assert await enter(other, "b") is None
        [rest] = await other.engine.gates.spend([Spend("r", 10, 60_000, 10)], now=other.now)
        assert len(rest.at) == 8


@both_colours
async def test_a_place_outlives_a_server_that_writes_to_its_disk(new_redis: NewRedis, colour: str) -> None:
    server = new_redis(appendonly="yes", appendfsync="always")
    async with bench_at(server.url, colour) as bench:
        held = await enter(bench, "a")
        assert held is not None
        assert await enter(bench, "b", waiter="w") is None
        assert await spent(bench) == 2
        server.kill()
        server.start()
        assert await enter(bench, "c") is None
        left = await bench.engine.gates.leave([held], now=bench.now)
        assert (left.answers, left.called) == ([True], [Called("g", "w")])
        [rest] = await bench.engine.gates.spend([Spend("r", 10, 60_000, 10)], now=bench.now)
        assert len(rest.at) == 8


@both_colours
async def test_of_several_shards_those_that_answered_are_told(new_redis: NewRedis, colour: str) -> None:
    server = new_redis()
    async with bench_at(f"{server.url}?shards=3", colour) as bench:
        names = [f"g{i}" for i in range(20)]
        entries = [Entry(name, "a", LEASE) for name in names]
        with server.client() as client:
            client.hset("{shop:1}:meta", mapping={"layout": "99", "shards": "3"})
            with pytest.raises(OutcomeUnknown) as failed:
                await bench.engine.gates.enter(entries, now=bench.now)
            got = failed.value.answers
            assert 0 < sum(each is None for each in got) < len(names)
            client.delete("{shop:1}:meta")
        again = await bench.engine.gates.enter(entries, now=bench.now)
        assert all(each.token is not None for each in again)
        assert all(each is None or each == other for each, other in zip(got, again, strict=True))

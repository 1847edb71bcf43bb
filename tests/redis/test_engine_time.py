"""Engine time never goes back and never stands still, whatever becomes of the server's clock."""

from collections.abc import Awaitable, Callable

import pytest
import redis

from bide.engines.base import NewMessage, Ref
from bide.engines.redis.protocol.encoding import LAYOUT, name_of
from bide.testing.contract.bench import Bench, counts
from bide.testing.contract.times import SOON, was_ahead
from bide.types import CancelResult
from tests.redis.keyspace import COLOURS, bench_at
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

Ask = Callable[[Bench], Awaitable[int]]
both_colours = pytest.mark.parametrize("colour", COLOURS)
HOUR = 3_600_000_000  # µs
META = "{shop:0}:meta"


def clock(client: redis.Redis) -> int:
    """The server's, in µs."""
    seconds, rest = client.time()
    return int(seconds) * 1_000_000 + int(rest)


async def told(bench: Bench) -> int:
    """The engine's time as a script that writes it down tells it."""
    [sent] = await bench.engine.put([NewMessage("t", b"x")])
    return sent.due


async def looked(bench: Bench) -> int:
    """The engine's time as a script that writes nothing tells it."""
    return (await bench.engine.claim(["none"], 1, 1_000)).now


@both_colours
async def test_whoever_comes_with_an_earlier_time_stays_at_the_latest(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench, bench_at(redis_url, colour) as other:
        late = bench.now + 5_000_000
        await bench.put("t", delay=1_000_000)
        bench.now = late
        [claimed] = await bench.claim("t")
        for each in (bench, other):
            for now in (late - 4_000_000, late - 1, 1):
                claim = await each.engine.claim(["t"], 1, 1_000, now=now)
                assert claim.now == late
                [sent] = await each.engine.put([NewMessage("u", b"x", delay=7)], now=now)
                assert sent.due == late + 7
        assert (await other.engine.claim(["t"], 1, 1_000, now=late + 3)).now == late + 3
        assert await bench.end(claimed, "done") == "done"


@both_colours
async def test_who_has_heard_a_time_is_told_no_earlier_one(redis_url: str, colour: str) -> None:
    """Although nothing was written, as nothing was due."""
    async with bench_at(redis_url, colour) as bench:
        late = bench.now + 60_000
        assert (await bench.engine.claim(["t"], 1, 1_000, now=late)).now == late
        assert (await bench.engine.claim(["t"], 1, 1_000, now=bench.now)).now == late


async def pace(bench: Bench, client: redis.Redis, ask: Ask, ms: int) -> tuple[int, int, int]:
    """How far engine time went while the server's clock went at least so far: engine's, least and most of the server's."""
    before = clock(client)
    first = last = await ask(bench)
    begun = asked = clock(client)
    while asked < begun + ms * 1_000:
        asked = clock(client)
        now = await ask(bench)
        assert now >= last
        last = now
    return last - first, (asked - begun) // 1_000, (clock(client) - before) // 1_000


@both_colours
@pytest.mark.parametrize("ahead", [0, HOUR])
async def test_while_the_servers_clock_is_behind_engine_time_goes_on_at_half_its_speed(
    redis_url: str, redis_server: RedisServer, colour: str, ahead: int
) -> None:
    """As after somebody set the clock back: the mark is of the time before, and so may be what the clock said then."""
    with redis_server.client() as client:
        now = clock(client)
        client.hset(META, mapping={"raw": now + ahead, "mark": now + HOUR, "layout": LAYOUT})
        async with bench_at(redis_url, colour) as bench:
            assert await looked(bench) >= (now + HOUR) // 1_000
            assert await told(bench) >= (now + HOUR) // 1_000
            for ask in (told, looked):
                went, least, most = await pace(bench, client, ask, 60)
                assert (least - 4) / 2 <= went <= most / 2 + 2
            assert await looked(bench) < (now + HOUR) // 1_000 + 10_000


LOOKS: dict[str, Callable[[Bench], Awaitable[object]]] = {
    "claim": lambda bench: bench.engine.claim(["none"], 1, 1_000),
    "tend": lambda bench: bench.engine.tend(),
    "get": lambda bench: bench.engine.get([Ref(topic="none", key="k")]),
    "scan": lambda bench: bench.engine.scan("none", None, 1),
    "stats": lambda bench: bench.engine.stats("none"),
}


@both_colours
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("noted", [True, False])
async def test_engine_time_goes_on_although_nobody_writes(
    redis_url: str, redis_server: RedisServer, colour: str, look: str, noted: bool
) -> None:
    """After the clock was set back by an hour: the last write noted the later time, or only the engine has heard it."""
    with redis_server.client() as client:
        async with bench_at(redis_url, colour) as bench:
            ahead = clock(client) + HOUR
            if noted:
                client.hset(META, mapping={"raw": ahead, "mark": ahead, "layout": LAYOUT})
            else:
                await bench.engine.claim(["none"], 1, 1_000, now=ahead // 1_000)
            await LOOKS[look](bench)
            begun = clock(client)
            while clock(client) < begun + 60_000:
                await LOOKS[look](bench)
            asked = clock(client) - begun
            assert ahead + asked // 2 - 2_000 <= (await looked(bench)) * 1_000 < ahead + HOUR // 2


@both_colours
async def test_engine_time_goes_on_at_a_full_server(new_redis: NewRedis, colour: str) -> None:
    server = new_redis()
    with server.client() as client:
        ahead = clock(client) + HOUR
        client.hset(META, mapping={"raw": ahead, "mark": ahead, "layout": LAYOUT})
        client.config_set("maxmemory", 1)
        async with bench_at(server.url, colour) as bench:
            first = await looked(bench)
            begun = clock(client)
            while clock(client) < begun + 20_000:
                await looked(bench)
            assert await looked(bench) > first


@both_colours
async def test_when_the_servers_clock_has_caught_up_they_go_together(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    with redis_server.client() as client:
        now = clock(client)
        client.hset(META, mapping={"raw": now, "mark": now + 30_000, "layout": LAYOUT})
        async with bench_at(redis_url, colour) as bench:
            last = 0
            while clock(client) < now + 70_000:
                went = await told(bench)
                assert went >= last
                last = went
            for ask in (told, looked):
                before = clock(client) // 1_000
                assert before <= await ask(bench) <= clock(client) // 1_000


@both_colours
async def test_a_delay_is_never_cut_short(redis_url: str, redis_server: RedisServer, colour: str) -> None:
    with redis_server.client() as client:
        async with bench_at(redis_url, colour) as bench:
            for delay in (1, 2, 5) * 20:
                begin = clock(client)
                [sent] = await bench.engine.put([NewMessage("t", b"x", delay=delay)])
                assert sent.due * 1_000 >= begin + delay * 1_000
                assert sent.due * 1_000 < clock(client) + delay * 1_000 + 1_000


@both_colours
async def test_in_a_cluster_each_shard_has_a_time_of_its_own(redis_cluster_url: str, colour: str) -> None:
    """So when a clock is set back, only the shards that have heard the later time stay there.

    A message is due by the time of its own shard: the others come when the clock has caught up, none too early and none
    twice. The model knows one time for all, so its histories of a real Cluster never set the clock back.
    """
    async with bench_at(redis_cluster_url, colour) as bench:
        start = bench.now
        ids = {(await bench.put("t", delay=10_000)).id for _ in range(30)}
        ahead = name_of(min(ids)).shard
        there = {each for each in ids if name_of(each).shard == ahead}
        assert there < ids
        assert await bench.engine.cancel([Ref(min(ids))], now=start + 20_000) == [CancelResult.CANCELLED]
        assert {each.id for each in await bench.claim("t", limit=100)} == there - {min(ids)}
        bench.now = start + 9_999
        assert not await bench.claim("t", limit=100)
        bench.now = start + 10_000
        assert {each.id for each in await bench.claim("t", limit=100)} == ids - there


async def test_an_instant_that_the_clock_holds_back_is_shown_as_ready_until_a_receive_has_met_it(redis_url: str) -> None:
    async with bench_at(redis_url) as bench:
        # Given an instant that was sent before the clock was an hour ahead
        sent = await bench.put("mail", at=bench.now + SOON)
        await was_ahead(bench)
        assert (await bench.find(id=sent.id)).state == "ready"
        assert counts(await bench.engine.stats("mail", now=bench.now)) == (0, 1, 0, 0)
        # When a receive has met it, then it is scheduled
        assert await bench.claim("mail") == []
        assert (await bench.find(id=sent.id)).state == "scheduled"
        assert counts(await bench.engine.stats("mail", now=bench.now)) == (1, 0, 0, 0)

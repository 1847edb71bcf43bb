"""Shards on servers of their own: each has its connections, its clock and its listener, and no command is about two of them."""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from bide.engines.aio import AsyncEngine
from bide.engines.base import NewMessage, Ref, Settings, Verdict
from bide.engines.guard.aio import AsyncGuard
from bide.engines.guard.sync import Guard
from bide.engines.redis import CAPABILITIES
from bide.engines.redis.aio.engine import AsyncRedis
from bide.engines.redis.location import read
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.sync.engine import Redis
from bide.testing.contract import Recoloured
from bide.testing.contract.bench import SLEEP, WAKE_TIMEOUT, Bench, ending
from bide.types import CancelResult, RescheduleResult
from tests.redis.keyspace import COLOURS, bench_at, counts_are_true, drain, names
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

SHARDS = 2
LEASE = 10_000
both_colours = pytest.mark.parametrize("colour", COLOURS)


def key_of(shard: int, topic: str = "t") -> str:
    return next(key for key in (f"k{i}" for i in range(100)) if zlib.crc32(f"{topic} {key}".encode()) % SHARDS == shard)


def engine_at(servers: list[RedisServer], colour: str = "async", options: str = "") -> AsyncEngine:
    """One whose shards lie on these servers, in this order."""
    settings = Settings(url=f"{servers[0].url}?shards={SHARDS}{options}", namespace="shop")
    others = [read(replace(settings, url=f"{server.url}?{options.removeprefix('&')}")) for server in servers]
    namespace = Namespace(read(settings), settings, others)
    if colour == "async":
        return AsyncGuard(AsyncRedis(namespace, CAPABILITIES), "redis")
    return Recoloured(Guard(Redis(namespace, CAPABILITIES), "redis"))


@asynccontextmanager
async def bench_on(servers: list[RedisServer], colour: str = "async", options: str = "") -> AsyncIterator[Bench]:
    def place() -> AsyncEngine:
        return engine_at(servers, colour, options)

    bench = Bench(place(), place)
    await bench.engine.open()
    try:
        yield bench
    finally:
        await bench.close()


@pytest.fixture
def servers(new_redis: NewRedis) -> list[RedisServer]:
    return [new_redis(notify_keyspace_events="Ex") for _ in range(SHARDS)]


async def live(bench: Bench) -> None:
    """A history of every verb, which leaves nothing."""
    sent = await bench.put_all(*[NewMessage("t", b"%d" % i, key=f"k{i}", delay=i * 100) for i in range(20)])
    assert await bench.cancel(topic="t", key="k19") is CancelResult.CANCELLED
    assert await bench.reschedule(sent[18].id, delay=50) is RescheduleResult.MOVED
    assert [each.id for each in await bench.stored("t")] == [sent[i].id for i in (0, 18, *range(1, 18))]
    await bench.engine.pause("t", True)
    bench.move(10_000)
    assert not await bench.claim("t", limit=20)
    await bench.engine.pause("t", False)
    claimed = await bench.claim("t", limit=10)
    assert len(claimed) == 10
    assert await bench.extend(claimed[0], 2 * LEASE)
    verdicts: list[Verdict] = ["done", "retry", "release", "dead"]
    ends = [ending(each, verdict) for each, verdict in zip(claimed[1:9], 2 * verdicts, strict=True)]
    assert await bench.engine.settle(ends, now=bench.now) == ["done", "scheduled", "scheduled", "dead"] * 2
    await counts_are_true(bench, ["t"])
    bench.move(LEASE)
    assert (await bench.tend()).returned == 1
    assert (await bench.engine.requeue("t", now=bench.now)).count == 2
    assert await bench.engine.get([Ref(claimed[0].id)], now=bench.now)
    seen = await drain(bench, ["t"])
    assert len(seen | {each.id for each in claimed}) == 19
    assert not (await bench.engine.stats(now=bench.now)).topics


@both_colours
async def test_two_shards_on_two_servers_do_what_every_engine_does(servers: list[RedisServer], colour: str) -> None:
    async with bench_on(servers, colour) as bench:
        await live(bench)
        await bench.put_all(*[NewMessage("t", b"x", key=key_of(shard)) for shard in range(SHARDS)])
        for shard, server in enumerate(servers):
            with server.client() as client:
                assert {name.partition("}")[0] for name in names(client)} == {f"{{shop:{shard}"}


@both_colours
@pytest.mark.parametrize("wake", ["list", "poll", "expiry"])
async def test_a_message_on_any_server_wakes_a_sleeper(servers: list[RedisServer], colour: str, wake: str) -> None:
    async with bench_on(servers, colour, f"&wake={wake}") as bench:
        for shard in (0, 1, 0):
            sleeper = await bench.sleeper("t")
            await bench.put("t", key=key_of(shard))
            await asyncio.wait_for(sleeper, WAKE_TIMEOUT)
            [claimed] = await bench.claim("t", limit=5)
            assert await bench.end(claimed, "done") == "done"


@both_colours
async def test_close_ends_a_sleep_on_all_servers(servers: list[RedisServer], colour: str) -> None:
    async with bench_on(servers, colour) as bench:
        sleeper = await bench.sleeper("t")
        await bench.engine.close()
        await asyncio.wait_for(sleeper, WAKE_TIMEOUT)
        for server in servers:
            with server.client() as client:
                assert len(client.client_list()) == 1


@both_colours
async def test_a_sleep_ends_when_it_is_time_on_all_servers(servers: list[RedisServer], colour: str) -> None:
    async with bench_on(servers, colour) as bench:
        await bench.sleeper("t")  # now there is no token
        for timeout in (0.05, 0.2, 0.05):
            started = asyncio.get_running_loop().time()
            await bench.engine.wait(["t"], timeout)
            assert timeout - 0.01 <= asyncio.get_running_loop().time() - started < timeout + WAKE_TIMEOUT


@both_colours
async def test_each_server_has_its_own_time(servers: list[RedisServer], colour: str) -> None:
    async with bench_on(servers, colour) as bench:
        await bench.engine.put([NewMessage("t", b"x", key=key_of(shard)) for shard in range(SHARDS)])
        assert (await bench.put("u", key=key_of(1, "u"))).due == bench.now
        [sent] = await bench.engine.put([NewMessage("t", b"x", key=key_of(0), if_exists="replace")])
        assert sent.due < bench.now


async def test_the_shards_are_counted_on_the_first_server_though_the_first_message_goes_to_another(
    servers: list[RedisServer],
) -> None:
    async with bench_on(servers) as bench:
        await bench.put("t", key=key_of(1))
        with servers[0].client() as client:
            assert client.hget("{shop:0}:meta", "shards") == b"2"


async def test_a_server_that_is_away_stops_nobody_from_closing(servers: list[RedisServer]) -> None:
    engine = engine_at(servers, options="&timeout=0.2")
    await engine.open()
    await engine.claim(["t"], 1, LEASE)
    sleeper = asyncio.create_task(engine.wait(["t"], SLEEP))
    await asyncio.sleep(0.1)
    servers[0].stop()
    assert not (await engine.claim(["t"], 1, LEASE)).messages
    await engine.close()
    await asyncio.wait_for(sleeper, WAKE_TIMEOUT)
    with servers[1].client() as client:
        async with asyncio.timeout(WAKE_TIMEOUT):
            while len(client.client_list()) > 1:  # noqa: ASYNC110  (a busy server notices a little later)
                await asyncio.sleep(0.01)


@both_colours
async def test_no_command_names_keys_of_two_shards(new_redis: NewRedis, colour: str) -> None:
    """A server that belongs to a cluster refuses such commands."""
    server = new_redis(cluster_enabled="yes")
    with server.client() as client:
        client.execute_command("CLUSTER ADDSLOTS", *range(16_384))
        while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":  # noqa: ASYNC110  (it tells nobody)
            await asyncio.sleep(0.01)
    async with bench_at(f"{server.url}?shards=3", colour) as bench:
        await live(bench)
        sleeper = await bench.sleeper("t")
        await bench.put("t")
        await asyncio.wait_for(sleeper, WAKE_TIMEOUT)


@both_colours
async def test_a_server_with_too_many_clients_is_told_as_one_that_answers(servers: list[RedisServer], colour: str) -> None:
    async with bench_on(servers, colour, "&timeout=0.5") as bench:
        for shard in range(SHARDS):
            await bench.bury("t", key=key_of(shard))
        with servers[1].client(single_connection_client=True) as admin:
            admin.config_set("maxclients", 1)
            admin.client_kill_filter(_type="normal", skipme=True)
            assert (await bench.engine.requeue("t")).count == 1
            swept = await bench.engine.requeue("t")
            admin.config_set("maxclients", 10_000)
        assert not swept.missing
        assert re.search("answers, but can't do it now: max number of clients reached", " ".join(swept.refused))

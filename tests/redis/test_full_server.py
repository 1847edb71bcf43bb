"""A server that is full takes nothing more, and gives out all that it has."""

from typing import NamedTuple

import pytest

from bide.engines.base import NewMessage, Ref
from bide.errors import QueueFull
from bide.testing.contract.bench import Bench
from bide.types import CancelResult, State
from tests.redis.keyspace import COLOURS, bench_at, counts_are_true, finish_all, held, put_many, take_all
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.parametrize("colour", COLOURS)
TOPICS = ("done", "retried", "cancelled", "purged", "expired", "dead")


class Full(NamedTuple):
    server: RedisServer
    ids: dict[str, list[str]]


async def fill(bench: Bench, server: RedisServer) -> Full:
    """Some of everything, then ballast until nothing more is taken; the limit is then below what is there."""
    ids = {topic: await put_many(bench, topic, 300) for topic in ("done", "retried", "purged")}
    ids["cancelled"] = await put_many(bench, "cancelled", 300, delay=90_000_000)
    ids["expired"] = await put_many(bench, "expired", 300, expires_in=1_000, delay=1_000)
    ids["dead"] = await put_many(bench, "dead", 100, max_attempts=1)
    await bench.claim("dead", limit=100, lease=500)  # these leases will end
    with pytest.raises(QueueFull, match="can be drained"):
        await put_for_ever(bench)
    with server.client() as client:
        client.config_set("maxmemory", "1mb")
    return Full(server, ids)


async def put_for_ever(bench: Bench) -> None:
    while True:
        await bench.put_all(*[NewMessage("ballast", b"b" * 500, delay=40_000_000) for _ in range(100)])


@pytest.mark.always
async def test_a_batch_that_a_full_server_refuses_leaves_nothing(new_redis: NewRedis, colour: str) -> None:
    server = new_redis(maxmemory="7mb")
    async with bench_at(server.url, colour) as bench:
        await fill(bench, server)
        topics = (*TOPICS, "ballast", "fresh")
        before = await bench.engine.stats(now=bench.now)
        with server.client() as client:
            then = held(client)
            batches = (
                [NewMessage("fresh", b"1"), NewMessage("done", b"2", key="new"), NewMessage("cancelled", b"3" * 5_000)],
                [NewMessage("ballast", b"b", delay=60_000)] * 100,
                [NewMessage("fresh", b"1", operation="once", expires_in=5, delay=7)],
            )
            for batch in batches:
                with pytest.raises(QueueFull):
                    await bench.put_all(*batch)
                assert held(client) == then
        assert await bench.engine.stats(now=bench.now) == before
        await counts_are_true(bench, topics)


async def test_a_full_server_is_drained_by_the_verbs_that_end_messages(new_redis: NewRedis, colour: str) -> None:
    server = new_redis(maxmemory="7mb")
    async with bench_at(server.url, colour) as bench:
        full = await fill(bench, server)
        await drain_without_room(bench, full.ids)
        told = await bench.engine.stats(now=bench.now)
        assert (told.scheduled, told.ready, told.leased, told.dead) == (0, 0, 0, 0)
        assert not told.topics
        with server.client() as client:
            assert client.info("memory")["used_memory"] > client.info("memory")["maxmemory"], "it was over its limit throughout"
            with pytest.raises(QueueFull):
                await bench.put("done")
            client.config_set("maxmemory", "7mb")
        assert await put_many(bench, "done", 1_000)


async def test_who_listens_for_expiries_drains_a_full_server(new_redis: NewRedis, colour: str) -> None:
    server = new_redis(notify_keyspace_events="Ex")
    async with bench_at(server.url, colour) as bench:
        ids = set(await put_many(bench, "t", 50))
        with server.client() as client:
            client.config_set("maxmemory", 1)
            async with bench_at(server.url + "?wake=expiry", colour) as listener:
                claimed = await take_all(listener, "t")
                assert {each.id for each in claimed} == ids
                await finish_all(listener, claimed)
                assert (await listener.engine.stats("t", now=bench.now)).leased == 0


async def drain_without_room(bench: Bench, ids: dict[str, list[str]]) -> None:
    claimed = await take_all(bench, "done")
    assert {each.id for each in claimed} == set(ids["done"])
    assert await bench.extend(claimed[0], 90_000)
    await finish_all(bench, claimed)
    [retried, buried, released, *rest] = await take_all(bench, "retried")
    assert await bench.end(retried, "retry", delay=50, error="broke") == "scheduled"
    assert await bench.end(buried, "dead", error="no use") == "dead"
    assert await bench.end(released, "release", delay=100) == "scheduled"
    await finish_all(bench, rest)
    bench.move(2_000)
    did = await bench.tend()
    assert (did.returned, did.buried, did.expired) == (100, 100, 300)
    await finish_all(bench, await take_all(bench, "retried"))
    results = await bench.engine.cancel([Ref(id=id) for id in ids["cancelled"]], now=bench.now)
    assert set(results) == {CancelResult.CANCELLED}
    states: dict[str, State] = {"purged": "ready", "retried": "dead", "dead": "dead", "ballast": "scheduled"}
    for topic, state in states.items():
        while (await bench.engine.purge(topic, state, now=bench.now)).more:
            pass

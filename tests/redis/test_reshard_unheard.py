"""Another number of shards, of which an engine hears in the middle of what it does, or which was broken off in the middle."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bide import Queue
from bide.engines.base import End, NewMessage, Ref
from bide.engines.redis.aio.connections import AsyncConnections
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.resharding import Resharding
from bide.engines.redis.sync.connections import Connections
from bide.testing.contract.bench import Bench
from bide.types import CancelResult
from tests.redis.keyspace import bench_at, shop
from tests.redis.test_reshard import KEYS, both_colours, forgetful, reshard, shards_of
from tests.servers.cluster import RedisCluster
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

__all__ = ["forgetful"]
NEW = {3, 4, 5, 6}  # the shards that four more have, after three


async def hear(bench: Bench) -> None:
    """As another task or thread of the same program would."""
    await bench.engine.stats("t", now=bench.now)


def before_the_next_call(patch: pytest.MonkeyPatch, do: Callable[[], Any]) -> None:
    """Once, when an operation has been planned, and waits for a connection."""
    for kind in (AsyncConnections, Connections):
        take = kind.take

        def late(self: Any, take: Any = take) -> Any:
            patch.undo()
            if isinstance(self, Connections):
                asyncio.run(do())
                return take(self)
            return after(take, self)

        patch.setattr(kind, "take", late)

    async def after(take: Any, connections: AsyncConnections) -> Any:
        await do()
        return await take(connections)


@pytest.mark.parametrize(
    "new", [NewMessage("t", b"x"), NewMessage("t", b"x", key="k"), NewMessage("t", b"x", operation="once")]
)
@both_colours
async def test_what_was_planned_before_another_task_heard_of_it_goes_to_new_shards(
    redis_url: str, colour: str, new: NewMessage, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as bench:
        await bench.put("t")
        reshard(url, 4)
        with monkeypatch.context() as patch:
            before_the_next_call(patch, lambda: hear(bench))
            [sent] = await bench.engine.put([new], now=bench.now)
        assert shards_of([sent.id]) <= NEW
        assert (await bench.engine.get([Ref(sent.id)], now=bench.now))[0] is not None


@pytest.mark.parametrize("size", [1, 3])
@both_colours
async def test_a_message_of_a_shard_that_an_engine_has_not_heard_of_is_found_by_its_id(
    redis_url: str, colour: str, size: int
) -> None:
    url = f"{redis_url}?shards={size}"
    async with bench_at(url, colour) as first, bench_at(url, colour) as second, bench_at(url, colour) as third:
        held = await third.running("t")
        reshard(url, size + 1)
        async with bench_at(url, colour) as awake:
            sent = [(await awake.put("t", delay=5_000)).id for _ in range(4)]
            refs = [Ref(id) for id in [*sent, "no such id"]]
            found = await first.engine.get(refs, now=first.now)
            assert [each.id if each else None for each in found] == [*sent, None]
            told = await second.engine.cancel(refs, now=second.now)
            assert told == [CancelResult.CANCELLED] * 4 + [CancelResult.GONE]
            ends = [End(each.topic, each.id, each.token, "done") for each in (held, await awake.running("other"))]
            assert await third.engine.settle(ends, now=third.now) == ["done", "done"]


async def _stats(bench: Bench) -> int:
    return (await bench.engine.stats("t", now=bench.now)).ready


async def _scan(bench: Bench) -> int:
    return len((await bench.engine.scan("t", "ready", 10, now=bench.now)).messages)


async def _claim(bench: Bench) -> int:
    claim = await bench.engine.claim(["t"], 10, 60_000, now=bench.now)
    return int(claim.more or len(claim.messages) == 1)


async def _requeue(bench: Bench) -> int:
    return (await bench.engine.requeue("t", now=bench.now)).count


async def _purge(bench: Bench) -> int:
    return (await bench.engine.purge("t", "ready", now=bench.now)).count


@pytest.mark.parametrize("look", [_stats, _scan, _claim, _requeue, _purge])
@both_colours
async def test_whoever_looks_over_all_shards_looks_at_those_too_that_it_hears_of_meanwhile(
    redis_url: str, colour: str, look: Callable[[Bench], Awaitable[int]]
) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as asleep, bench_at(url, colour) as awake:
        await asleep.put("other")
        reshard(url, 4)
        await awake.bury("t")
        await awake.put("t")
        assert await look(asleep) == 1


@both_colours
async def test_old_shards_are_given_up_while_somebody_looks(redis_url: str, colour: str, forgetful: None) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as asleep, bench_at(url, colour) as awake:
        for n in range(4):
            await awake.put("t", key=f"{n}", delay=9_000 if n else 0)
        page = await asleep.engine.scan("t", None, 1, now=asleep.now)
        await awake.engine.purge("t", "ready", now=awake.now)
        await awake.engine.purge("t", "scheduled", now=awake.now)
        with Resharding(shop(url)._namespace) as work:
            assert work.begin(4)
            assert work.step() is None
        sent = [(await awake.put("t", delay=9_000)).id for _ in range(4)]
        found = await asleep.engine.scan("t", None, 10, page.after, now=asleep.now)
        assert {each.id for each in found.messages} == set(sent)
        # and back: the mark of a page names a shard that is not there any more
        page = await asleep.engine.scan("t", None, 3, now=asleep.now)
        await awake.engine.purge("t", "scheduled", now=awake.now)
        with Resharding(shop(url)._namespace) as work:
            assert work.begin(1)
            assert work.step() is None
        assert (await awake.engine.scan("t", None, 3, page.after, now=asleep.now)).messages == []


@both_colours
async def test_who_stores_the_old_way_in_a_shard_that_never_had_a_message_comes_too_late(
    redis_url: str, colour: str, forgetful: None
) -> None:
    """It slept through the whole reshard, between shard 0 and the other one."""
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as asleep, bench_at(url, colour) as awake:
        namespace = shop(url)._namespace
        place = {key: namespace.shard_of(NewMessage("t", b"", key=key), 0, namespace.placed(0, 3)) for key in KEYS}
        first = await awake.put("t", key=next(key for key in KEYS if place[key] == 0))
        await awake.engine.cancel([Ref(first.id)], now=awake.now)
        engine: Any = asleep.engine if colour == "async" else asleep.engine.engine  # type: ignore[attr-defined]
        calls = engine._engine._shards[0].calls
        pin = calls._pin

        def work() -> None:
            calls._pin = pin
            with Resharding(shop(url)._namespace) as work:
                assert work.begin(4)
                assert work.step() is None

        async def slowly(*args: Any) -> None:
            await pin(*args)
            work()

        def slowly_in_a_thread(*args: Any) -> None:
            pin(*args)
            work()

        calls._pin = slowly if colour == "async" else slowly_in_a_thread
        sent = await asleep.put("t", key=next(key for key in KEYS if place[key] == 1))
        async with bench_at(redis_url) as anybody:
            found = [each.id for _ in range(4) for each in await anybody.claim("t")]
        assert found == [sent.id]


@pytest.mark.parametrize("servers", ["redis_url", "redis_cluster_url"])
def test_a_namespace_that_has_had_no_message_is_resharded(servers: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(servers)
    reshard(url, 5)
    with Resharding(shop(url)._namespace) as work:
        assert work.size == 5
        work.step()
    with Queue(url, namespace="shop") as queue:
        assert shards_of([queue.send("t", n).id for n in range(5)]) == set(work.spread.current.numbers)


def test_a_change_of_shards_is_confirmed_and_all_that_goes_to_new_ones(
    redis_cluster_url: str, redis_cluster: RedisCluster
) -> None:
    """Those of a Cluster are reached by connections of their own."""
    url = f"{redis_cluster_url}?confirm=replicas:1"

    def waits() -> int:
        return sum(each.commandstats().get("wait", {}).get("calls", 0) for each in redis_cluster.masters())

    with Queue(url, namespace="shop") as queue:
        queue.send("t", 0)
        before = waits()
        reshard(url, 6)
        assert waits() >= before + 6
        queue.stats("t")
        before = waits()
        sent = [queue.send("t", n).id for n in range(12)]
        assert len(shards_of(sent)) == 6
        assert waits() >= before + 12


def test_a_namespace_on_a_disk_that_is_always_synced_is_resharded(new_redis: NewRedis) -> None:
    """Redis before 7.2 knows no WAITAOF, and needs none then."""
    server = new_redis(appendonly="yes", appendfsync="always")
    url = f"{server.url}?confirm=aof"
    with Queue(url, namespace="shop") as queue:
        queue.send("t", 1, key="k")
        reshard(url, 3)
        assert queue.send("t", 1, key="k").outcome == "kept"
        assert [queue.send("t", n).outcome for n in range(3)] == ["created"] * 3
        assert "waitaof" not in server.commandstats()


async def test_a_server_that_answers_that_messages_are_spread_otherwise_is_not_away(redis_url: str) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url) as bench:
        await bench.put("t")
        engine: Any = bench.engine
        shard: AsyncShard = engine._engine._shards[0]
        reshard(url, 4)
        presence = shard.connections.server.presence
        presence.lose()
        await shard.calls._look()
        assert not shard.is_away()


@pytest.mark.parametrize("wake", ["list", "expiry"])
@both_colours
async def test_who_sleeps_through_it_is_woken_by_what_comes_to_new_shards(
    new_redis: NewRedis, colour: str, wake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("aio", "sync"):
        monkeypatch.setattr(f"bide.engines.redis.{module}.wakeup.SWEEP", 0.1)
    server: RedisServer = new_redis(notify_keyspace_events="Ex")
    url = f"{server.url}?shards=2&wake={wake}"
    async with bench_at(url, colour) as asleep, bench_at(url) as awake:
        await awake.put("t", delay=10**9)
        await asleep.claim("t")
        sleep = asyncio.create_task(asleep.engine.wait(["t"], 60.0))
        reshard(url, 3)
        await asyncio.wait_for(sleep, 30)  # it has heard of it
        await asleep.claim("t")
        await asleep.engine.wait(["t"], 0.3)  # tells the new shards that it waits for keys that expire
        with server.client() as client:
            told = [client.hget(f"{{shop:{number}}}:meta", "expiry") for number in (2, 3, 4)]
        assert told == [b"1" if wake == "expiry" else None] * 3

"""When nothing is left of messages, nothing is left of what was kept for them."""

from collections.abc import Awaitable, Callable

import pytest

from bide.engines.base import NewMessage, Ref
from bide.testing.contract.bench import Bench
from bide.types import CancelResult
from tests.redis.crowd import TOPICS, Scene
from tests.redis.keyspace import COLOURS, bench_at, drain, finish_all, names, put_many, take_all
from tests.servers.redis import RedisServer

DAY = 86_400_000
LARGE = b"L" * 5_000


async def plain(at: Bench) -> None:
    await put_many(at, "t", 300)
    await finish_all(at, await take_all(at, "t"))


async def one_by_one(at: Bench) -> None:
    await put_many(at, "t", 70, delay=1_000)
    at.move(1_000)
    for each in await take_all(at, "t"):
        await at.end(each, "done")


async def keyed(at: Bench) -> None:
    for i in range(300):
        await at.put("t", b"x", key=f"k{i}", delay=i * 1_000)
    at.move(400_000)
    await finish_all(at, await take_all(at, "t"))


async def replaced(at: Bench) -> None:
    await at.put("t", LARGE, key="k", delay=70_000, expires_in=DAY)
    await at.put("t", b"x", key="k", if_exists="replace", delay=5)
    await at.put("t", LARGE, key="k", if_exists="later", delay=80_000, expires_in=5)
    await at.put("t", b"y", key="k", if_exists="replace")
    [first] = await at.claim("t")
    await at.put("t", LARGE, key="k", if_exists="replace")
    [second] = await at.claim("t")
    await finish_all(at, [first, second])


async def of_all_levels(at: Bench) -> None:
    for level in (0, 1, 2):
        await put_many(at, "t", 70, level=level, delay=level * 50_000)
    at.move(200_000)
    await finish_all(at, await take_all(at, "t"))


async def far_away(at: Bench) -> None:
    for days in (0, 1, 2, 40, 400, 30_000):
        await put_many(at, "t", 10, delay=days * DAY)
    at.move(30_001 * DAY)
    await finish_all(at, await take_all(at, "t"))


async def large(at: Bench) -> None:
    ids = [(await at.put("t", LARGE, delay=delay)).id for delay in (0, 0, 5, 90_000)]
    await finish_all(at, await take_all(at, "t"))
    assert set(await at.engine.cancel([Ref(id=id) for id in ids[2:]], now=at.now)) == {CancelResult.CANCELLED}


async def buried_and_purged(at: Bench) -> None:
    for i in range(5):
        await at.bury("t", LARGE if i == 2 else b"x", key=f"k{i}" if i % 2 else None, expires_in=DAY)
    assert (await at.engine.purge("t", "dead", now=at.now)).count == 5


async def buried_and_requeued(at: Bench) -> None:
    for i in range(5):
        await at.bury("t", LARGE if i == 2 else b"x", key=f"k{i}" if i % 2 else None, expires_in=DAY)
    assert (await at.engine.requeue("t", now=at.now)).count == 5
    await finish_all(at, await take_all(at, "t"))


async def dead_for_too_long(at: Bench) -> None:
    await at.bury("t", key="k")
    at.move(40 * DAY)
    assert (await at.tend()).dropped == 1
    assert (await at.engine.purge("t", "dead", now=at.now)).count == 0  # it forgets how many were dropped


async def dead_and_forgotten(at: Bench) -> None:
    for i in range(5):
        await at.bury("t", LARGE if i == 2 else b"x", key=f"k{i}")
    at.move(40 * DAY)
    assert (await at.tend()).dropped == 5
    assert (await at.engine.stats("t", now=at.now)).dead_dropped == 5
    at.move(20 * DAY)
    await at.tend()
    assert (await at.engine.stats("t", now=at.now)).dead_dropped == 5
    at.move(20 * DAY)
    await at.tend()
    assert "t" not in (await at.engine.stats(now=at.now)).topics


async def paused(at: Bench) -> None:
    await at.engine.pause("t", True)
    await at.put("t")
    assert not await at.claim("t")
    await at.engine.pause("t", False)
    await finish_all(at, await take_all(at, "t"))
    await at.engine.pause("empty", True)
    await at.engine.pause("empty", False)


async def cancelled(at: Bench) -> None:
    ids = [id for delay in (0, 5, 70_000, DAY, 900 * DAY) for id in await put_many(at, "t", 90, delay=delay)]
    for i in range(0, len(ids), 100):
        await at.engine.cancel([Ref(id=id) for id in ids[i : i + 100]], now=at.now)


async def expired(at: Bench) -> None:
    await put_many(at, "t", 90, expires_in=10, delay=5)
    at.move(DAY)
    assert (await at.tend()).expired == 90


async def expired_when_claimed(at: Bench) -> None:
    await put_many(at, "t", 90, expires_in=10, delay=5)
    await put_many(at, "t", 90, expires_in=10, delay=90_000)
    at.move(DAY)
    assert not await take_all(at, "t")


async def expired_when_retried(at: Bench) -> None:
    await at.put("t", key="k", expires_in=50)
    [claimed] = await at.claim("t")
    assert await at.end(claimed, "retry", delay=60) == "expired"


async def left_by_its_worker(at: Bench) -> None:
    await put_many(at, "t", 5, max_attempts=2)
    for _ in range(2):
        assert len(await at.claim("t", limit=5, lease=10)) == 5
        at.move(10)
        assert (await at.tend()).returned == 5
    assert (await at.engine.purge("t", "dead", now=at.now)).count == 5


async def begun(at: Bench) -> None:
    """What is known of first attempts, of messages that come back, are moved, replaced, revived, and end in each way."""
    ids = [(await at.put("t", key=f"k{i}", max_attempts=9, expires_in=DAY)).id for i in range(6)]
    for claimed in await take_all(at, "t"):
        assert await at.end(claimed, "retry", delay=5_000, began=at.now, trace=b"{}") == "scheduled"
    assert await at.reschedule(ids[0], delay=5_000)
    await at.put("t", key="k1", if_exists="replace", delay=5_000)
    assert set(await at.engine.cancel([Ref(id=ids[2])], now=at.now)) == {CancelResult.CANCELLED}
    at.move(5_000)
    await at.bury("other", key="k")
    found = {each.key: each for each in await take_all(at, "t")}
    assert await at.end(found.pop("k3"), "dead") == "dead"
    assert await at.end(found.pop("k4"), "release", delay=2 * DAY, began=at.now) == "expired"
    assert (await at.engine.purge("t", "dead", now=at.now)).count == 1
    assert (await at.engine.requeue("other", now=at.now)).count == 1
    await finish_all(at, [*found.values(), *await take_all(at, "other")])
    at.move(3 * DAY)
    await at.tend()


async def extended_apart(at: Bench) -> None:
    await put_many(at, "t", 5)
    claimed = await at.claim("t", limit=5, lease=10)
    assert await at.extend(claimed[1], 500)
    assert await at.extend(claimed[2], 900)
    at.move(10)
    assert (await at.tend()).returned == 3
    await finish_all(at, claimed[1:3])
    await finish_all(at, await take_all(at, "t"))


async def purged(at: Bench) -> None:
    for delay in (0, 5, 70_000, DAY, 900 * DAY):
        await put_many(at, "t", 40, delay=delay, expires_in=5 * DAY)
        await at.put("t", LARGE, key=f"k{delay}", delay=delay)
    await at.engine.purge("t", "ready", now=at.now)
    assert not (await at.engine.purge("t", "scheduled", now=at.now)).more


async def of_many_slots(at: Bench) -> None:
    """More than go at once with their topic."""
    far = [NewMessage("t", b"x", delay=DAY + i * 70_000) for i in range(3_000)]
    for i in range(0, 3_000, 1_000):
        await at.put_all(*far[i : i + 1_000])
    await at.engine.purge("t", "scheduled", now=at.now)
    while (await at.engine.purge("t", "scheduled", now=at.now)).more:
        pass
    sent = [each for i in range(0, 3_000, 1_000) for each in await at.put_all(*far[i : i + 1_000])]
    for i in range(0, 3_000, 1_000):
        await at.engine.cancel([Ref(id=each.id) for each in sent[i : i + 1_000]], now=at.now)
    await at.tend()


async def of_many_topics(at: Bench) -> None:
    topics = [f"t{i}" for i in range(60)]
    await at.put_all(*[NewMessage(topic, b"x", delay=i % 3) for i, topic in enumerate(topics)])
    at.move(3)
    await finish_all(at, await take_all(at, *topics))


HISTORIES: list[Callable[[Bench], Awaitable[None]]] = [
    plain, one_by_one, keyed, replaced, of_all_levels, far_away, large, buried_and_purged, buried_and_requeued,
    dead_for_too_long, dead_and_forgotten, paused, cancelled, expired, expired_when_claimed, expired_when_retried,
    left_by_its_worker, begun, extended_apart, purged, of_many_slots, of_many_topics,
]  # fmt: skip


def left_in(server: RedisServer) -> set[str]:
    """What is left, but for results and the records of lanes and operations: those end by themselves."""
    found: set[str] = set()
    with server.client() as client:
        for name in names(client):
            kind, _, rest = name.removeprefix("{shop:0}:").partition(":")
            if kind in ("lanes", "ops") and rest.isdigit():
                assert 0 < client.ttl(name) <= 45 * 60
            elif kind in ("result", "waiting", "followers"):
                assert 0 < client.ttl(name) <= 150
            else:
                found.add(name)
    return found


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("history", HISTORIES, ids=lambda each: each.__name__)
async def test_when_all_messages_have_ended_only_the_time_and_the_operations_are_remembered(
    redis_url: str, redis_server: RedisServer, colour: str, history: Callable[[Bench], Awaitable[None]]
) -> None:
    async with bench_at(redis_url, colour) as bench:
        for _ in range(2):
            await history(bench)
            assert left_in(redis_server) == {"{shop:0}:meta"}


@pytest.mark.parametrize("history", HISTORIES, ids=lambda each: each.__name__)
async def test_a_topic_that_goes_leaves_nothing_beside_those_that_stay(
    redis_url: str, redis_server: RedisServer, history: Callable[[Bench], Awaitable[None]]
) -> None:
    async with bench_at(redis_url) as bench:
        for delay in (0, 90_000, 90_000 * DAY // 86_400):
            await bench.put("stays", LARGE, key=f"k{delay}", delay=delay, expires_in=40_000 * DAY)
        [claimed] = await bench.claim("stays", lease=36_000 * DAY)
        assert await bench.end(claimed, "retry") == "scheduled"
        assert await bench.claim("stays", lease=36_000 * DAY)
        before = left_in(redis_server)
        await history(bench)
        assert left_in(redis_server) == before


async def recall_all(bench: Bench) -> None:
    """Until all that is left of gates is over."""
    while (next_in := (await bench.engine.tend(now=bench.now)).next_in) is not None:
        bench.move(next_in)


async def test_a_crowd_that_is_drained_leaves_nothing(scene: Scene, redis_server: RedisServer) -> None:
    async with bench_at(scene.url, now=scene.now, dead_for=DAY) as bench:
        await drain(bench, TOPICS)
        for topic in TOPICS:
            await bench.engine.purge(topic, "dead", now=bench.now)
        await recall_all(bench)
        assert left_in(redis_server) == {"{shop:0}:meta"}

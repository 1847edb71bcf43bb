"""Topics with more than one script may look at: pages, counts and purges go on where they stopped, and miss nothing."""

import pytest

from bide.engines.base import NewMessage, Ref
from bide.testing.contract.bench import Bench
from bide.types import State
from tests.redis.keyspace import COLOURS, bench_at
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.parametrize("colour", COLOURS), pytest.mark.timeout(120)]

MANY, GONE, PAGE = 20_000, 17_500, 1_000  # of them a script looks at some 16,000
FINE = 65_536  # ms of a slot


async def put_many(bench: Bench, count: int, *, delay: int = 0, level: int = 1) -> list[str]:
    ids: list[str] = []
    for begin in range(0, count, PAGE):
        sent = await bench.put_all(*[NewMessage("t", b"x", delay=delay, level=level)] * min(PAGE, count - begin))
        ids += [each.id for each in sent]
    return ids


async def cancel_all(bench: Bench, ids: list[str]) -> None:
    for begin in range(0, len(ids), PAGE):
        await bench.engine.cancel([Ref(id) for id in ids[begin : begin + PAGE]], now=bench.now)


async def purge_all(bench: Bench, state: State) -> tuple[int, int]:
    """How many went, in how many pages."""
    count = pages = 0
    while pages < 200:
        did = await bench.engine.purge("t", state, now=bench.now)
        count, pages = count + did.count, pages + 1
        if not did.more:
            return count, pages
    raise AssertionError(f"after {pages} pages and {count} messages there are still more")


@pytest.mark.parametrize("delay", [0, 40 * FINE], ids=["a row", "a slot"])
async def test_a_purge_of_very_many_comes_to_its_end(redis_url: str, colour: str, delay: int) -> None:
    async with bench_at(redis_url, colour) as bench:
        await put_many(bench, MANY, delay=delay)
        count, _ = await purge_all(bench, "scheduled" if delay else "ready")
        assert count == MANY
        assert dict((await bench.engine.stats(now=bench.now)).topics) == {}


@pytest.mark.parametrize("delay", [0, 40 * FINE], ids=["a row", "a slot"])
async def test_what_is_behind_very_many_that_are_gone_is_seen_and_purged(redis_url: str, colour: str, delay: int) -> None:
    async with bench_at(redis_url, colour) as bench:
        ids = await put_many(bench, MANY, delay=delay)
        await cancel_all(bench, ids[:GONE])
        state: State = "scheduled" if delay else "ready"
        shown = await bench.stored("t", state)
        assert sorted(each.id for each in shown) == sorted(ids[GONE:])
        bench.move(60_000)
        stats = await bench.engine.stats("t", now=bench.now)
        assert (stats.ready, stats.scheduled) == ((0, MANY - GONE) if delay else (MANY - GONE, 0))
        assert stats.oldest_overdue == (None if delay else 60.0)
        assert (await purge_all(bench, state))[0] == MANY - GONE


async def test_a_slot_that_now_is_in_is_purged_of_either_state(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        bench.now += 3 * FINE - bench.now % FINE  # a fine slot begins
        await put_many(bench, 1_200, delay=30 * FINE + 60_000)  # the coarser slots are full
        await put_many(bench, GONE, delay=30 * FINE + 1_000)
        await put_many(bench, 1_000, delay=30 * FINE + 50_000)
        await bench.engine.pause("t", True)
        bench.now += 30 * FINE + 10_000
        assert (await purge_all(bench, "scheduled"))[0] == 2_200
        assert (await purge_all(bench, "ready"))[0] == GONE


async def test_pages_over_several_priorities_miss_nobody(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        for level in (0, 1):  # so that slots are entered, and newcomers are near
            for _ in range(3):
                await bench.put("t", delay=20_000, level=level)
                await bench.claim("t")
        for level, delay in ((0, 30_000), (0, 30_500), (1, 30_000)):
            await put_many(bench, 50, delay=delay, level=level)
        for limit in (1, 7, 10):
            pages = await bench.pages("t", limit=limit)
            shown = [each.id for page in pages for each in page]
            assert len(set(shown)) == len(shown) == 156


async def test_slots_of_which_all_is_gone_do_not_pile_up(redis_url: str, redis_server: RedisServer, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        await bench.bury("t")  # it keeps the topic
        for _ in range(40):
            await cancel_all(bench, await put_many(bench, 600, delay=7_200_000))
            bench.move(3_600_000)
            await bench.claim("t")
        with redis_server.client() as client:
            assert len(client.keys("{bide:0}:1:*")) < 20
            assert client.hlen("{bide:0}:1:slots") < 20

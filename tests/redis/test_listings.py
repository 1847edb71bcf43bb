"""Listings are complete, without repeats and in due order at every size; what stays is seen once while others move."""

import random
from collections.abc import Sequence
from itertools import groupby

import pytest

from bide.engines.base import NewMessage, Ref, Stored
from bide.testing.contract.bench import Bench
from bide.types import State
from tests.redis.keyspace import COLOURS, bench_at, finish_all, put_many
from tests.redis.spread import DAY, HOUR, put_spread

both_colours = pytest.mark.parametrize("colour", COLOURS)


def in_order(shown: Sequence[Stored]) -> bool:
    dues = [each.due for each in shown]
    return dues == sorted(dues)


async def listed(bench: Bench, topic: str, state: State | None, limit: int) -> list[Stored]:
    """All pages: none is too long, and none but the last is short."""
    pages = await bench.pages(topic, state, limit=limit)
    assert all(len(page) == limit for page in pages[:-1])
    assert pages[-1] or len(pages) == 1
    return [each for page in pages for each in page]


async def listing_is_right(bench: Bench, topic: str, dues: dict[str, int], limit: int) -> None:
    shown = await listed(bench, topic, None, limit)
    pending = [each for each in shown if each.state in ("scheduled", "ready")]
    assert {each.id: each.due for each in pending} == dues
    assert len(pending) == len(dues)
    assert in_order(pending)
    assert [each.state for each in shown][: len(pending)] == [each.state for each in pending]
    for state in ("ready", "scheduled"):
        some = await listed(bench, topic, state, limit)
        assert [each.id for each in some] == [each.id for each in pending if each.state == state]
        assert all((each.due <= bench.now) == (state == "ready") for each in some)


async def stay_right(bench: Bench, count: int, limit: int, seed: int) -> None:
    await put_many(bench, "a", count, delay=50_000)
    dues = await put_spread(bench, "t", count, seed)
    for step in (0, 700, 40_000, HOUR, 40 * DAY):
        bench.move(step)
        await listing_is_right(bench, "t", dues, limit)
        taken = await bench.claim("t", limit=7, lease=100 * DAY)
        for each in taken:
            del dues[each.id]
        await finish_all(bench, taken[::2])
        await listing_is_right(bench, "t", dues, max(1, limit - 1))
    leased = await listed(bench, "t", "leased", 3)
    assert in_order(leased)
    assert len(leased) == len({each.id for each in leased}) == (await bench.engine.stats("t", now=bench.now)).leased


@pytest.mark.parametrize(("seed", "colour"), list(enumerate(COLOURS, start=1)))
@pytest.mark.usefixtures("small_scripts")
async def test_listings_are_right_when_a_script_does_next_to_nothing(redis_url: str, colour: str, seed: int) -> None:
    async with bench_at(redis_url, colour) as bench:
        await stay_right(bench, 60, 6, seed)


@pytest.mark.timeout(120)
async def test_listings_are_right_of_very_many(redis_url: str) -> None:
    async with bench_at(redis_url) as bench:
        await stay_right(bench, 6_000, 1_000, 3)


@both_colours
async def test_listings_are_in_due_order_over_several_shards(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url + "?shards=3", colour) as bench:
        await stay_right(bench, 60, 6, 4)


@both_colours
async def test_those_of_one_instant_come_in_the_order_of_sending(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        for delay in (0, 45_000, 90 * DAY):
            ids = await put_many(bench, "t", 2_500, delay=delay)
            state: State = "scheduled" if delay else "ready"
            for limit in (7, 1_000):
                first = (await bench.engine.scan("t", state, limit, now=bench.now)).messages
                assert [each.id for each in first] == ids[:limit]
            assert [each.id for each in await listed(bench, "t", state, 999)] == ids
            while await purge(bench, state):
                pass


async def purge(bench: Bench, state: State) -> bool:
    return (await bench.engine.purge("t", state, now=bench.now)).more


@both_colours
@pytest.mark.usefixtures("small_scripts")
async def test_what_does_not_move_is_seen_once_while_all_around_it_moves(redis_url: str, colour: str) -> None:
    draw = random.Random(8)
    async with bench_at(redis_url, colour) as bench:
        dues = await put_spread(bench, "t", 120, 8)
        moving = set(draw.sample(sorted(dues), 60))
        seen: list[Stored] = []
        after: str | None = None
        while True:
            page = await bench.engine.scan("t", None, 4, after, now=bench.now)
            seen += page.messages
            after = page.after
            if after is None:
                break
            some = draw.sample(sorted(moving), 3)
            await bench.cancel(id=some[0])
            await bench.reschedule(some[1], delay=draw.choice((1, 45_000, HOUR, 40 * DAY)))
            await bench.engine.put([NewMessage("t", b"new", delay=draw.choice((0, 0, 1, 45_000, DAY)), level=0)], now=bench.now)
            bench.move(50)
            for each in await bench.claim("t"):  # which opens slots
                moving.discard(each.id)
                dues.pop(each.id, None)
                await bench.end(each, "done")
        stayed = [each.id for each in seen if each.id in dues and each.id not in moving]
        assert len(stayed) == len(set(stayed))
        assert set(stayed) == {id for id, due in dues.items() if id not in moving}
        assert in_order([each for each in seen if each.state in ("scheduled", "ready")])


@both_colours
async def test_dead_letters_that_died_together_are_all_listed(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        for _ in range(3):
            await put_many(bench, "t", 1_000, max_attempts=1)
            await bench.claim("t", limit=1_000, lease=1)
        bench.move(1)
        assert (await bench.tend()).buried == 3_000
        dead = await listed(bench, "t", "dead", 11)
        assert len(dead) == len({each.id for each in dead}) == 3_000


@both_colours
async def test_the_lease_of_one_among_very_many_is_found(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        await put_many(bench, "t", 2_000)
        ends = {}
        for i in range(400):
            for each in await bench.claim("t", limit=5, lease=60_000 + i):
                ends[each.id] = bench.now + 60_000 + i
        for i in (0, 999, 1_999):
            id = list(ends)[i]
            assert (await bench.find(id=id)).lease_until == ends[id]
        leased = await listed(bench, "t", "leased", 300)
        assert {each.id: each.lease_until for each in leased} == ends
        assert [each.due for each in leased] == sorted(each.due for each in leased)
        found = await bench.engine.get([Ref(id) for id in list(ends)[:1_000]], now=bench.now)
        assert [each and each.lease_until for each in found] == list(ends.values())[:1_000]


@both_colours
async def test_large_bodies_are_told_a_part_at_a_time(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        bodies = [bytes([65 + i]) * 300_000 for i in range(12)]
        sent = [await bench.put("t", body, delay=i) for i, body in enumerate(bodies)]
        assert [each.body for each in await listed(bench, "t", None, 10)] == bodies
        found = await bench.engine.get([Ref(each.id) for each in sent], now=bench.now)
        assert [each and each.body for each in found] == bodies


@both_colours
async def test_states_come_one_after_the_other(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        for _ in range(3):
            await bench.bury("t")
        for _ in range(3):
            await bench.running("t", lease=60_000)
        await put_many(bench, "t", 3, delay=5)
        for limit in (1, 2, 3, 9):
            shown = await listed(bench, "t", None, limit)
            assert [state for state, _ in groupby(shown, lambda each: each.state)] == ["scheduled", "leased", "dead"]

"""A purge drops all of one state and nothing else, at every size, whoever goes on with it and whatever comes meanwhile."""

import random

import pytest

from bide.engines.base import NewMessage
from bide.testing.contract.bench import Bench
from bide.types import State
from tests.redis.keyspace import COLOURS, bench_at, finish_all, take_all
from tests.redis.spread import DAY, HOUR, put_spread
from tests.redis.test_exact_numbers import numbers_are_true

both_colours = pytest.mark.parametrize("colour", COLOURS)


async def purge_whole(bench: Bench, state: State, limit: int) -> int:
    count = 0
    for _ in range(1_000):
        did = await bench.engine.purge("t", state, limit=limit, now=bench.now)
        assert did.count <= limit
        count += did.count
        if not did.more:
            return count
    raise AssertionError("purge has more without end")


async def goes_right(bench: Bench, count: int, limit: int, seed: int) -> None:
    draw = random.Random(seed)
    other = await bench.another()
    dues = await put_spread(bench, "t", count, seed)
    for turn, step in enumerate((700, 45_000, HOUR, 20 * DAY, 21 * DAY)):
        bench.move(step)
        other.now = bench.now
        taken = await bench.claim("t", limit=9, lease=100 * DAY)
        for each in taken:
            del dues[each.id]
        state: State = "ready" if turn % 2 else "scheduled"
        doomed = {id for id, due in dues.items() if (due <= bench.now) == (state == "ready")}
        # Given a purge that somebody begins, and messages that come meanwhile
        begun = await bench.engine.purge("t", state, limit=limit, now=bench.now)
        new = [
            NewMessage("t", b"x", delay=draw.choice((0, 1, 50_000, HOUR, 30 * DAY)), level=draw.randrange(3)) for _ in range(9)
        ]
        for sent in await bench.put_all(*new):
            dues[sent.id] = sent.due
            if (sent.due <= bench.now) == (state == "ready"):
                doomed.add(sent.id)
        # When others go on with it, and it is begun anew
        rest = [await purge_whole(who, state, limit + i) for i, who in enumerate((other, bench, other))]
        # Then all of that state is gone, each counted once, and nothing else
        assert begun.count + sum(rest) == len(doomed)
        dues = {id: due for id, due in dues.items() if id not in doomed}
        await numbers_are_true(bench, "t", list(dues.values()))
        assert {each.id for each in await bench.stored("t") if each.state != "leased"} == set(dues)
        await finish_all(bench, taken)
    # And what is left comes out on time
    bench.now = max([bench.now, *dues.values()])
    assert {each.id for each in await take_all(bench, "t")} == set(dues)


@both_colours
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.usefixtures("small_scripts")
async def test_a_purge_is_right_when_a_script_does_next_to_nothing(redis_url: str, colour: str, seed: int) -> None:
    async with bench_at(redis_url, colour) as bench:
        await goes_right(bench, 60, 7, seed)


@both_colours
async def test_a_purge_of_many_is_right(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        await goes_right(bench, 3_000, 990, 3)

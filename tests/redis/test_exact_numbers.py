"""What an operator reads is exact at every size, whatever a script may do at once and however large the topic beside it is."""

from collections.abc import Sequence

import pytest

from bide.engines.base import Ref, Window
from bide.testing.contract.bench import Bench
from bide.types import State, Stats
from tests.redis.keyspace import COLOURS, bench_at, finish_all, put_many
from tests.redis.spread import DAY, HOUR, put_spread

MINUTE = 60_000
both_colours = pytest.mark.parametrize("colour", COLOURS)


def told(stats: Stats) -> tuple[int, int, float | None, int | None]:
    return stats.scheduled, stats.ready, stats.oldest_overdue, stats.next_due


def truth(dues: Sequence[int], now: int) -> tuple[int, int, float | None, int | None]:
    ready, scheduled = [due for due in dues if due <= now], [due for due in dues if due > now]
    overdue = (now - min(ready)) / 1_000 if ready else None
    return len(scheduled), len(ready), overdue, min(scheduled, default=None)


def parts(dues: Sequence[int], window: Window) -> list[int]:
    counts = [0] * window.parts
    for due in dues:
        if window.start <= due < window.end:
            counts[(due - window.start) * window.parts // (window.end - window.start)] += 1
    return counts


def windows(now: int) -> list[Window]:
    return [
        Window(now - HOUR, now + HOUR, 60),
        Window(now, now + 1_000, 7),
        Window(now - 50_000, now - 20_000, 10),
        Window(now + 20 * MINUTE, now + 41 * DAY, 13),
        Window(now + 30_000, now + 90_000, 1),
    ]


async def numbers_are_true(bench: Bench, topic: str, dues: Sequence[int]) -> None:
    assert told(await bench.engine.stats(topic, now=bench.now)) == truth(dues, bench.now)
    assert told((await bench.engine.stats(now=bench.now)).topics[topic]) == truth(dues, bench.now)
    for window in windows(bench.now):
        stats = await bench.engine.stats(topic, window=window, now=bench.now)
        assert list(stats.timeline) == parts(dues, window)
        assert told(stats) == truth(dues, bench.now)


STEPS = (0, 700, 40_000, 10_000, HOUR, 20 * DAY, 21 * DAY)


async def stay_true(bench: Bench, count: int, beside: int, seed: int) -> None:
    """While time goes by, and somebody takes a few now and then."""
    await put_many(bench, "a", beside, delay=50_000)
    await put_many(bench, "z", beside)
    found = await put_spread(bench, "t", count, seed)
    for step in STEPS:
        bench.move(step)
        await numbers_are_true(bench, "t", list(found.values()))
        taken = await bench.claim("t", limit=10, lease=100 * DAY)
        for each in taken:
            del found[each.id]
        await numbers_are_true(bench, "t", list(found.values()))
        await finish_all(bench, taken[::2])
        assert (await bench.engine.stats("a", now=bench.now)).pending == beside


@pytest.mark.parametrize(("seed", "colour"), list(enumerate(COLOURS, start=1)))
@pytest.mark.usefixtures("small_scripts")
async def test_counts_and_times_are_exact_when_a_script_does_next_to_nothing(redis_url: str, colour: str, seed: int) -> None:
    async with bench_at(redis_url, colour) as bench:
        await stay_true(bench, 150, 60, seed)


@pytest.mark.timeout(120)
async def test_counts_and_times_are_exact_of_very_many(redis_url: str) -> None:
    async with bench_at(redis_url) as bench:
        await stay_true(bench, 12_000, 25_000, 3)


@both_colours
async def test_the_oldest_behind_very_many_that_are_gone_is_found(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        for delay in (0, 45_000):
            ids = await put_many(bench, f"t{delay}", 3_000, delay=delay)
            bench.move(5)
            last = await put_many(bench, f"t{delay}", 3, delay=delay)
            for i in range(0, len(ids), 1_000):
                await bench.engine.cancel([Ref(id) for id in ids[i : i + 1_000]], now=bench.now)
            state: State = "scheduled" if delay else "ready"
            stats = await bench.engine.stats(f"t{delay}", now=bench.now)
            assert getattr(stats, state) == len(last) == stats.pending
            due = stats.next_due if delay else bench.now - round((stats.oldest_overdue or 0.0) * 1_000)
            assert due == bench.now + delay


@pytest.mark.parametrize("colour", COLOURS)
async def test_dropped_dead_letters_are_counted_until_the_last_of_them_would_be_too_old(redis_url: str, colour: str) -> None:
    """Also when there were others before, which came back."""
    async with bench_at(redis_url, colour, dead_for=10 * DAY, dead_max=1) as at:
        last = await at.put("t", delay=50 * DAY)  # or the topic would go in between, and all that is known of it
        for dead in (1, 2):
            for _ in range(dead):
                await at.bury("t")
            assert (await at.engine.requeue("t", now=at.now)).count == 1
            assert await at.end((await at.claim("t"))[0], "done") == "done"
            at.move(9 * DAY)
        assert (await at.engine.stats("t", now=at.now)).dead_dropped == 1
        await at.tend()
        assert (await at.engine.stats("t", now=at.now)).dead_dropped == 1
        at.move(2 * DAY)
        await at.tend()
        assert (await at.engine.stats("t", now=at.now)).dead_dropped == 0
        await at.cancel(id=last.id)
        assert not (await at.engine.stats(now=at.now)).topics

"""A topic is paused or resumed while the messages are spread over another number of shards: new shards do it, too."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bide.engines.base import NewMessage
from bide.engines.redis import resharding
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.resharding import Resharding
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.sync.shards import Shards
from bide.errors import OutcomeUnknown, Unavailable
from bide.testing.contract.bench import Bench
from bide.types import Sent
from tests.redis.keyspace import bench_at, shop
from tests.redis.test_reshard import both_colours, forgetful, reshard, shards_of

__all__ = ["forgetful"]
Do = Callable[[], Any]


def after_the_old_shards_were_read(patch: pytest.MonkeyPatch, work: Resharding, do: Do) -> None:
    def late(*args: Any) -> Shards:
        do()
        return Shards(*args)

    patch.setattr(resharding, "Shards", late)


def after_the_new_shards_took_it_over(patch: pytest.MonkeyPatch, work: Resharding, do: Do) -> None:
    alike = work._pause_alike

    def then(*args: Any) -> None:
        alike(*args)
        do()

    patch.setattr(work, "_pause_alike", then)


def after_shard_0_was_told(patch: pytest.MonkeyPatch, work: Resharding, do: Do) -> None:
    tell = work._tell_all

    def late(*args: Any) -> None:
        do()
        tell(*args)

    patch.setattr(work, "_tell_all", late)


def after_all_were_told(patch: pytest.MonkeyPatch, work: Resharding, do: Do) -> None:
    tell = work._tell_all

    def then(*args: Any) -> None:
        tell(*args)
        do()

    patch.setattr(work, "_tell_all", then)


at_any_step = pytest.mark.parametrize(
    "step",
    [
        after_the_old_shards_were_read,
        after_the_new_shards_took_it_over,
        after_shard_0_was_told,
        after_all_were_told,
    ],
)
with_shard_0 = pytest.mark.parametrize(
    "before", [0, 2, 5], ids=["with shard 0", "without it", "without it, which is used again"]
)
"""How many shards there were before those that are there when the reshard begins, which are three."""


@asynccontextmanager
async def spread_before(redis_url: str, colour: str, before: int) -> AsyncIterator[Bench]:
    """An engine of a queue that has three shards, from this number on."""
    async with bench_at(f"{redis_url}?shards={before or 3}", colour) as bench:
        await bench.put("t", b"old")
        if before:
            reshard(redis_url, 3)
            assert [await bench.end(each, "done") for each in await bench.claim("t")] == ["done"]
            with Resharding(shop(redis_url)._namespace) as work:
                assert work.step() is None
            await bench.put("t", b"old")
        yield bench


async def reshard_and(monkeypatch: pytest.MonkeyPatch, url: str, step: Any, do: Callable[[], Awaitable[None]]) -> None:
    """Do it once, at this step of a reshard to five."""
    loop, done = asyncio.get_running_loop(), list[None]()

    def once() -> None:
        if not done:
            done.append(None)
            asyncio.run_coroutine_threadsafe(_awaited(do), loop).result()

    def begin() -> None:
        with Resharding(shop(url)._namespace) as work, monkeypatch.context() as patch:
            step(patch, work, once)
            assert work.begin(5)

    await asyncio.to_thread(begin)
    assert done


async def _awaited(do: Callable[[], Awaitable[None]]) -> None:
    await do()


async def sent_to_each(bench: Bench) -> list[Sent]:
    sent = await bench.put_all(*[NewMessage("t", b"new", key=f"k{n}") for n in range(30)])
    assert len(shards_of([each.id for each in sent])) == 5
    return sent


@at_any_step
@with_shard_0
@both_colours
@pytest.mark.usefixtures("forgetful")
async def test_what_is_paused_while_a_reshard_begins_is_paused_in_all_shards(
    redis_url: str, colour: str, before: int, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with spread_before(redis_url, colour, before) as bench, bench_at(redis_url, colour) as other:
        await reshard_and(monkeypatch, redis_url, step, lambda: other.engine.pause("t", True))
        async with bench_at(redis_url, colour) as newcomer:
            await sent_to_each(newcomer)
            for each in (newcomer, bench, other):
                assert [await each.claim("t", limit=100) for _ in range(3)] == [[], [], []]
            await bench.engine.pause("t", False)
            assert len([each for _ in range(9) for each in await newcomer.claim("t", limit=100)]) == 31


@at_any_step
@with_shard_0
@both_colours
@pytest.mark.usefixtures("forgetful")
async def test_what_is_resumed_while_a_reshard_begins_is_resumed_in_all_shards(
    redis_url: str, colour: str, before: int, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with spread_before(redis_url, colour, before) as bench, bench_at(redis_url, colour) as other:
        await bench.engine.pause("t", True)
        await reshard_and(monkeypatch, redis_url, step, lambda: other.engine.pause("t", False))
        async with bench_at(redis_url, colour) as newcomer:
            await sent_to_each(newcomer)
            assert len([each for _ in range(9) for each in await newcomer.claim("t", limit=100)]) == 31


def in_the_middle_of_a_pause(patch: pytest.MonkeyPatch, do: Do) -> None:
    """Once, when the first shard has done it, and before the next one does."""
    done, sync, turns = list[str](), threading.RLock(), asyncio.Lock()
    pause, async_pause = Shard.pause, AsyncShard.pause

    def in_turn(shard: Shard, topic: str, paused: bool) -> None:
        with sync:
            done.append(topic)
            if len(done) == 2:
                do()
            pause(shard, topic, paused)

    async def async_in_turn(shard: AsyncShard, topic: str, paused: bool) -> None:
        async with turns:
            done.append(topic)
            if len(done) == 2:
                await asyncio.to_thread(do)
            await async_pause(shard, topic, paused)

    patch.setattr(Shard, "pause", in_turn)
    patch.setattr(AsyncShard, "pause", async_in_turn)


def reshard_and_break_off(url: str) -> None:
    """Only shard 0 is told."""
    with Resharding(shop(url)._namespace) as work:
        work._tell_all = lambda shards: None  # type: ignore[method-assign]
        assert work.begin(5)


@pytest.mark.parametrize("paused", [True, False], ids=["pause", "resume"])
@with_shard_0
@both_colours
@pytest.mark.usefixtures("forgetful")
async def test_a_pause_in_the_middle_of_which_a_reshard_begins_hears_of_it(
    redis_url: str, colour: str, before: int, paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with spread_before(redis_url, colour, before) as bench, bench_at(redis_url, colour) as other:
        await bench.engine.pause("t", not paused)
        with monkeypatch.context() as patch:
            in_the_middle_of_a_pause(patch, lambda: reshard_and_break_off(redis_url))
            await other.engine.pause("t", paused)
        async with bench_at(redis_url, colour) as newcomer:
            await sent_to_each(newcomer)
            found = [each for _ in range(9) for each in await newcomer.claim("t", limit=100)]
            assert len(found) == (0 if paused else 31)


@pytest.mark.parametrize("shards", [1, 3])
@both_colours
async def test_who_pauses_and_is_not_counted_is_told_so(
    redis_url: str, colour: str, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shard 0 went away when all had paused the topic: a reshard that begins may not know."""

    def absent(shard: Any) -> Any:
        raise Unavailable("no answer")

    async with bench_at(f"{redis_url}?shards={shards}", colour) as bench:
        await bench.put("t")
        with monkeypatch.context() as patch:
            patch.setattr(Shard, "count_pause", absent)
            patch.setattr(AsyncShard, "count_pause", absent)
            with pytest.raises(OutcomeUnknown, match="t is paused, but not everywhere: no answer"):
                await bench.engine.pause("t", True)
        assert await bench.claim("t") == []
        await bench.engine.pause("t", True)


@pytest.mark.usefixtures("forgetful")
async def test_a_reshard_gives_up_while_topics_are_paused_all_the_time(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resharding, "LONGEST", 0.3)
    async with spread_before(redis_url, "sync", 0) as bench:
        with Resharding(shop(redis_url)._namespace) as work, monkeypatch.context() as patch:
            after_the_new_shards_took_it_over(patch, work, work._shards.anchor.count_pause)
            with pytest.raises(Unavailable, match="paused or resumed all the time"):
                work.begin(5)
            assert work.size == 3
        reshard(redis_url, 5)
        await sent_to_each(bench)

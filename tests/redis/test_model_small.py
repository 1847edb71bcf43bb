"""The model on an engine whose buckets and slots are small, so that short histories meet every border; and under trouble."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from bide.engines.base import Claimed, NewMessage
from bide.engines.redis import CAPABILITIES
from bide.engines.redis.aio import shard as shards_aio
from bide.engines.redis.sync import shard as shards_sync
from bide.errors import BadTime
from tests.model.expected import Divergence
from tests.model.hypothesis_rules import EngineMachine, check_engine
from tests.model.runner import Runner
from tests.model.turns import BUDGET, LONG, by_turns
from tests.redis.invariants import invariants_hold
from tests.redis.keyspace import COLOURS, bench_at, finish_all, names
from tests.redis.small import places
from tests.servers.redis import RedisServer

both_colours = pytest.mark.parametrize("colour", COLOURS)


@pytest.fixture
def watched(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The keys of a history that went well are looked at where it ends, before it is drained."""
    teardown = EngineMachine.teardown
    with redis_server.client() as client:

        def look_first(self: EngineMachine) -> None:
            try:
                if sys.exc_info()[0] is None:
                    invariants_hold(client, self.runner.source.namespace)
            finally:
                teardown(self)

        monkeypatch.setattr(EngineMachine, "teardown", look_first)
        yield


@pytest.mark.timeout(300)
@by_turns([0, 1] if LONG else [0])
@pytest.mark.usefixtures("small_scripts", "watched")
def test_an_engine_of_small_buckets_does_what_the_model_does(redis_url: str, colour: str, seed: int) -> None:
    check_engine(places(redis_url), colour=colour, examples=60 if LONG else 30, steps=60, seed=seed, budget=BUDGET)


@pytest.mark.timeout(300)
@by_turns([3])
@pytest.mark.usefixtures("alike", "watched")
def test_an_engine_of_three_shards_does_what_the_model_does(redis_url: str, colour: str, seed: int) -> None:
    check_engine(
        places(redis_url + "?shards=3"), colour=colour, examples=60 if LONG else 30, steps=60, seed=seed, budget=BUDGET
    )


@pytest.mark.timeout(300)
@by_turns([4], first=1)
@pytest.mark.usefixtures("small_scripts", "alike", "watched")
def test_an_engine_of_three_shards_of_small_buckets_does_what_the_model_does(redis_url: str, colour: str, seed: int) -> None:
    check_engine(places(redis_url + "?shards=3"), colour=colour, examples=40, steps=60, seed=seed, budget=BUDGET)


def claim_by_hand(url: str, colour: str) -> None:
    """Claims of two topics, of which one lies on one of the shards only; they begin at each shard by turns."""
    runner = Runner(places(url + "?shards=3"), colour, dead_for=1_000, dead_max=1_000)
    try:
        runner.put([NewMessage("a", b"")] * 20 + [NewMessage("b", b"")] * 20)
        runner.put([NewMessage("a", b"")] * 20)
        runner.put([NewMessage("a", b"")] * 20)
        for limit in (2, 3) * 6:
            runner.claim(["a", "b"], limit, 1_000)
    finally:
        runner.end()


@both_colours
@pytest.mark.usefixtures("alike")
def test_topics_that_lie_on_some_shards_only_have_their_place(redis_url: str, colour: str) -> None:
    claim_by_hand(redis_url, colour)


def giving_away(claim: Any) -> Any:
    """A shard's claim that takes less, but of any topic."""

    def changed(*args: Any, keep: int = 0, **options: Any) -> Any:
        *same, limit, lease, request, now = args
        return claim(*same, limit - max(0, keep - 1), lease, request, now, **options)

    return changed


@both_colours
@pytest.mark.usefixtures("alike")
def test_the_model_finds_a_place_that_is_given_away(redis_url: str, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So one topic once took the room that was left on a shard, and another one had nothing on the shards after it."""
    for each in (shards_aio.AsyncShard, shards_sync.Shard):
        monkeypatch.setattr(each, "claim", giving_away(each.claim))
    with pytest.raises(Divergence, match=r"nothing was taken from \{'b'\}, though there was room"):
        claim_by_hand(redis_url, colour)


@both_colours
async def test_a_batch_that_one_of_several_shards_refuses_leaves_nothing(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url + "?shards=3", colour) as bench:
        batch = [NewMessage("t", b"x", key=f"k{i}") for i in range(20)]
        with pytest.raises(BadTime):
            await bench.put_all(*batch, NewMessage("t", b"x", key="far", delay=CAPABILITIES.max_delay + 1))
        assert not await bench.stored("t")


@both_colours
@pytest.mark.parametrize("limit", [1, 3, 7])
@pytest.mark.usefixtures("small_scripts")
async def test_a_slot_with_more_messages_than_a_slot_of_a_row_has_gives_them_all(
    redis_url: str, redis_server: RedisServer, colour: str, limit: int
) -> None:
    async with bench_at(redis_url, colour) as bench:
        at = bench.now + 600_000
        ids = {each.id for each in await bench.put_all(*[NewMessage("t", b"x", at=at)] * 45)}
        bench.now = at + 65_536  # the slot is over, and handed out without the zset
        got: list[Claimed] = []
        while some := await bench.claim("t", limit=limit):
            got += some
        assert len(got) == len(ids)
        assert {each.id for each in got} == ids
        await finish_all(bench, got)
        with redis_server.client() as client:
            assert not [name for name in names(client) if ":1:" in name]

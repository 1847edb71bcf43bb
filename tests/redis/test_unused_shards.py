"""Shards that were never used know nothing yet: what happens while shard 0, which decides, does not answer."""

import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bide import AsyncQueue, Outgoing, Unavailable
from bide.engines.redis.aio import shards as aio_shards
from bide.engines.redis.sync import shards as sync_shards
from bide.engines.redis.topology import slot_of
from tests.redis.away import COLOURS, SHARDS, Either, engine_of, frozen, keys_of
from tests.servers.cluster import ClusterNode, RedisCluster

both_colours = pytest.mark.parametrize("colour", COLOURS)


async def place_of(masters: RedisCluster, queue: AsyncQueue, shard: int) -> tuple[ClusterNode, str]:
    """Where a shard is, and the key that says what it knows."""
    tag = (await engine_of(queue))._namespace.tag(shard)
    return masters.node_of(slot_of(tag)), f"{{{tag}}}:meta"


@contextlib.asynccontextmanager
async def used_by_a_release_before(masters: RedisCluster, url: str) -> AsyncIterator[AsyncQueue]:
    """A namespace of which only shard 0 has ever had a message. The queue that is given has sent it."""
    async with AsyncQueue(url) as queue:
        await queue.send("t", 0, key=keys_of(0, 1)[0])
        for shard in range(1, SHARDS):
            node, meta = await place_of(masters, queue, shard)
            node.ask("DEL", meta)
        yield queue


@both_colours
async def test_a_program_that_starts_lets_later_ones_start_without_shard_0(
    masters: RedisCluster, masters_url: str, colour: str
) -> None:
    async with used_by_a_release_before(masters, masters_url) as queue:
        async with Either(masters_url, colour) as first:
            await first.do("stats")
        async with frozen(masters, queue, 0), Either(masters_url, colour) as other:
            assert len((await other.do("stats")).missing) == 1
            for shard in range(1, SHARDS):
                await other.do("send", "t", shard, key=keys_of(shard, 1)[0])
            assert sorted([each.body for each in await other.do("receive", "t", limit=9)]) == [1, 2]


@both_colours
async def test_a_queue_that_knows_how_messages_are_spread_sends_to_an_unused_shard_without_shard_0(
    masters: RedisCluster, masters_url: str, colour: str
) -> None:
    async with Either(masters_url, colour) as other:
        await other.do("stats")
        async with used_by_a_release_before(masters, masters_url) as queue, frozen(masters, queue, 0):
            away = other.begin("send", "t", 0, key=keys_of(0, 2)[1])
            for shard in range(1, SHARDS):
                assert (await other.do("send", "t", shard, key=keys_of(shard, 1)[0])).created
                node, meta = await place_of(masters, queue, shard)
                assert node.ask("HGET", meta, "shards") == (await engine_of(queue))._namespace.told.encode()
            assert not away.done()
        assert (await away).created


async def test_an_unused_shard_takes_nothing_from_who_may_have_it_otherwise_while_shard_0_is_away(
    masters: RedisCluster, masters_url: str
) -> None:
    """Somebody else may have decided by now that messages are spread otherwise."""
    async with used_by_a_release_before(masters, masters_url) as queue, AsyncQueue(f"{masters_url}&timeout=1") as other:
        await other.stats()
        namespace: Any = (await engine_of(other))._namespace
        for shard in range(1, SHARDS):
            node, meta = await place_of(masters, queue, shard)
            node.ask("DEL", meta)
        namespace._stored = ""  # as if its URL had said so
        async with frozen(masters, queue, 0):
            with pytest.raises(Unavailable, match="Shard 0 has to know first"):
                await other.send_many("t", [Outgoing(1, key=keys_of(1, 1)[0])])
            node, meta = await place_of(masters, queue, 1)
            assert not node.ask("EXISTS", meta)
        assert [each.created for each in await other.send_many("t", [Outgoing(1, key=keys_of(1, 1)[0])])] == [True]


@both_colours
@pytest.mark.parametrize("shard", range(SHARDS))
async def test_the_first_call_of_a_new_queue_waits_for_no_shard_that_it_does_not_need(
    masters: RedisCluster, masters_url: str, colour: str, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at the one that is away goes on meanwhile."""
    for module in (aio_shards, sync_shards):
        monkeypatch.setattr(module, "HASTE", 60.0)
    async with AsyncQueue(masters_url) as queue:
        await queue.stats()
        async with frozen(masters, queue, shard), Either(masters_url, colour) as other:
            assert (await other.do("send", "t", 9, key=keys_of((shard + 1) % SHARDS, 1)[0])).created
            if colour == "async":
                assert (await engine_of(other.queue))._shards._aside._tasks
            else:
                assert "bide-round" in {each.name for each in threading.enumerate()}

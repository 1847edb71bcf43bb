"""An outbox before a queue of several servers, of which one does not answer or does not confirm: the others get theirs."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bide import AsyncQueue, ConfirmTimeout, OutcomeUnknown, Queue, Unavailable
from bide.queue.aio import handover as aio_handover
from bide.queue.sync import handover as sync_handover
from tests.redis.away import COLOURS, Either, frozen, keys_of
from tests.servers.cluster import RedisCluster

MANY = {2: 350, 0: 100, 1: 100}  # messages of each shard: those of the silent one come first, and fill several batches
both_colours = pytest.mark.parametrize("colour", COLOURS)


@pytest.fixture
def store(tmp_path: Path) -> str:
    with Queue(f"sqlite:///{tmp_path}/app.db") as there:
        there.stats()
    return f"sqlite:///{tmp_path}/app.db"


def commit(url: str, store: str, keys: list[str]) -> None:
    with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as own, Queue(url, outbox=store) as queue:
        for key in keys:
            queue.send("t", key, key=key, connection=own)
        own.commit()


@pytest.mark.always
@pytest.mark.timeout(120)
@both_colours
async def test_what_goes_to_other_servers_is_handed_on(
    masters: RedisCluster, masters_url: str, store: str, colour: str
) -> None:
    url = f"{masters_url}&timeout=300"  # which nothing waits for
    keys = [key for shard, many in MANY.items() for key in keys_of(shard, many)]
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await queue.stats()
        await asyncio.to_thread(commit, url, store, keys)
        other.queue = type(other.queue)(url, outbox=store)
        async with frozen(masters, queue, 2):
            relaying = other.begin("relay")
            ready = 0
            async with asyncio.timeout(60):
                while ready < MANY[0] + MANY[1]:
                    ready = (await queue.stats("t")).ready
            assert ready == MANY[0] + MANY[1]
        got = set[str]()
        async with asyncio.timeout(60):
            while len(got) < len(keys):
                for each in await queue.receive("t", limit=100, wait=1):
                    assert each.body not in got
                    got.add(each.body)
                    await each.ack()
        await other.do("close")
        await relaying


@both_colours
async def test_who_hands_on_what_there_is_is_told_that_some_stays(
    masters: RedisCluster, masters_url: str, store: str, colour: str
) -> None:
    url = f"{masters_url}&timeout=1"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await queue.stats()
        await asyncio.to_thread(commit, url, store, [*keys_of(0, 1), *keys_of(2, 1)])
        other.queue = type(other.queue)(url, outbox=store)
        await other.do("stats")
        async with frozen(masters, queue, 2):
            with pytest.raises(OutcomeUnknown):
                await other.do("relay", wait=False)
            assert (await queue.stats("t")).ready == 1


@both_colours
async def test_one_call_hands_on_what_is_behind_many_for_a_silent_server(
    masters: RedisCluster, masters_url: str, store: str, colour: str
) -> None:
    """More than are claimed at once."""
    url = f"{masters_url}&timeout=300"  # which nothing waits for
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await queue.stats()
        await asyncio.to_thread(commit, url, store, [*keys_of(2, 350), *keys_of(0, 20)])
        other.queue = type(other.queue)(url, outbox=store)
        await other.do("stats")
        async with frozen(masters, queue, 2):
            with pytest.raises((OutcomeUnknown, Unavailable)):
                await other.do("relay", wait=False)
            assert (await queue.stats("t")).ready == 20


@both_colours
async def test_what_is_never_confirmed_counts_as_handed_on_after_some_tries(
    redis_url: str, store: str, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the queue forgets that it has it."""
    for module in (aio_handover, sync_handover):
        monkeypatch.setattr(module, "SURE", 200)
        monkeypatch.setattr(module, "LATER", 100)
        monkeypatch.setattr(module, "SOON", 50)
    url = f"{redis_url}?timeout=0.5&confirm=replicas:1"
    await asyncio.to_thread(commit, url, store, ["a", "b"])
    async with AsyncQueue(redis_url) as queue, AsyncQueue(store) as there, Either(url, colour) as other:
        other.queue = type(other.queue)(url, outbox=store)
        with pytest.raises(ConfirmTimeout):
            await other.do("relay", wait=False)
        assert (await there.stats("bide.outbox")).ready == 2
        relaying = other.begin("relay")
        left = 2
        async with asyncio.timeout(60):
            while left:
                stats = await there.stats("bide.outbox")
                left = stats.ready + stats.leased
        assert (await queue.stats("t")).ready == 2
        await other.do("close")
        await relaying

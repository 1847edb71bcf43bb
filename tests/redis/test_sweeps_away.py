"""Requeue, purge, pause and cancel of many while a shard does not answer: the others do it, and an error names its server."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from bide import AsyncQueue, OutcomeUnknown, Outgoing, Queue, Unavailable, Where
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.presence import HASTE
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.topology import slot_of
from bide.types import Stats
from tests.redis.away import COLOURS, SHARDS, Either, engine_of, frozen, keys_of
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer

MANY = 4  # messages of each shard
both_colours = pytest.mark.parametrize("colour", COLOURS)


async def place_of(masters: RedisCluster, queue: AsyncQueue, shard: int) -> str:
    node = masters.node_of(slot_of((await engine_of(queue))._namespace.tag(shard)))
    return f"127.0.0.1:{node.port}"


async def sent(queue: AsyncQueue, *, dead: bool, topic: str = "t") -> list[str]:
    """So many messages of each shard, in their order."""
    some = [Outgoing(shard, key=key) for shard in range(SHARDS) for key in keys_of(shard, MANY, topic)]
    messages = await queue.send_many(topic, some)
    if dead:
        for delivery in await queue.receive(topic, limit=SHARDS * MANY):
            await delivery.bury("broken")
    return [each.id for each in messages]


async def back(other: Either) -> None:
    """Wait until it knows that all answer."""
    missing = True
    while missing:
        missing = bool((await other.do("stats")).missing)


def begin_reshard(url: str, shards: int) -> None:
    with Queue(url) as queue:
        source: Any = queue.session.setup.source
        with source.plain.resharding() as work:
            assert work.begin(shards)


@both_colours
async def test_dead_letters_of_the_other_shards_are_requeued(masters: RedisCluster, masters_url: str, colour: str) -> None:
    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        await sent(queue, dead=True)
        async with frozen(masters, queue, 2):
            away = asyncio.create_task(queue.send("t", 2, key=keys_of(2, MANY + 1)[-1]))
            with pytest.raises(OutcomeUnknown, match=f"{await place_of(masters, queue, 2)} does not answer .* 8 in all"):
                await other.do("requeue", "t")
            stats = await queue.stats("t")
            assert (stats.ready, stats.dead, len(stats.missing)) == (8, 0, 1)
            assert not away.done()
        await away
        await back(other)
        assert await other.do("requeue", "t") == MANY


@both_colours
async def test_dead_letters_of_other_shards_are_requeued_by_their_ids(
    masters: RedisCluster, masters_url: str, colour: str
) -> None:
    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        ids = await sent(queue, dead=True)
        async with frozen(masters, queue, 2):
            away = asyncio.create_task(queue.send("t", 2, key=keys_of(2, MANY + 1)[-1]))
            assert await other.do("requeue", "t", ids[:2]) == 2  # which needs only another shard
            with pytest.raises(OutcomeUnknown, match="6 in all"):
                await other.do("requeue", "t", ids[2:])
            assert not away.done()
        await away
        await back(other)
        assert await other.do("requeue", "t", where=Where(error="broken")) == MANY


@both_colours
@pytest.mark.parametrize("state", ["ready", "dead"])
async def test_messages_of_the_other_shards_are_purged(
    masters: RedisCluster, masters_url: str, colour: str, state: str
) -> None:
    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        await sent(queue, dead=state == "dead")
        async with frozen(masters, queue, 2):
            away = asyncio.create_task(queue.send("other", 2, key=keys_of(2, 1, "other")[0]))
            with pytest.raises(OutcomeUnknown, match=f"{await place_of(masters, queue, 2)} does not answer .* 8 in all"):
                await other.do("purge", "t", state=state)
            stats = await queue.stats("t")
            assert (stats.ready, stats.dead) == (0, 0)
            assert not away.done()
        await away
        await back(other)
        assert await other.do("purge", "t", state=state) == MANY


@both_colours
async def test_messages_of_the_other_shards_are_cancelled(masters: RedisCluster, masters_url: str, colour: str) -> None:
    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        await sent(queue, dead=False)
        async with frozen(masters, queue, 2):
            with pytest.raises(OutcomeUnknown, match="8 in all"):
                await other.do("cancel_all", "t", where=Where(key="k*"))
        await back(other)
        assert await other.do("cancel_all", "t", where=Where(key="k*")) == MANY


@both_colours
async def test_a_shard_that_falls_silent_in_the_middle_is_left_out(
    masters: RedisCluster, masters_url: str, colour: str
) -> None:
    url = f"{masters_url}&timeout=1"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await sent(queue, dead=False)
        await other.do("stats")
        place = await place_of(masters, queue, 2)
        master = masters.node_of(slot_of((await engine_of(queue))._namespace.tag(2)))
        engine = other.queue.session.engine()
        verbs: Any = type(await engine if colour == "async" else engine)
        cancel = verbs.cancel

        def frozen_before(*args: Any, **options: Any) -> Any:
            masters.freeze(master)  # when all has been listed
            return cancel(*args, **options)

        try:
            with patch.object(verbs, "cancel", frozen_before), pytest.raises(OutcomeUnknown, match=f"{place} .* 8 in all"):
                await other.do("cancel_all", "t")
        finally:
            masters.thaw(master)
        await back(other)
        await other.do("cancel_all", "t")
        assert (await queue.stats("t")).pending == 0


@both_colours
async def test_what_a_shard_cancelled_whose_answer_was_lost_is_not_told_as_gone(
    masters: RedisCluster, masters_url: str, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    shard: Any = AsyncShard if colour == "async" else Shard
    cancel, lost = shard.cancel, list[str]()

    async def lose(self: Any, *args: Any) -> Any:
        answer = await cancel(self, *args)
        if self.number == 2 and not lost:
            lost.append(f"{self.place} did not answer in time.")
            raise OutcomeUnknown(lost[0])
        return answer

    def lose_in_thread(self: Any, *args: Any) -> Any:
        answer = cancel(self, *args)
        if self.number == 2 and not lost:
            lost.append(f"{self.place} did not answer in time.")
            raise OutcomeUnknown(lost[0])
        return answer

    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        await sent(queue, dead=False)
        monkeypatch.setattr(shard, "cancel", lose if colour == "async" else lose_in_thread)
        with pytest.raises(OutcomeUnknown, match="8 in all") as told:
            await other.do("cancel_all", "t")
        assert lost[0] in str(told.value)
        assert "does not answer" not in str(told.value)
        assert (await queue.stats("t")).pending == 0


@both_colours
@pytest.mark.parametrize("verb", ["requeue", "purge"])
async def test_ids_of_one_server_that_answers_late_are_counted_once(
    masters: RedisCluster, masters_url: str, colour: str, verb: str
) -> None:
    how = {"state": "dead"} if verb == "purge" else {}
    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        ids = await sent(queue, dead=True)
        await other.do(verb, "t", ids=ids[-1:], **how)  # the first change asks more
        async with frozen(masters, queue, 2):
            sweeping = other.begin(verb, "t", ids=ids[2 * MANY : -1], **how)
            await asyncio.wait([sweeping], timeout=HASTE + 0.3)
            assert not sweeping.done()  # no other server can do it
        assert await sweeping == MANY - 1
        assert (await queue.stats("t")).dead == 2 * MANY


@both_colours
@pytest.mark.parametrize("verb", ["requeue", "purge"])
async def test_what_servers_did_that_all_answer_late_is_not_told_as_gone(
    masters: RedisCluster, masters_url: str, colour: str, verb: str
) -> None:
    how = {"state": "dead"} if verb == "purge" else {}
    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        ids = await sent(queue, dead=True)
        await other.do("stats")
        async with frozen(masters, queue, 1), frozen(masters, queue, 2):
            sweeping = other.begin(verb, "t", ids=ids[MANY:], **how)
            await asyncio.wait([sweeping], timeout=2 * HASTE + 0.5)
        with pytest.raises(OutcomeUnknown):
            await sweeping


@both_colours
async def test_a_topic_is_paused_in_the_other_shards(masters: RedisCluster, masters_url: str, colour: str) -> None:
    url = f"{masters_url}&timeout=1"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await sent(queue, dead=False)
        await other.do("stats")
        async with frozen(masters, queue, 0):
            pausing = other.begin("pause", "t")
            while (await queue.stats("t")).paused is False:
                assert not pausing.done()  # the others have done it, before it is known that this one has not
            assert await queue.receive("t", limit=9) == []
            with pytest.raises(OutcomeUnknown, match=f"perhaps not everywhere: {await place_of(masters, queue, 0)} did not"):
                await pausing
        await back(other)
        await other.do("pause", "t")
        assert await queue.receive("t", limit=SHARDS * MANY) == []
        await other.do("resume", "t")
        assert len(await other.do("receive", "t", limit=SHARDS * MANY)) == SHARDS * MANY


@both_colours
async def test_a_call_that_fails_and_the_log_name_the_server_that_is_away(
    masters: RedisCluster, masters_url: str, colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncQueue(masters_url) as queue:
        await sent(queue, dead=False)
        place = await place_of(masters, queue, 2)
        url = masters_url + ("&" if "?" in masters_url else "?") + "timeout=0.2"
        async with Either(url, colour) as other:
            await other.do("stats")
            async with frozen(masters, queue, 2):
                for told in (f"^{place} did not answer in time", f"^{place} (did not answer|can't be reached|does not answer)"):
                    with pytest.raises((OutcomeUnknown, Unavailable), match=told):
                        await other.do("send", "t", "late", key=keys_of(2, MANY + 1)[-1])
    assert f"{place} has not answered for" in caplog.text


@both_colours
@pytest.mark.parametrize("verb", ["requeue", "purge"])
async def test_ids_of_many_shards_wait_once_for_their_one_server(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch, colour: str, verb: str
) -> None:
    url, asked = f"{redis_url}?shards=6&timeout=0.2", set[int]()
    how = {"state": "dead"} if verb == "purge" else {}
    shard: Any = AsyncShard if colour == "async" else Shard
    name = "purge_dead" if verb == "purge" else verb
    change = getattr(shard, name)

    def count(self: Any, *args: Any, **options: Any) -> Any:
        asked.add(self.number)
        return change(self, *args, **options)

    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        ids = [each.id for each in await queue.send_many("t", [Outgoing(1, key=f"k{i}") for i in range(30)])]
        await other.do("stats")
        monkeypatch.setattr(shard, name, count)
        redis_server.freeze()
        try:
            with pytest.raises((OutcomeUnknown, Unavailable)):
                await other.do(verb, "t", ids=ids, **how)
        finally:
            redis_server.thaw()
        assert len(asked) == 1


@both_colours
@pytest.mark.parametrize("verb", ["requeue", "purge"])
@pytest.mark.parametrize("shards", [1, 3])
async def test_ids_in_shards_that_this_program_has_not_heard_of_are_changed(
    redis_url: str, colour: str, verb: str, shards: int
) -> None:
    url, how = f"{redis_url}?shards={shards}", {"state": "dead"} if verb == "purge" else {}
    async with Either(url, colour) as other:
        await other.do("send", "other")
        await asyncio.to_thread(begin_reshard, url, 4)
        async with AsyncQueue(url) as queue:
            ids = [each.id for each in await queue.send_many("t", range(8))]
            assert min(name_of(id).shard for id in ids) >= shards
            for delivery in await queue.receive("t", limit=8):
                await delivery.bury("broken")
            assert await other.do(verb, "t", ids=ids, **how) == 8
            assert (await queue.stats("t")).dead == 0


@both_colours
@pytest.mark.parametrize("verb", ["requeue", "purge"])
async def test_a_change_of_all_goes_on_if_a_server_is_back_that_was_not_counted(
    masters: RedisCluster, masters_url: str, monkeypatch: pytest.MonkeyPatch, colour: str, verb: str
) -> None:
    how = {"state": "dead"} if verb == "purge" else {}
    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        await sent(queue, dead=True)
        engine = other.queue.session.engine()
        verbs: Any = await engine if colour == "async" else engine
        stats = await queue.stats("t")
        counted = replace(stats, dead=MANY, missing=["a server"])

        async def count(*args: Any, **options: Any) -> Stats:
            return counted

        monkeypatch.setattr(verbs, "stats", count if colour == "async" else lambda *args, **options: counted)
        with pytest.raises(OutcomeUnknown, match=f"a server does not answer .* {SHARDS * MANY} in all"):
            await other.do(verb, "t", **how)
        assert (await queue.stats("t")).dead == 0

"""Whom a sweep over several shards asks, and how often: a server that is waited for in vain once, and all others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bide import AsyncQueue, OutcomeUnknown, Outgoing, Unavailable, Where
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.aio.shards import AsyncShards
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.sync.shards import Shards
from bide.engines.redis.topology import slot_of
from bide.types import CancelResult
from tests.redis.away import COLOURS, SHARDS, Either, busy, engine_of, frozen, keys_of
from tests.redis.test_sweeps_away import begin_reshard, place_of
from tests.servers.cluster import RedisCluster
from tests.servers.fixtures import NewRedis
from tests.worker.conftest import once

both_colours = pytest.mark.parametrize("colour", COLOURS)
both_verbs = pytest.mark.parametrize(("verb", "how"), [("requeue", {}), ("purge", {"state": "dead"})])
SHARD_VERBS = {"requeue": "requeue", "purge": "purge_dead"}  # with ids
MANY = 30
TIMEOUT = 5.0  # of a URL that names none


async def buried(queue: AsyncQueue) -> list[str]:
    """Dead letters in all shards."""
    sent = await queue.send_many("t", [Outgoing(1, key=f"k{n}") for n in range(MANY)])
    for delivery in await queue.receive("t", limit=MANY):
        await delivery.bury("broken")
    return [each.id for each in sent]


@contextlib.asynccontextmanager
async def unserved(masters: RedisCluster, queue: AsyncQueue, shard: int) -> AsyncIterator[None]:
    """Nobody has the slot of this shard."""
    slot = slot_of((await engine_of(queue))._namespace.tag(shard))
    node = masters.node_of(slot)
    node.ask("CLUSTER", "DELSLOTS", slot)
    try:
        yield
    finally:
        node.ask("CLUSTER", "ADDSLOTS", slot)


def counted(patch: pytest.MonkeyPatch, verb: str) -> list[int]:
    """The shards that are asked."""
    asked: list[int] = []
    for kind in (AsyncShard, Shard):
        call = getattr(kind, verb)

        def one(self: Any, *args: Any, call: Any = call, **options: Any) -> Any:
            asked.append(self.number)
            return call(self, *args, **options)

        patch.setattr(kind, verb, one)
    return asked


@both_colours
@both_verbs
@pytest.mark.parametrize("by", ["ids", "all"])
async def test_a_slot_that_nobody_has_keeps_no_other_shard_of_its_server_from_it(
    masters: RedisCluster, masters_url: str, colour: str, verb: str, how: dict[str, Any], by: str
) -> None:
    url = f"{masters_url}&timeout=1&shards={2 * SHARDS}"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        ids = await buried(queue)
        left = sum(name_of(id).shard == 0 for id in ids)
        chosen = {"ids": ids} if by == "ids" else {}
        place = await place_of(masters, queue, 0)
        told = f"{place} answers, but can't do it now: .*not served.* {MANY - left} in all"
        async with unserved(masters, queue, 0):
            with pytest.raises(OutcomeUnknown, match=told):
                await other.do(verb, "t", **chosen, **how)


@both_colours
@both_verbs
@pytest.mark.parametrize("part", range(SHARDS))
async def test_a_program_that_hears_of_a_reshard_asks_a_silent_server_once(
    masters: RedisCluster,
    masters_url: str,
    monkeypatch: pytest.MonkeyPatch,
    colour: str,
    verb: str,
    how: dict[str, Any],
    part: int,
) -> None:
    url = f"{masters_url}&timeout=1"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await other.do("stats")
        begin_reshard(url, 3 * SHARDS)
        async with AsyncQueue(url) as sender:
            ids = await buried(sender)
            asked = counted(monkeypatch, SHARD_VERBS[verb])
            place = await place_of(masters, queue, part)
            places = [await place_of(masters, sender, shard) for shard in range(4 * SHARDS)]
            left = sum(places[name_of(id).shard] == place for id in ids)
            async with frozen(masters, queue, part):
                with pytest.raises(OutcomeUnknown, match=f"{MANY - left} in all"):
                    await other.do(verb, "t", ids=ids, **how)
            assert [places[shard] for shard in asked].count(place) <= 1
        await other.do("stats")


@both_colours
@pytest.mark.parametrize("part", range(SHARDS))
async def test_what_new_shards_have_is_found_by_its_id_while_a_server_is_silent(
    masters: RedisCluster, masters_url: str, colour: str, part: int
) -> None:
    """Also by a program that has not heard of them, while shard 0 does not answer."""
    url = f"{masters_url}&timeout=1"
    async with AsyncQueue(url) as queue, contextlib.AsyncExitStack() as stack:
        first, second, third = [await stack.enter_async_context(Either(url, colour)) for _ in range(3)]
        for other in (first, second, third):
            await other.do("stats")
        begin_reshard(url, 3 * SHARDS)
        place = await place_of(masters, queue, part)
        async with AsyncQueue(url) as sender:
            sent = await sender.send_many("t", [Outgoing(1, key=f"k{n}", delay="1h") for n in range(MANY)])
            healthy = [each.id for each in sent if await place_of(masters, sender, name_of(each.id).shard) != place]
            one, *some = healthy
            async with frozen(masters, queue, part):
                assert (await first.do("get", one)).id == one
                assert await second.do("cancel", one) is CancelResult.CANCELLED
                assert await third.do("cancel_many", some) == [CancelResult.CANCELLED] * len(some)


@both_colours
async def test_whether_there_is_a_shard_is_not_told_while_shard_0_is_silent_which_is_not_waited_for(
    masters: RedisCluster, masters_url: str, colour: str
) -> None:
    """Others may not have heard of it yet, so an id of another namespace can't be told from that of a new message."""
    elsewhere = masters_url.replace("namespace=", "namespace=larger")
    async with AsyncQueue(f"{elsewhere}&shards={4 * SHARDS}") as larger:
        sent = await larger.send_many("t", [Outgoing(1, key=f"k{n}") for n in range(MANY)])
        foreign = next(each.id for each in sent if name_of(each.id).shard >= SHARDS)
    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        ids = [each.id for each in await queue.send_many("t", [Outgoing(1, key=key) for key in keys_of(1, 3)])]
        await other.do("stats")
        why = f"{await place_of(masters, queue, 0)} does not answer.* Only its shard 0 can say whether there is a shard"
        async with frozen(masters, queue, 0), asyncio.timeout(TIMEOUT):
            for verb in ("get", "cancel"):
                with pytest.raises(Unavailable, match=why):
                    await other.do(verb, foreign)
            with pytest.raises(OutcomeUnknown, match=why) as told:
                await other.do("cancel_many", [*ids, foreign])
            assert told.value.answers == [*[CancelResult.CANCELLED] * len(ids), None]
        while (await other.do("stats")).missing:
            pass
        assert await other.do("cancel", foreign) is CancelResult.GONE


@both_colours
@pytest.mark.parametrize(("verb", "asks"), [("stats", "stats"), ("messages", "find")])
async def test_a_look_that_hears_of_a_reshard_asks_a_silent_server_once(
    masters: RedisCluster, masters_url: str, monkeypatch: pytest.MonkeyPatch, colour: str, verb: str, asks: str
) -> None:
    url = f"{masters_url}&timeout=1"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await other.do("stats")
        begin_reshard(url, 3 * SHARDS)
        async with AsyncQueue(url) as sender:
            await sender.send_many("t", [Outgoing(1, key=f"k{n}") for n in range(MANY)])
            place = await place_of(masters, queue, 0)
            places = [await place_of(masters, sender, shard) for shard in range(4 * SHARDS)]
            asked = counted(monkeypatch, asks)
            async with frozen(masters, queue, 0):
                for _ in range(2):
                    assert [*(await other.do(verb, "t")).missing] == [place]
            assert {places[shard] for shard in asked} == set(places)
            assert [places[shard] for shard in asked].count(place) == 1


@both_colours
@both_verbs
async def test_a_server_that_could_not_be_asked_for_new_shards_is_not_asked_again(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, colour: str, verb: str, how: dict[str, Any]
) -> None:
    async with AsyncQueue(f"{redis_url}?namespace=other&shards=12") as elsewhere:
        foreign = next(id for id in await buried(elsewhere) if name_of(id).shard > 0)
    async with AsyncQueue(redis_url) as queue, Either(redis_url, colour) as other:
        ids = await buried(queue)
        asked = counted(monkeypatch, SHARD_VERBS[verb])

        def silent(shards: Any, *_: object) -> Any:
            shards.anchor.connections.server.presence.lose()
            raise Unavailable("no answer")

        for kind in (AsyncShards, Shards):
            monkeypatch.setattr(kind, "hear_of", silent)
        with pytest.raises(Unavailable):
            await other.do(verb, "t", ids=[*ids, foreign], **how)
        assert asked == []


@both_colours
@both_verbs
@pytest.mark.parametrize("by", ["ids", "all"])
async def test_a_server_that_is_busy_is_asked_once_however_many_shards_it_has(
    new_redis: NewRedis, monkeypatch: pytest.MonkeyPatch, colour: str, verb: str, how: dict[str, Any], by: str
) -> None:
    server = new_redis()
    url = f"{server.url}?shards=6&timeout=0.5"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        ids = await buried(queue)
        await other.do("stats")
        asked = counted(monkeypatch, SHARD_VERBS[verb] if by == "ids" else verb)
        async with busy(server):
            with pytest.raises(Unavailable, match="answers, but can't do it now: BUSY"):
                await other.do(verb, "t", **({"ids": ids} if by == "ids" else {}), **how)
        assert len(asked) <= 1


@both_colours
@pytest.mark.parametrize(
    ("verb", "how"),
    [
        ("cancel_all", {}),
        ("cancel_all", {"where": Where(key="k*")}),
        ("requeue", {"where": Where(error="broken")}),
        ("purge", {"state": "dead", "where": Where(error="broken")}),
    ],
)
async def test_a_sweep_that_looks_first_tells_what_a_server_answers_that_can_not_do_it(
    masters: RedisCluster, masters_url: str, colour: str, verb: str, how: dict[str, Any]
) -> None:
    url = f"{masters_url}&timeout=1"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        some = [Outgoing(shard, key=key) for shard in range(SHARDS) for key in keys_of(shard, 2)]
        await queue.send_many("t", some)
        if verb != "cancel_all":
            for delivery in await queue.receive("t", limit=len(some)):
                await delivery.bury("broken")
        await other.do("stats")
        place = await place_of(masters, queue, 1)
        node = masters.node_of(slot_of((await engine_of(queue))._namespace.tag(1)))
        async with busy(node):
            told = f"^{place} answers, but can't do it now: BUSY.* All else is done, 4 in all"
            with pytest.raises(OutcomeUnknown, match=told):
                await other.do(verb, "t", **how)


@both_colours
@both_verbs
@pytest.mark.parametrize("by", ["ids", "all"])
async def test_of_a_server_that_falls_silent_after_a_shard_has_done_it_one_thing_is_told(
    masters: RedisCluster,
    masters_url: str,
    monkeypatch: pytest.MonkeyPatch,
    colour: str,
    verb: str,
    how: dict[str, Any],
    by: str,
) -> None:
    url = f"{masters_url}&timeout=1&shards={3 * SHARDS}"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        ids = await buried(queue)
        await other.do("stats")
        place = await place_of(masters, queue, 0)
        node = masters.node_of(slot_of((await engine_of(queue))._namespace.tag(0)))
        there: list[int] = []
        for kind in (AsyncShard, Shard):
            script = SHARD_VERBS[verb] if by == "ids" else verb
            call = getattr(kind, script)

            def one(self: Any, *args: Any, call: Any = call, **options: Any) -> Any:
                there.extend([self.number] * (self.place == place))
                if len(there) == 2:
                    masters.freeze(node)
                return call(self, *args, **options)

            monkeypatch.setattr(kind, script, one)
        try:
            with pytest.raises(OutcomeUnknown, match=r"All else is done, \d+ in all") as told:
                await other.do(verb, "t", **({"ids": ids} if by == "ids" else {}), **how)
        finally:
            masters.thaw(node)
        assert len(there) == 2
        assert str(told.value).count(f"{place} ") == 1
        assert f"{place} did not answer in time" in str(told.value)
        assert "Nothing was done" not in str(told.value)


@pytest.mark.always
@both_colours
async def test_what_a_server_answered_or_that_it_did_not_is_told_as_it_is_now(
    masters: RedisCluster, masters_url: str, colour: str
) -> None:
    url = f"{masters_url}&timeout=1"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        ids = await buried(queue)
        await other.do("stats")
        place = await place_of(masters, queue, 1)

        async def is_told(why: str) -> bool:
            with pytest.raises(OutcomeUnknown) as told:
                await other.do("requeue", "t", ids)
            return f"{place} {why}" in str(told.value)

        node = masters.node_of(slot_of((await engine_of(queue))._namespace.tag(1)))
        async with busy(node):
            await once(lambda: is_told("answers, but can't do it now: BUSY"))
            masters.freeze(node)
            try:
                await once(lambda: is_told("does not answer"))
            finally:
                masters.thaw(node)
            await once(lambda: is_told("answers, but can't do it now: BUSY"))

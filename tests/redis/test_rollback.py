"""A server that forgets its last writes, as after a failover to a replica that lagged: what clients still hold is refused."""

import asyncio
from collections.abc import Sequence

import pytest

from bide.engines.base import Claimed, NewMessage, Ref, Verdict
from bide.testing.contract.bench import Bench, ending
from bide.types import CancelResult, RescheduleResult
from tests.redis.crowd import Scene, recorded
from tests.redis.keyspace import COLOURS, bench_at, bring_back, held, names, picture
from tests.servers.redis import RedisServer

both_colours = pytest.mark.parametrize("colour", COLOURS)
SPANS = {"ready": 0, "coarse": 400_000_000, "fine": 70_000}


def salted(first: str, second: str) -> bool:
    """Whether two ids name the same place; their salts then differ, but once in 65,536 times."""
    return first[:-4] == second[:-4] and first != second


async def forgotten(bench: Bench, server: RedisServer, topic: str, again: str, delay: int) -> tuple[str, str]:
    """The id of a message that the server forgot, and of one that has its place."""
    with server.client() as client:
        base = picture(client)
        for _ in range(20):
            bring_back(client, base)
            lost = await bench.put(topic, b"lost", delay=delay)
            bring_back(client, base)
            stays = await bench.put(again, b"stays", delay=delay)
            if salted(lost.id, stays.id):
                return lost.id, stays.id
    raise AssertionError("the place was not given again")


@both_colours
@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("again", ["t", "other"])
async def test_an_id_that_the_server_forgot_is_gone_although_another_message_has_its_place(
    redis_url: str, redis_server: RedisServer, colour: str, span: str, again: str
) -> None:
    async with bench_at(redis_url, colour) as bench:
        await bench.put("before")
        lost, stays = await forgotten(bench, redis_server, "t", again, SPANS[span])
        assert await bench.get(id=lost) is None
        assert await bench.cancel(id=lost) == CancelResult.GONE
        assert await bench.reschedule(lost, delay=5) == RescheduleResult.GONE
        assert (await bench.find(id=stays)).body == b"stays"
        bench.move(SPANS[span])
        [claimed] = await bench.claim(again)
        assert claimed.id == stays
        assert await bench.cancel(id=lost) == CancelResult.GONE
        assert await bench.end(claimed, "dead", error="no use") == "dead"
        assert (await bench.engine.requeue(again, [lost], now=bench.now)).count == 0
        assert await bench.cancel(id=lost) == CancelResult.GONE
        assert (await bench.find(id=stays)).state == "dead"


async def all_are_refused(bench: Bench, claimed: Sequence[Claimed]) -> None:
    verdicts: tuple[Verdict, ...] = ("done", "retry", "release", "dead")
    for one in claimed:
        for verdict in verdicts:
            assert await bench.end(one, verdict) == "lost"
        assert not await bench.extend(one, 90_000)


@both_colours
@pytest.mark.parametrize("later", [0, 1, 5_000])
async def test_the_token_of_a_claim_that_the_server_forgot_is_refused(
    redis_url: str, redis_server: RedisServer, colour: str, later: int
) -> None:
    """Whoever claims anew: the same engine, or another one."""
    async with bench_at(redis_url, colour) as bench, bench_at(redis_url, colour) as other:
        ids = {each.id for each in await bench.put_all(*[NewMessage("t", b"%d" % i) for i in range(5)])}
        with redis_server.client() as client:
            base = picture(client)
            for anew in (bench, other, bench):
                bring_back(client, base)
                old = await bench.claim("t", limit=5)
                assert {each.id for each in old} == ids
                bring_back(client, base)
                await all_are_refused(bench, old)
                anew.now += later
                new = await anew.claim("t", limit=5)
                assert {each.id for each in new} == ids
                bench.now = other.now = max(bench.now, other.now)
                before = held(client)
                await all_are_refused(bench, old)
                assert _but_for_lanes(held(client)) == _but_for_lanes(before)
                ended = await anew.engine.settle([ending(each, "done") for each in new], now=anew.now)
                assert set(ended) == {"done"}


def _but_for_lanes(found: dict[bytes, tuple[bytes, object]]) -> dict[bytes, tuple[bytes, object]]:
    return {name: what for name, what in found.items() if b":lanes:" not in name and not name.endswith(b":meta")}


@both_colours
async def test_tokens_of_quick_claims_are_not_undercut_when_the_server_forgets(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    """By the server's own clock, which the claims don't outrun; and by whoever knows a later time than the server has."""
    async with bench_at(redis_url, colour) as bench, bench_at(redis_url, colour) as other:
        with redis_server.client() as client:
            await bench.engine.put([NewMessage("t", b"%d" % i) for i in range(400)])
            [first] = (await bench.engine.claim(["t"], 1, 60_000)).messages
            base, tokens = picture(client), [first.token[:16]]
            for _ in range(30):
                claims = await asyncio.gather(*[bench.engine.claim(["t"], 1, 60_000) for _ in range(10)])
                tokens += sorted(each.token[:16] for claim in claims for each in claim.messages)
            assert len(tokens) == len(set(tokens)) == 301
            assert tokens == sorted(tokens)
            seconds, rest = client.time()
            assert int(tokens[-1]) <= seconds * 1_000_000 + rest + 1_000
            bring_back(client, base)
            [anew] = (await other.engine.claim(["t"], 1, 60_000)).messages
            assert anew.token[:16] > tokens[-1]
            bring_back(client, base)
            late = await bench.engine.claim(["t"], 1, 60_000, now=bench.now)
            bring_back(client, base)
            [last] = (await bench.engine.claim(["t"], 1, 60_000)).messages
            assert last.token[:16] > late.messages[0].token[:16]


@both_colours
async def test_an_end_that_the_server_forgot_can_be_told_again(redis_url: str, redis_server: RedisServer, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        claimed = await bench.running("t")
        with redis_server.client() as client:
            base = picture(client)
            assert await bench.end(claimed, "done") == "done"
            bring_back(client, base)
        assert (await bench.find(id=claimed.id)).state == "leased"
        assert await bench.end(claimed, "done") == "done"


async def test_an_operation_that_the_server_forgot_acts_when_it_comes_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb in ("put", "settle", "cancel", "purge"):
        for call in await recorded(scene, verb, monkeypatch):
            bring_back(scene.client, scene.base)
            scene.client.eval(call.script.text, 2, *call.keys, *call.args)
            after = held(scene.client)
            bring_back(scene.client, scene.base)
            scene.client.eval(call.script.text, 2, *call.keys, *call.args)
            assert {**held(scene.client), b"{shop:0}:meta": 0} == {**after, b"{shop:0}:meta": 0}


@both_colours
async def test_engine_time_does_not_go_back_for_whoever_has_heard_it(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with bench_at(redis_url, colour) as bench:
        await bench.put("t", delay=60_000)
        with redis_server.client() as client:
            base = picture(client)
            begin = bench.now
            bench.move(60_000)
            [claimed] = await bench.claim("t")
            bring_back(client, base)
        claim = await bench.engine.claim(["t"], 1, 1_000, now=begin + 1)
        assert claim.now >= begin + 60_000
        assert [each.id for each in claim.messages] == [claimed.id]


@both_colours
async def test_a_server_that_forgot_everything_is_an_empty_queue(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with bench_at(redis_url, colour) as bench:
        old = await bench.put("t")
        await bench.put("t", key="k", delay=5)
        [claimed] = await bench.claim("t")
        with redis_server.client() as client:
            client.flushall()
            await all_are_refused(bench, [claimed])
            assert (
                await bench.engine.cancel([Ref(id=old.id), Ref(topic="t", key="k")], now=bench.now) == [CancelResult.GONE] * 2
            )
            assert not await bench.claim("t")
            new = await bench.put("t", key="k")
            assert [each.id for each in await bench.stored("t")] == [new.id]
            assert await bench.cancel(id=new.id) == CancelResult.CANCELLED
            assert {name.partition("}:")[2].partition(":")[0] for name in names(client)} == {"meta", "lanes"}

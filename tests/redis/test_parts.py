"""What is large comes in several scripts, of which none is long, and is answered as one."""

from typing import Any

import pytest
import redis

from bide.engines.base import Move, NewMessage, Ref
from bide.engines.redis.protocol import sends
from bide.engines.redis.script import scripts
from bide.errors import BadTime, OutcomeUnknown
from bide.testing.contract.bench import Bench, ending
from bide.types import CancelResult, RescheduleResult
from tests.redis.keyspace import COLOURS, bench_at, counts_are_true, finish_all, put_many, take_all
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

both_colours = pytest.mark.parametrize("colour", COLOURS)
MIB = 2**20


def scripts_run(client: redis.Redis) -> int:
    told: Any = client.info("commandstats")
    client.config_resetstat()
    return sum(int(told.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("evalsha", "eval"))


def parts_of(*sizes: int) -> list[list[int]]:
    batch = [NewMessage("t", b"x" * size) for size in sizes]
    return [indexes for _, indexes in sends.put_parts(batch, lambda new: 0)]


def test_a_batch_is_cut_where_its_bodies_are_more_than_a_script_takes() -> None:
    assert parts_of(1, 2, 3) == [[0, 1, 2]]
    assert parts_of(MIB) == [[0]]
    assert parts_of(MIB - 1, 1, 1) == [[0, 1], [2]]
    assert parts_of(1, 3 * MIB, 1) == [[0], [1], [2]]
    assert parts_of(*[MIB // 4] * 9) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert parts_of(*[0] * 1_000) == [list(range(1_000))]


@both_colours
@pytest.mark.parametrize("options", ["", "?shards=3"])
async def test_a_batch_of_many_bytes_is_sent_in_parts(
    redis_url: str, redis_server: RedisServer, colour: str, options: str
) -> None:
    async with bench_at(redis_url + options, colour) as bench:
        batch = [NewMessage("t", b"%d" % i * 100_000, key=f"k{i}" if i % 3 else None) for i in range(40)]
        with redis_server.client() as client:
            sent = await bench.engine.put(batch, now=bench.now)
            assert scripts_run(client) >= 4
        assert len({each.id for each in sent}) == 40
        for each, new in zip(sent, batch, strict=True):
            stored = await bench.find(id=each.id)
            assert (stored.body, stored.key) == (new.body, new.key)


@both_colours
async def test_a_server_that_is_full_in_the_middle_of_a_batch_has_taken_whole_parts(new_redis: NewRedis, colour: str) -> None:
    """And the others can be sent again with the operations of the error."""
    server = new_redis(maxmemory="8mb")
    async with bench_at(server.url, colour) as bench:
        batch = [NewMessage("t", b"x" * (MIB // 4)) for _ in range(40)]
        with pytest.raises(OutcomeUnknown, match="one part of several") as unknown:
            await bench.put_all(*batch)
        operations, answers = unknown.value.operations, unknown.value.answers
        assert [operation == "" for operation in operations] == [answer is not None for answer in answers]
        taken = len(await bench.stored("t"))
        assert 0 < taken < 40
        assert taken % 4 == 0
        with server.client() as client:
            client.config_set("maxmemory", "0")
        named = [
            NewMessage("t", new.body, operation=operation)
            for new, operation in zip(batch, operations, strict=True)
            if operation
        ]
        await bench.engine.put(named, now=bench.now)
        assert len(await bench.stored("t")) == 40


async def large_crowd(bench: Bench) -> list[str]:
    ids: list[str] = []
    for first in range(0, 1_000, 500):
        batch = [NewMessage("t", b"x", key=f"k{i}", delay=i, expires_in=90_000_000) for i in range(first, first + 500)]
        ids += [each.id for each in await bench.put_all(*batch)]
    return ids


@both_colours
async def test_a_thousand_are_moved_cancelled_ended_and_requeued_in_parts(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with bench_at(redis_url, colour) as bench:
        ids = await large_crowd(bench)
        with redis_server.client() as client:
            for script in scripts().values():
                client.script_load(script.text)
            client.config_resetstat()
            moves = [Move(Ref(id), delay=5_000) for id in ids]
            assert set(await bench.engine.reschedule(moves, now=bench.now)) == {RescheduleResult.MOVED}
            assert scripts_run(client) == 4
            bench.move(5_000)
            claimed = await take_all(bench, "t")
            client.config_resetstat()
            ended = await bench.engine.settle([ending(each, "dead") for each in claimed], now=bench.now)
            assert (set(ended), scripts_run(client)) == ({"dead"}, 4)
            did = await bench.engine.requeue("t", ids, delay=90_000, now=bench.now)
            assert (did.count, did.more, scripts_run(client)) == (1_000, False, 4)
            cancelled = await bench.engine.cancel([Ref(topic="t", key=f"k{i}") for i in range(1_000)], now=bench.now)
            assert (set(cancelled), scripts_run(client)) == ({CancelResult.CANCELLED}, 4)
        await counts_are_true(bench, ["t"])


@both_colours
async def test_a_time_that_is_too_far_refuses_all_parts(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        ids = await large_crowd(bench)
        moves = [Move(Ref(id), delay=5_000) for id in ids[:-1]] + [Move(Ref(ids[-1]), at=bench.now * 3)]
        before = await bench.stored("t")
        with pytest.raises(BadTime):
            await bench.engine.reschedule(moves, now=bench.now)
        assert await bench.stored("t") == before


@both_colours
async def test_dead_letters_over_a_lowered_limit_go_a_hundred_at_a_time(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with bench_at(redis_url, colour) as many, bench_at(redis_url, colour, dead_max=10) as few:
        await put_many(many, "t", 700)
        claimed = await take_all(many, "t")
        for i in range(0, 500, 250):
            await many.engine.settle([ending(each, "dead") for each in claimed[i : i + 250]], now=many.now)
        few.now = many.now
        await few.engine.settle([ending(each, "dead") for each in claimed[500:600]], now=few.now)
        assert (await few.engine.stats("t", now=few.now)).dead == 500
        did = await few.engine.tend(now=few.now)
        assert (did.dropped, did.more) == (100, True)
        while did.more:
            did = await few.engine.tend(now=few.now)
            assert did.dropped <= 100
        told = await few.engine.stats("t", now=few.now)
        assert (told.dead, told.dead_dropped) == (10, 590)
        await finish_all(many, claimed[600:])

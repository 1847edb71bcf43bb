"""One shard of several fails: the others hand out what they have, and nobody is told a thing that is not true."""

import asyncio
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from bide import AsyncQueue, ConfigError, EngineError, OutcomeUnknown, Outgoing, Queue, Unavailable
from tests.servers.redis import RedisServer

MANY = 40
SHARDS = 4
HOUR = 3_600_000


@contextmanager
def failing(client: Any, shard: int, topic: str | None = None) -> Iterator[None]:
    """A key of one shard is of another kind, as if its server were away behind a proxy; all that it holds stays."""
    keys = [f"{{bide:{shard}}}:topics".encode()]
    if topic is not None:
        keys += [key for key in client.keys(f"{{bide:{shard}}}:*:h") if client.hget(key, "name") == topic.encode()]
    for key in keys:
        client.rename(key, b"aside:" + key)
        client.set(key, "x")
    try:
        yield
    finally:
        for key in keys:
            client.delete(key)
            client.rename(b"aside:" + key, key)


@contextmanager
def away(shard: Any) -> Iterator[None]:
    """Nothing is answered there at all."""

    async def fail(*asked: Any, **options: Any) -> Any:
        raise Unavailable("the server is away")

    shard.calls.do = fail
    try:
        yield
    finally:
        del shard.calls.do


async def engine_of(queue: AsyncQueue) -> Any:
    engine: Any = await queue.session.engine()
    return engine._engine


def key_of(shard: int) -> str:
    return next(key for key in map("k{}".format, range(100)) if shard_of(key) == shard)


def shard_of(key: str) -> int:
    return zlib.crc32(f"t {key}".encode()) % SHARDS


def another_than(shard: int) -> int:
    return (shard + 1) % SHARDS


def bodies(count: int, **options: Any) -> list[Outgoing]:
    return [Outgoing(number, key=f"k{number}", **options) for number in range(count)]


def test_a_receiver_gets_what_the_other_shards_have(redis_url: str, redis_server: RedisServer) -> None:
    with Queue(f"{redis_url}?shards={SHARDS}") as queue, redis_server.client() as client:
        queue.send_many("t", bodies(MANY, max_attempts=1))
        seen: set[int] = set()
        with failing(client, 3):
            for _ in range(MANY):
                try:
                    found = queue.receive("t", limit=10, lease="1h")
                except EngineError:
                    break
                seen |= {each.body for each in found}
                queue.ack_many(found)
        assert 0 < len(seen) < MANY
        stats = queue.stats("t")
        assert (stats.ready, stats.leased, stats.dead) == (MANY - len(seen), 0, 0)
        while found := queue.receive("t", limit=10):
            seen |= {each.body for each in found}
            queue.ack_many(found)
        assert seen == set(range(MANY))


async def test_what_a_shard_has_leased_when_its_answer_is_lost_is_given_back(redis_url: str) -> None:
    async with AsyncQueue(f"{redis_url}?shards={SHARDS}") as queue:
        await queue.send_many("t", bodies(MANY, max_attempts=1))
        shard = (await engine_of(queue))._shards[2]
        claim, lost = shard.claim, Counter[str]()

        async def lose(*asked: Any, **options: Any) -> Any:
            got = await claim(*asked, **options)
            if got.messages and not lost:
                lost["messages"] = len(got.messages)
                raise EngineError("the answer is lost")
            return got

        shard.claim = lose
        seen: list[int] = []
        async with asyncio.timeout(20):
            while len(seen) < MANY:
                found = await queue.receive("t", limit=20, lease="1h", wait=1)
                seen += [each.body for each in found]
                assert {each.attempt for each in found} <= {1}
                await queue.ack_many(found)
        assert lost["messages"] > 0
        assert sorted(seen) == list(range(MANY))


async def test_what_a_shard_has_leased_when_its_answer_is_lost_is_given_back_by_a_close(redis_url: str) -> None:
    queue = AsyncQueue(f"{redis_url}?shards={SHARDS}")
    await queue.send_many("t", bodies(MANY, max_attempts=1))
    shard = (await engine_of(queue))._shards[2]
    claim, lost = shard.claim, list[int]()

    async def lose(*asked: Any, **options: Any) -> Any:
        got = await claim(*asked, **options)
        if got.messages:
            lost.append(len(got.messages))
            raise EngineError("the answer is lost")
        return got

    shard.claim = lose
    found = await queue.receive("t", limit=MANY, lease="1h")
    await queue.ack_many(found)
    shard.claim = claim
    await queue.close()
    assert sum(lost) > 0
    async with AsyncQueue(f"{redis_url}?shards={SHARDS}") as other:
        stats = await other.stats("t")
        assert (stats.leased, stats.dead, stats.ready) == (0, 0, MANY - len(found))


async def test_a_shard_whose_server_is_away_keeps_nobody_from_the_others_also_when_they_had_nothing(redis_url: str) -> None:
    async with AsyncQueue(f"{redis_url}?shards={SHARDS}") as queue:
        await queue.send_many("t", bodies(MANY, max_attempts=1))
        seen: list[int] = []
        with away((await engine_of(queue))._shards[3]):
            there = [number for number in range(MANY) if shard_of(f"k{number}") != 3]
            while len(seen) < len(there):
                found = await queue.receive("t", limit=10, lease="1h")
                seen += [each.body for each in found]
                await queue.ack_many(found)
            assert sorted(seen) == there
            with pytest.raises(Unavailable):
                await queue.receive("t")
            await queue.send("t", MANY, key=key_of(1))  # there is an unanswered claim now
            [again] = await queue.receive("t")
            assert again.body == MANY
            await again.ack()
        while found := await queue.receive("t", limit=10):
            seen += [each.body for each in found]
            assert {each.attempt for each in found} == {1}
            await queue.ack_many(found)
        assert sorted(seen) == list(range(MANY))


async def test_a_process_that_died_gives_back_what_it_held_on_the_shards_that_answer_and_the_rest_later(
    redis_url: str,
) -> None:
    async with AsyncQueue(f"{redis_url}?shards={SHARDS}") as queue:
        await queue.send_many("t", [Outgoing(shard, key=key_of(shard)) for shard in range(SHARDS)])
        engine = await engine_of(queue)
        await engine.claim(["t"], SHARDS, HOUR, request="r")
        with away(engine._shards[3]):
            reached = await engine.claim([], 1, HOUR, request="r")
        assert (len(reached.messages), reached.more) == (SHARDS - 1, True)
        whole = await engine.claim([], 1, HOUR, request="r")
        assert (len(whole.messages), whole.more) == (SHARDS, False)


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_a_give_back_that_ends_early_is_done_by_the_next_claim(how: str, redis_url: str) -> None:
    async with AsyncQueue(f"{redis_url}?shards={SHARDS}") as queue:
        await queue.send_many("t", bodies(MANY, max_attempts=1))
        shard = (await engine_of(queue))._shards[2]
        claim, settle, steps = shard.claim, shard.settle, list[str]()

        async def lose(*asked: Any, **options: Any) -> Any:
            got = await claim(*asked, **options)
            if got.messages and not steps:
                steps.append("claimed")
                raise OutcomeUnknown("the answer is lost")
            return got

        async def end_early(*asked: Any, **options: Any) -> Any:
            if len(steps) == 1:
                steps.append("given back")
                if how == "fails":
                    raise OutcomeUnknown("the answer is lost")
                raise asyncio.CancelledError
            return await settle(*asked, **options)

        shard.claim, shard.settle = lose, end_early
        seen: list[Any] = []
        while len(seen) < MANY:
            with suppress(EngineError, asyncio.CancelledError):
                found = await queue.receive("t", limit=20, lease="1h")
                assert found or len(seen) == MANY
                seen += found
        assert steps == ["claimed", "given back"]
        assert sorted(each.body for each in seen) == list(range(MANY))
        assert {each.attempt for each in seen} == {1}


async def test_two_claims_at_once_give_back_two_unanswered_ones_and_each_message_comes_once(redis_url: str) -> None:
    async with AsyncQueue(f"{redis_url}?shards={SHARDS}") as queue:
        keys = {shard: [f"k{number}" for number in range(MANY) if shard_of(f"k{number}") == shard] for shard in range(SHARDS)}
        for shard, count in ((0, 2), (1, 2), (2, 4)):
            await queue.send_many("t", [Outgoing(key, key=key, max_attempts=1) for key in keys[shard][:count]])
        engine = await engine_of(queue)
        shard = engine._shards[2]
        claim, lost = shard.claim, asyncio.Barrier(3)
        leased, asking, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

        def claim_from(first: int, request: str) -> "asyncio.Task[Any]":
            engine._turn = first - 1
            return asyncio.create_task(engine.claim(["t"], 3, HOUR, request=request))

        async def lose(*asked: Any, **options: Any) -> Any:
            got = await claim(*asked, **options)
            if not got.messages:
                return got
            leased.set()
            await lost.wait()
            raise OutcomeUnknown("the answer is lost")

        shard.claim = lose
        early = [claim_from(1, "a")]  # two from shard 1, and one from shard 2 that nobody is told of
        await leased.wait()
        early.append(claim_from(0, "b"))  # two from shard 0, and another one from shard 2
        await lost.wait()
        seen = [each for task in early for each in (await task).messages]
        assert len(seen) == 4

        async def be_slow(me: str, topics: Any, limit: int, lease: int, request: str, *rest: Any, **options: Any) -> Any:
            got = await claim(me, topics, limit, lease, request, *rest, **options)
            if request in ("a", "b") and not asking.is_set():
                asking.set()
                await answered.wait()
            return got

        shard.claim = be_slow
        slow = claim_from(2, "c")
        await asking.wait()
        seen += (await claim_from(2, "d")).messages
        answered.set()
        seen += (await slow).messages
        seen += (await engine.claim(["t"], MANY, HOUR, request="e")).messages
        assert {each.attempt for each in seen} == {1}
        assert Counter(each.key for each in seen) == dict.fromkeys([*keys[0][:2], *keys[1][:2], *keys[2][:4]], 1)


@pytest.mark.parametrize("verb", ["cancel", "reschedule", "ack"])
async def test_each_is_told_what_became_of_its_own(verb: str, redis_url: str, redis_server: RedisServer) -> None:
    async with AsyncQueue(f"{redis_url}?shards={SHARDS}") as queue:
        with redis_server.client() as client:
            sent = await queue.send_many("t", bodies(MANY, delay=0 if verb == "ack" else "1h"))
            held: list[Any] = []
            while verb == "ack" and len(held) < MANY:
                held += await queue.receive("t", limit=MANY)
            asked = {
                "cancel": lambda place: queue.cancel(sent[place]),
                "reschedule": lambda place: queue.reschedule(sent[place], delay="5h"),
                "ack": lambda place: held[place].ack(),
            }[verb]
            keys = [each.key for each in held] or [f"k{place}" for place in range(MANY)]
            bad = another_than(shard_of(keys[0]))
            with failing(client, bad, "t"):
                answers = await asyncio.gather(*map(asked, range(MANY)), return_exceptions=True)
            told = [answer for key, answer in zip(keys, answers, strict=True) if shard_of(key) == bad]
            assert {type(each) for each in told} == {EngineError}
            assert "Nothing was changed" in str(told[0])
            assert not any(isinstance(each, BaseException) for each in answers if each not in told)


async def test_a_queue_that_is_closed_during_a_batch_of_several_parts_says_that_its_outcome_is_unknown(redis_url: str) -> None:
    outcomes: Counter[str] = Counter()
    for turns in range(40):
        queue = AsyncQueue(f"{redis_url}?shards={SHARDS}")
        await queue.topics()
        sending = asyncio.create_task(queue.send_many("t", bodies(MANY)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await queue.close()
        try:
            await sending
            outcomes["sent"] += 1
        except EngineError as error:
            outcomes[type(error).__name__] += 1
    assert outcomes["sent"] < 40, outcomes


async def test_a_shard_that_refuses_its_user_keeps_nobody_from_the_others(redis_url: str) -> None:
    async with AsyncQueue(f"{redis_url}?shards={SHARDS}") as queue:
        await queue.send_many("t", bodies(MANY))
        held: list[Any] = []
        while len(held) < MANY:
            held += await queue.receive("t", limit=MANY)

        async def refuse(*asked: Any, **options: Any) -> Any:
            raise ConfigError("the server refused the user or the password")

        shard = (await engine_of(queue))._shards[3]
        shard.calls.do = refuse
        held.sort(key=lambda each: shard_of(each.key))
        with pytest.raises(OutcomeUnknown, match="others of the batch were done"):
            await queue.ack_many(held)
        await queue.send("t", "new", key=key_of(1))
        [delivery] = await queue.receive("t")
        assert delivery.body == "new"

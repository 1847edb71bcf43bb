"""A namespace over several shards: all who use it say the same number of them, from the first message on."""

import os
import zlib
from collections.abc import Sequence

import pytest
import redis

from bide.engines.base import NewMessage
from bide.engines.redis.aio import engine as aio
from bide.engines.redis.protocol import claims
from bide.engines.redis.sync import engine as sync
from bide.engines.redis.sync.shards import Shards
from bide.errors import ConfigError
from bide.testing.contract.bench import LEASE, Bench
from tests.redis.keyspace import COLOURS, bench_at, names, shop
from tests.servers.redis import RedisServer

both_colours = pytest.mark.parametrize("colour", COLOURS)
every_shard = pytest.mark.parametrize("shard", range(4))


def key_of(shard: int, shards: int = 4) -> str:
    """A key whose message goes to that shard."""
    return next(key for key in (f"k{i}" for i in range(1_000)) if zlib.crc32(f"t {key}".encode()) % shards == shard)


@both_colours
@every_shard
@pytest.mark.parametrize("others", [1, 2, 64])
async def test_who_opens_after_the_first_message_with_another_number_is_refused(
    redis_url: str, colour: str, shard: int, others: int
) -> None:
    async with bench_at(f"{redis_url}?shards=4", colour) as bench:
        await bench.put("t", key=key_of(shard))
        with pytest.raises(ConfigError, match="shards=4"):
            async with bench_at(f"{redis_url}?shards={others}", colour):
                pass
        await bench.put("t", key=key_of((shard + 1) % 4))
        assert len(await bench.stored("t")) == 2


@both_colours
@every_shard
async def test_who_was_there_before_the_first_message_with_another_number_writes_nothing(
    redis_url: str, redis_server: RedisServer, colour: str, shard: int
) -> None:
    async with bench_at(f"{redis_url}?shards=4", colour) as bench, bench_at(f"{redis_url}?shards=3", colour) as other:
        assert not await bench.claim("t")
        assert not await other.claim("t")
        await bench.put("t", key=key_of(shard))
        for theirs in range(3):
            with pytest.raises(ConfigError, match="shards=4"):
                await other.put("t", key=key_of(theirs, 3))
            with pytest.raises(ConfigError, match="shards=4"):
                await other.engine.pause("t", True)
        with redis_server.client() as client:
            assert messages_of(client) == {f"{{shop:{shard}}}"}


@both_colours
async def test_a_server_that_lost_everything_is_told_anew(redis_url: str, redis_server: RedisServer, colour: str) -> None:
    async with bench_at(f"{redis_url}?shards=4", colour) as bench:
        await bench.put("t", key=key_of(3))
        with redis_server.client() as client:
            client.flushall()
        await bench.put("t", key=key_of(2))
        with pytest.raises(ConfigError, match="shards=4"):
            async with bench_at(f"{redis_url}?shards=3", colour):
                pass


@both_colours
async def test_looking_does_not_say_how_many_shards_there_are(redis_url: str, colour: str) -> None:
    async with bench_at(f"{redis_url}?shards=4", colour) as bench:
        await look_at_all(bench)
        async with bench_at(f"{redis_url}?shards=3", colour) as other:
            await other.put("t", key=key_of(2, 3))
            with pytest.raises(ConfigError, match="shards=3"):
                await bench.put("t", key=key_of(0))


def claimed_on(url: str, shard: int, now: int) -> str:
    """A message that the request `r` is given on one shard, as when its claim was given up, and arrives there late."""
    shards = Shards(shop(url)._namespace)
    shards.open()
    try:
        [claimed] = shards[shard].claim("somebody", ["t"], 1, LEASE, "r", now).messages
        return claimed.id
    finally:
        shards[0].connections.close()


@both_colours
@pytest.mark.parametrize("late", [[1], [1, 3], [0, 1, 2, 3]])
async def test_a_claim_that_reached_some_shards_late_gets_no_more_than_its_limit_when_it_is_repeated(
    redis_url: str, colour: str, late: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, turned = f"{redis_url}?shards=4", claims.turned
    async with bench_at(url, colour) as bench:
        ids = {(await bench.put("t", key=key_of(shard))).id for shard in range(4)}

        def meanwhile(topics: Sequence[str], count: int) -> Sequence[str]:  # when it was asked what the request holds
            for shard in late:
                claimed_on(url, shard, bench.now)
            return turned(topics, count)

        with monkeypatch.context() as patch:
            patch.setattr(claims, "turned", meanwhile)
            [first] = (await bench.engine.claim(["t"], 1, LEASE, request="r", now=bench.now)).messages
        # Then what is too much was given back, and is there for the next one
        again = (await bench.engine.claim([], 1, LEASE, request="r", now=bench.now)).messages
        assert [each.id for each in again] == [first.id]
        others = await bench.claim("t", limit=10)
        assert {first.id, *(each.id for each in others)} == ids
        assert {each.attempt for each in others} == {1}


@both_colours
async def test_a_claim_gives_all_that_its_request_holds_on_any_shard_whatever_limit_it_is_repeated_with(
    redis_url: str, colour: str
) -> None:
    async with bench_at(f"{redis_url}?shards=4", colour) as bench:
        for shard in range(4):
            await bench.put("t", key=key_of(shard))
        first = await bench.engine.claim(["t"], 4, LEASE, request="r", now=bench.now)
        assert len(first.messages) == 4
        for topics in ([], ["t"]):
            again = await bench.engine.claim(topics, 1, LEASE, request="r", now=bench.now)
            assert {(each.id, each.token) for each in again.messages} == {(each.id, each.token) for each in first.messages}


async def look_at_all(bench: Bench) -> None:
    assert not await bench.stored("t")
    assert not await bench.claim("t")
    assert not (await bench.engine.stats(now=bench.now)).topics


def messages_of(client: redis.Redis) -> set[str]:
    """The shards that hold a topic."""
    return {name.partition(":topics")[0] for name in names(client) if name.endswith(":topics")}


@both_colours
async def test_requeue_by_id_leaves_what_lies_alike_on_another_shard(
    redis_url: str, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics, homes and, by chance, the salts of messages are equal on all shards; the shard tells them apart."""
    monkeypatch.setattr(os, "urandom", lambda count, random=os.urandom: b"\7\7" if count == 2 else random(count))
    async with bench_at(f"{redis_url}?shards=3", colour) as bench:
        dead = [await bench.bury("t") for _ in range(3)]
        assert len({each.id[4:] for each in dead}) == 1
        swept = await bench.engine.requeue("t", [dead[0].id, dead[2].id], now=bench.now)
        assert swept.count == 2
        assert [(await bench.find(id=each.id)).state for each in dead] == ["ready", "dead", "ready"]


@both_colours
@pytest.mark.parametrize("turn", range(4))
async def test_a_full_claim_says_more_when_a_shard_had_enough_to_do_before_it_came_to_a_topic(
    redis_url: str, colour: str, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for engine in (aio, sync):
        monkeypatch.setattr(engine, "randrange", lambda most: turn)
    async with bench_at(f"{redis_url}?shards=2", colour) as bench:
        namespace = shop(f"{redis_url}?shards=2")._namespace
        shards = Shards(namespace)
        shards.open()
        first, second = shards
        for _ in range(3):
            first.put([NewMessage("a", b"old", expires_in=1)] * 1_000, namespace.spread, bench.now)
        first.put([NewMessage("quiet", b"")], namespace.spread, bench.now)
        second.put([NewMessage("a", b"")] * 100, namespace.spread, bench.now)
        first.connections.close()
        bench.move(5_000)
        found: list[str] = []
        for _ in range(8):
            claim = await bench.engine.claim(["a", "quiet"], 10, LEASE, now=bench.now)
            found += [each.topic for each in claim.messages]
            assert "quiet" in found or claim.more
        assert "quiet" in found

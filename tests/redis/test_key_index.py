"""The index of keys: exact whatever the keys are, and no script is long for them."""

import hashlib
import itertools
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bide.engines.base import NewMessage, Ref
from bide.testing.contract.bench import Bench
from bide.types import CancelResult, IfExists
from tests.redis.counted import Ran, counted
from tests.redis.invariants import invariants_hold
from tests.redis.keyspace import bench_at, names
from tests.redis.small import use_small_scripts
from tests.servers.redis import RedisServer

HOUR, DAY = 3_600_000, 86_400_000
OVERFULL = 4_096  # bytes of a bucket, as parts/keys.lua has it
CALLS = 8_100  # of one script, as test_budgets has them for keys of all sorts


def refs(keys: Sequence[str]) -> list[Ref]:
    return [Ref(topic="t", key=key) for key in keys]


async def held(bench: Bench, keys: Sequence[str]) -> list[bytes | None]:
    """The bodies of the messages that hold these keys."""
    found: list[bytes | None] = []
    for i in range(0, len(keys), 1_000):
        some = await bench.engine.get(refs(keys[i : i + 1_000]), now=bench.now)
        found += [None if each is None else each.body for each in some]
    return found


async def put(bench: Bench, keys: Sequence[str], body: str = "", **options: Any) -> list[str]:
    """What came of each."""
    outcomes: list[str] = []
    for i in range(0, len(keys), 1_000):
        new = [NewMessage("t", (body + key).encode(), key=key, **options) for key in keys[i : i + 1_000]]
        outcomes += [each.outcome for each in await bench.put_all(*new)]
    return outcomes


def bodies(keys: Sequence[str], body: str = "") -> list[bytes]:
    return [(body + key).encode() for key in keys]


@asynccontextmanager
async def watched(server: RedisServer, url: str) -> AsyncIterator[tuple[Bench, Any, list[Ran]]]:
    with server.client() as client, counted(client) as ran:
        async with bench_at(url) as bench:
            yield bench, client, ran


async def lives_of_keys(bench: Bench, client: Any, keys: Sequence[str]) -> None:
    """Put, kept, replaced, taken over, cancelled: the same as of other keys."""
    assert set(await put(bench, keys, delay=DAY)) == {"created"}
    invariants_hold(client)
    assert set(await put(bench, keys, "kept", delay=DAY)) == {"kept"}
    assert await held(bench, keys) == bodies(keys)
    assert set(await put(bench, keys[::2], "new", delay=HOUR, if_exists="replace")) == {"replaced"}
    assert await held(bench, keys[::2]) == bodies(keys[::2], "new")
    bench.move(HOUR)
    claimed = [each for _ in range(4) for each in await bench.claim("t", limit=50)]
    running = [each.key for each in claimed if each.key is not None]
    assert len(running) == 200
    assert set(await put(bench, running, "next", delay=DAY, if_exists="replace")) == {"created"}
    invariants_hold(client)
    for each in claimed:
        assert await bench.end(each, "done") == "done"
    assert await held(bench, running) == bodies(running, "next")
    for i in range(0, len(keys), 1_000):
        results = await bench.engine.cancel(refs(keys[i : i + 1_000]), now=bench.now)
        assert set(results) == {CancelResult.CANCELLED}
    assert not any(await held(bench, keys))
    assert not [name for name in names(client) if ":1:" in name]


def of_one_bucket(count: int) -> list[str]:
    """Keys that whoever chose them has put into the first bucket of 64, or of fewer."""
    found = (f"{i}" for i in itertools.count() if hashlib.sha1(b"%d" % i, usedforsecurity=False).digest()[2] % 64 == 0)
    return list(itertools.islice(found, count))


@pytest.mark.timeout(120)
async def test_keys_that_were_chosen_for_one_bucket_do_not_make_it_large(redis_server: RedisServer, redis_url: str) -> None:
    keys = of_one_bucket(3_000)
    async with watched(redis_server, redis_url) as (bench, client, ran):
        await put(bench, keys, delay=DAY)
        lengths = [len(each) for name in client.keys("*:1:k*") for each in client.hvals(name)]
        assert OVERFULL <= max(lengths) < OVERFULL + 100
        assert client.hlen("{shop:0}:1:crowd") > 2_000
        await put(bench, keys, delay=DAY, if_exists="replace")
        for i in range(0, len(keys), 1_000):
            await bench.engine.cancel(refs(keys[i : i + 1_000]), now=bench.now)
        assert max(each.calls for each in ran) <= CALLS


@pytest.mark.timeout(120)
@pytest.mark.parametrize("tags", [1, 3, 64])
async def test_keys_of_one_hash_are_told_apart_without_long_scripts(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch, tags: int
) -> None:
    use_small_scripts(monkeypatch, {"TAGS": tags})
    keys = [f"order:{i}" for i in range(3_000)]
    async with watched(redis_server, redis_url) as (bench, client, ran):
        await put(bench, keys, delay=DAY)
        before = max(each.calls for each in ran)
        await put(bench, [f"more:{i}" for i in range(3_000)], delay=DAY)
        assert max(each.calls for each in ran) < 1.1 * before <= 1.1 * CALLS
        assert client.hlen("{shop:0}:1:crowd") >= 6_000 - 16 * tags


@pytest.mark.timeout(120)
@pytest.mark.parametrize("bounds", [{}, {"TAGS": 1}, {"TAGS": 128, "CROWDED": 8}, {"OVERFULL": 40}], ids=str)
async def test_keys_live_alike_wherever_the_index_has_them(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int]
) -> None:
    use_small_scripts(monkeypatch, bounds)
    async with bench_at(redis_url) as bench:
        with redis_server.client() as client:
            await lives_of_keys(bench, client, [f"order:{i}" for i in range(1_200)])


LETTERS = ("x", "é", "\U0001f600", "\\", " ")


def long_keys() -> Iterator[str]:
    """Up to 256 letters, of up to 1,024 bytes."""
    for letter in LETTERS:
        for count in (1, 63, 64, 127, 128, 253, 254, 255, 256):
            yield letter * count


async def test_keys_of_any_letters_and_length_are_read_as_they_were_sent(redis_server: RedisServer, redis_url: str) -> None:
    keys = list(long_keys())
    with redis_server.client() as client:
        async with bench_at(redis_url) as bench:
            assert set(await put(bench, keys, max_attempts=7, expires_in=DAY)) == {"created"}
            invariants_hold(client)
            assert [each and each.key for each in await bench.engine.get(refs(keys), now=bench.now)] == keys
            claimed = await bench.claim("t", limit=1_000)
            assert sorted((each.key, each.body) for each in claimed) == sorted(zip(keys, bodies(keys), strict=True))


async def test_places_of_all_lengths_share_a_bucket(redis_server: RedisServer, redis_url: str) -> None:
    """Of one millisecond, so many come to lie in slots of all lengths, and those in the shortest have the longest places."""
    keys = [f"{i}" for i in range(14_500)]
    with redis_server.client() as client:
        async with bench_at(redis_url) as bench:
            await put(bench, keys, at=bench.now + DAY)
            lengths = {each[0] for name in client.keys("*:1:k*") for each in client.hvals(name)}
            assert max(lengths) == 9
            invariants_hold(client)
            assert await held(bench, keys) == bodies(keys)
            await bench.engine.cancel(refs(keys[-400:]), now=bench.now)
            assert await held(bench, keys[-800:]) == [*bodies(keys[-800:-400]), *[None] * 400]
            invariants_hold(client)


async def test_a_message_that_was_deleted_by_hand_holds_no_key(redis_server: RedisServer, redis_url: str) -> None:
    with redis_server.client() as client:
        async with bench_at(redis_url) as bench:
            await put(bench, ["a", "b"], delay=DAY)
            for name in client.keys("*:1:b*"):
                client.delete(name)
            assert await held(bench, ["a", "b"]) == [None, None]
            assert await put(bench, ["a"], "again", delay=2 * DAY) == ["created"]
            assert await held(bench, ["a", "b"]) == [b"againa", None]
            assert client.hget("{shop:0}:1:h", "keys") == b"2"  # its own, and that of b, which nobody asked for again
            assert await put(bench, ["b"], delay=2 * DAY) == ["created"]
            assert client.hget("{shop:0}:1:h", "keys") == b"2"
            [bucket] = client.hvals("{shop:0}:1:k0")
            assert len(bucket) == 1 + 2 * (3 + 1 + bucket[0])


@pytest.mark.parametrize("tags", [1, 2**24])
async def test_a_topic_ends_with_its_index_when_messages_were_deleted_by_hand(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch, tags: int
) -> None:
    use_small_scripts(monkeypatch, {"TAGS": tags, "GROUP": 2})
    with redis_server.client() as client:
        async with bench_at(redis_url) as bench:
            await put(bench, [f"{i}" for i in range(400)])
            claimed = await bench.claim("t", limit=1_000)
            for name in client.keys("*:1:b*"):
                client.delete(name)
            for each in claimed:
                await bench.end(each, "done")
            assert not [name for name in names(client) if ":1:" in name]


def chance_of(seed: int) -> tuple[random.Random, list[str]]:
    chance = random.Random(seed)
    return chance, [f"k{i}" for i in range(40)]


@pytest.mark.parametrize("tags", [2, 16, 64])
@pytest.mark.parametrize("seed", range(3))
async def test_whoever_holds_a_key_is_found_after_any_history(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch, seed: int, tags: int
) -> None:
    """Beside a dictionary, with hardly a tag that is of one key only."""
    use_small_scripts(monkeypatch, {"TAGS": tags, "ALIKE": 3, "CROWDED": 2, "GROUP": 4})
    chance, keys = chance_of(seed)
    expected: dict[str, bytes] = {}
    how: tuple[IfExists, ...] = ("keep", "replace")
    with redis_server.client() as client:
        async with bench_at(redis_url) as bench:
            for step in range(60):
                some = chance.sample(keys, chance.randrange(1, 20))
                if chance.random() < 0.4:
                    await bench.engine.cancel(refs(some), now=bench.now)
                    expected = {key: body for key, body in expected.items() if key not in some}
                else:
                    if_exists = chance.choice(how)
                    await put(bench, some, f"{step} ", delay=chance.choice((HOUR, DAY)), if_exists=if_exists)
                    new = {key: f"{step} {key}".encode() for key in some}
                    expected = {**new, **expected} if if_exists == "keep" else {**expected, **new}
                assert await held(bench, keys) == [expected.get(key) for key in keys]
            invariants_hold(client)

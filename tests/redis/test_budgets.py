"""No script does much, on queues of awkward shapes: what each may call is counted, and grows with no number of messages."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from bide.engines.redis.protocol import sends
from tests.redis.counted import Ran, counted
from tests.redis.keyspace import bench_at
from tests.redis.shapes import SHAPES
from tests.servers.redis import RedisServer

LONG = os.environ.get("BIDE_LONG")
BYTES = 2**20 + 2**18  # that go to a script, or come from it: 1 MiB of bodies and what is said of them
Limits = dict[str, tuple[int, int]]
LIMITS: dict[str, Limits] = {
    "30 days": {
        "cancel": (1_200, 10),
        "claim": (600, 10),
        "get": (620, 110),
        "close": (10, 10),
        "purge": (2_000, 30),
        "put": (1_200, 30),
        "reschedule": (1_800, 10),
        "scan": (190, 80),
        "settle": (390, 30),
        "stats": (170, 20),
        "time": (10, 10),
    },
    "one millisecond": {
        "cancel": (1_200, 10),
        "claim": (90, 100),
        "get": (590, 100),
        "close": (10, 10),
        "purge": (190, 60),
        "put": (50, 120),
        "scan": (100, 200),
        "settle": (100, 240),
        "stats": (170, 20),
        "time": (10, 10),
    },
    "moved one by one": {
        "claim": (900, 20),
        "get": (870, 60),
        "leased": (10, 10),
        "close": (10, 10),
        "purge": (2_100, 40),
        "put": (120, 20),
        "reschedule": (20, 6_000),
        "scan": (30, 30),
        "settle": (1_500, 20),
        "stats": (110, 10),
        "time": (10, 10),
    },
    "leased one by one": {
        "claim": (30, 3_500),
        "extend": (1_500, 10),
        "get": (590, 40),
        "lease_ends": (160, 40),
        "leased": (760, 150),  # 612 to 619 on Redis 7.0, 696 to 714 on Valkey 9.1
        "close": (10, 10),
        "put": (40, 10),
        "scan": (10, 10),
        "settle": (2_900, 10),
        "stats": (20, 10),
        "tend": (1_300, 30),
        "time": (10, 10),
    },
    "dead letters": {
        "claim": (1_200, 20),
        "get": (1_200, 60),
        "leased": (10, 10),
        "close": (10, 10),
        "purge": (2_200, 30),
        "put_named": (100, 10),
        "requeue": (2_400, 10),
        "scan": (30, 20),
        "settle": (3_800, 30),
        "stats": (20, 10),
        "tend": (840, 10),
        "time": (10, 10),
    },
    "256 KiB each": {
        "claim": (50, 10),
        "get": (20, 30),
        "leased": (10, 10),
        "close": (10, 10),
        "purge": (2_200, 10),
        "put_named": (50, 20),
        "reschedule": (1_500, 10),
        "scan": (20, 10),
        "settle": (2_300, 10),
        "time": (10, 10),
    },
    "results of 256 KiB": {
        "arrive": (1_000, 90),
        "close": (10, 10),
        "depend": (20, 90),
        "expect_results": (1_000, 10),
        "follow": (1_300, 90),
        "fulfil_results": (30, 30),
        "put": (50, 10),
        "read_results": (10, 25),
        "time": (10, 10),
    },
    "topics": {
        "claim": (2_800, 150),
        "close": (1_200, 10),
        "put": (8_100, 20),
        "put_named": (3_600, 10),
        "settle": (3_100, 60),
        "stats": (430, 180),
        "tend": (1_200, 50),
        "time": (10, 10),
    },
    "keys": {
        "cancel": (3_500, 10),
        "claim": (910, 10),
        "get": (1_500, 20),
        "leased": (10, 10),
        "close": (10, 10),
        "put_named": (8_100, 10),
        "reschedule": (2_900, 10),
        "scan": (20, 20),
        "stats": (100, 10),
        "tend": (2_100, 20),  # each lease that has ended leaves a record
        "time": (10, 10),
    },
    "retries": {
        "claim": (1_300, 40),
        "get": (870, 20),
        "leased": (10, 10),
        "close": (10, 10),
        "put_named": (100, 10),
        "requeue": (2_700, 10),
        "scan": (20, 20),
        "settle": (2_400, 40),
        "stats": (240, 10),
        "time": (10, 10),
    },
    "64 shards": {
        "cancel": (140, 80),
        "claim": (50, 150),
        "get": (80, 450),
        "leased": (10, 80),
        "close": (20, 80),
        "pin": (10, 150),
        "purge": (190, 80),
        "put_named": (260, 300),
        "reschedule": (170, 80),
        "scan": (30, 600),
        "settle": (250, 80),
        "stats": (30, 230),
        "tend": (10, 80),
        "time": (10, 10),
    },
}
# Where the long slots are full, the messages of one batch go to many short ones, with a command for each.
FULL: dict[str, Limits] = {
    "30 days": {"claim": (900, 10)},
    "moved one by one": {"put": (1_000, 20), "scan": (40, 30)},
}
"""For each shape and script: how many commands it calls at most, and how often it runs at the smaller size."""


def faults(ran: list[Ran], limits: Limits, times: float = 1) -> Iterator[str]:
    for each in ran:
        calls, _ = limits.get(each.name, (0, 0))
        if each.calls > calls:
            yield f"{each.name} called {each.calls:,} commands; at most {calls:,}"
        if max(each.sent, each.told) > BYTES:
            yield f"{each.name} was sent {each.sent:,} bytes and told {each.told:,}; at most {BYTES:,}"
    for name, count in Counter(each.name for each in ran).items():
        often = limits.get(name, (0, 0))[1] * times
        if count > often:
            yield f"{name} ran {count:,} times; at most {often:,.0f}"


async def cost(server: RedisServer, url: str, name: str, many: int) -> list[Ran]:
    options = "?shards=64&timeout=60" if name == "64 shards" else "?timeout=60"
    with server.client() as client, counted(client) as ran:
        async with bench_at(url + options) as bench:
            async for _ in SHAPES[name].steps(bench, many):
                pass
    return ran


LENGTHY = ("moved one by one", "one millisecond", "leased one by one")


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow] if each in LENGTHY else []) for each in SHAPES])
async def test_what_a_script_does_is_bounded(redis_server: RedisServer, redis_url: str, name: str) -> None:
    ran = await cost(redis_server, redis_url, name, SHAPES[name].some)
    assert list(faults(ran, LIMITS[name])) == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.skipif(not LONG, reason="needs BIDE_LONG=1")
@pytest.mark.parametrize("name", SHAPES)
async def test_what_a_script_does_is_bounded_at_full_size(redis_server: RedisServer, redis_url: str, name: str) -> None:
    shape = SHAPES[name]
    ran = await cost(redis_server, redis_url, name, shape.full)
    assert list(faults(ran, LIMITS[name] | FULL.get(name, {}), times=2 * shape.full / shape.some)) == []


def test_there_are_limits_for_what_is_there() -> None:
    assert set(LIMITS) == set(SHAPES)


# that the judge can find what it looks for


async def test_a_batch_in_one_piece_is_over_the_limit_of_commands(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sends, "PART", 1_000)
    ran = await cost(redis_server, redis_url, "leased one by one", 1_000)
    told = list(faults(ran, LIMITS["leased one by one"]))
    assert {each.partition(" ")[0] for each in told if "commands" in each} >= {"extend", "settle"}


async def test_large_bodies_in_one_piece_are_over_the_limit_of_bytes(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sends, "FULL", 2**30)
    ran = await cost(redis_server, redis_url, "256 KiB each", 8)
    assert [each for each in faults(ran, LIMITS["256 KiB each"]) if "put_named was sent" in each]

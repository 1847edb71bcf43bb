"""Gates while the shards become others: a gate is in one of them at a time, whoever knows of which shards."""

import pytest

from bide.engines.gates import Entry, Held, Spend
from bide.engines.redis import resharding
from bide.engines.redis.resharding import Emptying, Resharding
from bide.errors import OutcomeUnknown
from bide.testing.contract.bench import Bench
from tests.redis.keyspace import COLOURS, bench_at, shop
from tests.servers.redis import RedisServer

both_colours = pytest.mark.parametrize("colour", COLOURS)
GATES = [f"g{i}" for i in range(30)]
LEASE = 60_000


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old shards need not wait until nobody sends again what he sent before."""
    monkeypatch.setattr(resharding, "REMEMBERED", 0)


def begin(url: str, size: int) -> None:
    with Resharding(shop(url)._namespace) as work:
        assert work.begin(size)


def step(url: str) -> Emptying | None:
    with Resharding(shop(url)._namespace) as work:
        return work.step()


async def enter(bench: Bench, holder: str, *gates: str, waiter: str | None = None) -> list[Held | None]:
    entered = await bench.engine.gates.enter([Entry(gate, holder, LEASE, 1, waiter) for gate in gates], now=bench.now)
    tokens = [each.token for each in entered]
    return [None if token is None else Held(gate, holder, token) for gate, token in zip(gates, tokens, strict=True)]


def shards_with_gates(server: RedisServer) -> set[int]:
    with server.client() as client:
        return {int(key.split(b":")[1].partition(b"}")[0]) for key in client.keys("*:agenda")}


@both_colours
async def test_a_gate_stays_in_its_old_shard_until_it_is_empty(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour, now=0) as old, bench_at(url, colour, now=0) as new:
        held = [each for each in await enter(old, "a", *GATES) if each]
        assert len(held) == len(GATES)
        await enter(old, "b", *GATES[:2], waiter="b")
        begin(redis_url, 2)
        assert await enter(new, "c", *GATES) == [None] * len(GATES)
        assert shards_with_gates(redis_server) == {0, 1, 2}
        left = step(redis_url)
        assert left is not None
        assert (left.shards, left.gates) == (3, len(GATES))
        assert await new.engine.gates.keep(held, LEASE) == [True] * len(GATES)
        gone = await old.engine.gates.leave(held)
        assert (set(gone.answers), [each.gate for each in gone.called]) == ({True}, GATES[:2])
        moved = [each for each in await enter(new, "c", *GATES) if each]
        assert [each.gate for each in moved] == GATES[2:]
        assert max(each.token or "" for each in held) < min(each.token or "" for each in moved)
        waited = [each for each in await enter(new, "b", *GATES[:2], waiter="b") if each]
        assert len(waited) == 2
        await new.engine.gates.leave(waited)
        assert shards_with_gates(redis_server) <= {3, 4}
        assert step(redis_url) is None
        assert await enter(old, "d", *GATES[2:]) == [None] * 28
        assert set((await old.engine.gates.leave(moved)).answers) == {True}


@both_colours
@pytest.mark.parametrize("first", ["who knows", "who does not"])
async def test_who_has_not_heard_of_new_shards_never_gets_in_beside_who_has(redis_url: str, colour: str, first: str) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as stale, bench_at(url, colour) as fresh:
        await enter(stale, "warm", "other")
        begin(redis_url, 4)
        for gate in GATES:
            one, two = (fresh, stale) if first == "who knows" else (stale, fresh)
            [inside] = await enter(one, "one", gate)
            assert inside is not None
            assert await enter(two, "two", gate) == [None]
            assert (await two.engine.gates.leave([inside], now=two.now)).answers == [True]
            [inside] = await enter(two, "two", gate)
            assert inside is not None
            assert await enter(one, "one", gate) == [None]


@both_colours
async def test_tokens_rise_also_where_the_old_shard_was_ahead(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        [held] = await enter(bench, "a", "g")
        with redis_server.client() as client:
            client.hset("{shop:0}:meta", "token", bench.now + 10_000_000)
        assert held is not None
        await bench.engine.gates.leave([held], now=bench.now)
        [last] = await enter(bench, "a", "g")
        assert last is not None
        await bench.engine.gates.leave([last], now=bench.now)
        begin(redis_url, 3)
        async with bench_at(redis_url, colour) as other:
            [next_one] = await enter(other, "a", "g")
        assert next_one is not None
        assert (next_one.token or "") > (last.token or "")


async def spend(bench: Bench, want: int = 1, holder: str | None = None) -> list[int]:
    told = await bench.engine.gates.spend([Spend(rate, 3, 60_000, want, holder) for rate in GATES], now=bench.now)
    assert len({tuple(each.at) for each in told}) == 1
    return told[0].at


@both_colours
async def test_a_rate_goes_on_in_the_new_shard_with_what_was_spent(
    redis_server: RedisServer, redis_url: str, colour: str
) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as bench, bench_at(url, colour) as other:
        assert await spend(bench, 2) == [bench.now] * 2
        begin(redis_url, 2)
        begin(redis_url, 4)
        for each in (bench, other):
            each.move(1_000)
        assert await spend(other, 9) == [other.now]
        assert await spend(bench, 9) == []
        assert shards_with_gates(redis_server) == set(range(9)) - {3, 4}
        bench.move(59_000)  # the old shards have nothing of it any more, and the new ones remember what came later
        assert await spend(bench, 9) == [bench.now] * 2
        while (await bench.engine.tend(now=bench.now)).more:
            pass
        assert shards_with_gates(redis_server) == {5, 6, 7, 8}


@both_colours
async def test_an_instant_is_kept_in_the_new_shard_and_used_once(redis_url: str, colour: str) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as bench, bench_at(url, colour) as other:
        assert await spend(bench, 3) == [bench.now] * 3
        later = bench.now + 60_000
        assert [await spend(bench, holder=each) for each in "ab"] == [[later]] * 2
        begin(redis_url, 2)
        assert [await spend(other, holder=each) for each in "aca"] == [[later]] * 3
        assert await spend(bench, holder="d") == [later + 60_000]
        bench.now = other.now = later
        # "b" is still with the old shard
        assert await spend(bench, holder="b") == [later]
        assert [await spend(other, holder=each) for each in "bac"] == [[later + 60_000], [later], [later]]
        assert await spend(bench) == []


@both_colours
async def test_where_an_old_shard_fails_no_new_one_is_asked(
    redis_url: str, redis_server: RedisServer, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as bench:
        await enter(bench, "a", *GATES)
        begin(redis_url, 2)
        with redis_server.client() as client:
            good = client.hget("{shop:1}:meta", "layout")
            client.hset("{shop:1}:meta", "layout", "99")  # no release reads that
            with pytest.raises(OutcomeUnknown) as failed:
                await enter(bench, "b", *GATES)
            assert {None if each is None else each.token for each in failed.value.answers} == {None}
            assert shards_with_gates(redis_server) == {0, 1, 2}
            client.hset("{shop:1}:meta", "layout", good or "")
        assert await enter(bench, "b", *GATES) == [None] * len(GATES)

"""Gates and rates on Redis do what they do in memory, in any history, and leave no key behind."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bide.core.rate import Rate, Spending
from bide.engines.aio import AsyncEngine
from bide.engines.base import Settings
from bide.engines.gates import AGAIN_MS, Entered, Entry, Held, Spend, Spent
from bide.engines.registry import source
from bide.errors import QueueFull
from bide.testing.contract import Recoloured
from bide.testing.contract.bench import START, Bench
from tests.redis.counted import counted
from tests.redis.invariants import invariants_hold
from tests.redis.keyspace import COLOURS, bench_at, bring_back, names, picture
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

both_colours = pytest.mark.parametrize("colour", COLOURS)
ways = pytest.mark.parametrize(("colour", "options"), [("async", ""), ("sync", ""), ("async", "?shards=3")])
GATES, HOLDERS = "abcd", "uvwxyz"
LEASES = (1, 900, 4_000, 20_000)
ASKS = (None, None, 2, 900, 3_000)
STEPS = (0, 0, 0, 1, 300, 999, 1_000, 1_001, 4_999, 5_000, 20_000)
STAYS = ("meta", "lanes:", "ops:")  # what a namespace has that nobody uses


@asynccontextmanager
async def in_memory() -> AsyncIterator[AsyncEngine]:
    engine = Recoloured(source(Settings(url="memory://", clock=None)).sync())
    await engine.open()
    yield engine
    await engine.close()


def left_over(server: RedisServer) -> set[str]:
    with server.client() as client:
        found = {name.partition("}:")[2] for name in names(client)}
    return {each for each in found if not each.startswith(STAYS)}


async def called(engine: AsyncEngine, now: int) -> list[tuple[str, str]]:
    """All that upkeep calls, in an order that shards have no part in."""
    found: list[tuple[str, str]] = []
    while True:
        told = await engine.tend(random.choice((1, 3, 1_000)), now=now)
        found += [(each.gate, each.waiter) for each in told.called]
        if not told.more:
            return sorted(found)


class History:
    """Calls of verbs by chance, of which both sides must answer the same."""

    def __init__(self, seed: int, one: AsyncEngine, other: AsyncEngine) -> None:
        self._draw = random.Random(seed)
        self._both = (one, other)
        self._tokens: list[dict[str, Held]] = [{}, {}]  # of either side, by gate and holder
        self.now: int = START

    async def step(self) -> None:
        self.now += self._draw.choice(STEPS)
        await self._draw.choice((self._enter, self._enter, self._enter, self._keep, self._leave, self._leave, self._recall))()

    async def finish(self) -> None:
        """Until all is over by itself."""
        for _ in range(200):
            next_in = [(await engine.tend(now=self.now)).next_in for engine in self._both]
            assert next_in[0] == next_in[1]
            if next_in[0] is None:
                return
            self.now += next_in[0]
        raise AssertionError("there is always something left")

    async def _enter(self) -> None:
        draw = self._draw
        entries = [
            Entry(
                gate,
                holder,
                draw.choice(LEASES),
                draw.choice((1, 1, 2, 3)),
                draw.choice((None, f"for {holder}")),
                draw.choice(ASKS),
            )
            for gate, holder in self._some()
        ]
        told = [await engine.gates.enter(entries, now=self.now) for engine in self._both]
        for entry, one, other in zip(entries, *told, strict=True):
            assert (one.token is None, one.since) == (other.token is None, other.since), entry
            for tokens, got in zip(self._tokens, (one, other), strict=True):
                if got.token is not None:
                    key = entry.gate + entry.holder
                    old = tokens.get(key)
                    assert old is None or old.token is None or got.token >= old.token
                    tokens[key] = Held(entry.gate, entry.holder, got.token)

    async def _keep(self) -> None:
        some, lease = self._some(), self._draw.choice(LEASES)
        told = [
            await engine.gates.keep(self._held(some, tokens), lease, now=self.now)
            for engine, tokens in zip(self._both, self._tokens, strict=True)
        ]
        assert told[0] == told[1]

    async def _leave(self) -> None:
        some = self._some()
        waits = [self._draw.random() < 0.3 for _ in some]
        told = []
        for engine, tokens in zip(self._both, self._tokens, strict=True):
            held = self._held(some, tokens)
            gone = [
                Held(each.gate, f"for {each.holder}", None) if wait else each for each, wait in zip(held, waits, strict=True)
            ]
            told.append(await engine.gates.leave(gone, now=self.now))
        assert told[0] == told[1]

    async def _recall(self) -> None:
        told = [await called(engine, self.now) for engine in self._both]
        assert told[0] == told[1]

    def _some(self) -> list[tuple[str, str]]:
        return [(self._draw.choice(GATES), self._draw.choice(HOLDERS)) for _ in range(self._draw.choice((1, 1, 2, 6)))]

    def _held(self, some: Sequence[tuple[str, str]], tokens: dict[str, Held]) -> list[Held]:
        return [tokens.get(gate + holder, Held(gate, holder, "1")) for gate, holder in some]


@ways
@pytest.mark.parametrize("seed", range(4))
async def test_gates_do_what_they_do_in_memory(
    redis_server: RedisServer, redis_url: str, colour: str, options: str, seed: int
) -> None:
    async with bench_at(redis_url + options, colour) as bench, in_memory() as memory:
        history = History(seed, memory, bench.engine)
        with redis_server.client() as client:
            for turn in range(250):
                await history.step()
                if not turn % 10:
                    invariants_hold(client)
        await history.finish()
    assert left_over(redis_server) == set()


# Rates


class Rates:
    """What `spend` must answer, by core/rate.py."""

    def __init__(self) -> None:
        self._spendings: dict[str, Spending] = {}
        self._reserved: dict[str, dict[str, int]] = {}

    def spend(self, asked: Spend, now: int) -> Spent:
        rate = Rate(asked.count, asked.window)
        spending = self._spendings.setdefault(asked.gate, Spending(*rate))
        if asked.holder is None:
            return Spent(*spending.take(rate, asked.want, now, ahead=False), now)
        kept = self._reserved.setdefault(asked.gate, {})
        at = spending.reserve(rate, kept.pop(asked.holder, None), now)
        if at > now:
            kept[asked.holder] = at
        return Spent([at], spending.take(rate, 0, now, ahead=False)[1], now)

    def recall(self, now: int) -> None:
        for name in [name for name, spending in self._spendings.items() if spending.over() <= now]:
            del self._spendings[name]
            self._reserved.pop(name, None)


async def spend_by_chance(bench: Bench, seed: int) -> None:
    draw, rates = random.Random(seed), Rates()
    # one changes its rate at times; one has holders
    counts = (1, 2, 7, 99, 100, 101, 250, 1_000)
    steady = {"h": (draw.choice(counts), draw.choice((50, 1_000, 10_000))), "s": (draw.choice(counts), 1_000)}
    changing = [(draw.choice(counts), draw.choice((50, 1_000, 10_000))) for _ in range(3)]
    for _ in range(200):
        bench.move(draw.choice((0, 0, 1, 7, 50, 51, 400, 1_000, 9_999)))
        batch = []
        for _ in range(draw.choice((1, 1, 3, 9))):
            gate = draw.choice("hsc")
            count, window = steady.get(gate) or draw.choice(changing if draw.random() < 0.3 else changing[:1])
            want = draw.choice((0, 1, 1, 2, 40, count, count + 1))
            batch.append(Spend(gate, count, window, want, draw.choice(HOLDERS) if gate == "h" else None))
        expected = [rates.spend(each, bench.now) for each in batch]
        assert await bench.engine.gates.spend(batch, now=bench.now) == expected
        if draw.random() < 0.1:
            await bench.engine.tend(now=bench.now)
            rates.recall(bench.now)


@ways
@pytest.mark.parametrize("seed", range(4))
async def test_rates_are_those_of_the_core(
    redis_server: RedisServer, redis_url: str, colour: str, options: str, seed: int
) -> None:
    async with bench_at(redis_url + options, colour) as bench:
        await spend_by_chance(bench, seed)
        with redis_server.client() as client:
            invariants_hold(client)
        bench.move(100_000_000)
        assert (await bench.engine.tend(now=bench.now)).next_in is None
    assert left_over(redis_server) == set()


@both_colours
async def test_more_instants_than_one_script_takes_are_granted_at_once(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        spends = [Spend("a", 100_000, 1_000, 2_500), Spend("b", 3, 1_000, 700), Spend("a", 100_000, 1_000, 1_999)]
        told = await bench.engine.gates.spend(spends, now=bench.now)
        assert [len(each.at) for each in told] == [2_500, 3, 1_999]
        assert set(told[0].at + told[2].at) == {bench.now}
        assert told[1].next_at == bench.now + 1_000


@both_colours
async def test_instants_whose_holders_never_come_do_not_pile_up(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        for turn in range(300):
            await bench.engine.gates.spend([Spend("r", 10, 100, holder=f"{turn}-{i}") for i in range(20)], now=bench.now)
            bench.move(20_000)
        with redis_server.client() as client:
            assert client.zcard("{shop:0}:kept:r") < 350  # of ten minutes


# On a server that has much, or no room


@pytest.mark.timeout(120)
async def test_a_long_line_makes_no_script_longer(redis_server: RedisServer, redis_url: str) -> None:
    most: list[dict[str, int]] = []
    async with bench_at(redis_url) as bench:
        gates, waiting = bench.engine.gates, 0
        await bench.engine.tend(now=bench.now)  # the first one notes when to come back
        [first] = await gates.enter([Entry("g", "h", 10**9)], now=bench.now)
        held = Held("g", "h", first.token)
        for many in (10, 20_000):
            while waiting < many:
                entries = [Entry("g", f"h{i}", 10**9, 1, f"w{i}") for i in range(waiting, min(many, waiting + 1_000))]
                assert all(each.token is None for each in await gates.enter(entries, now=bench.now))
                waiting += len(entries)
                bench.move(1)
            with redis_server.client() as client, counted(client) as ran:
                await gates.enter([Entry("g", "late", 10**9, 1, f"w{many - 1}")], now=bench.now)
                await gates.keep([held], 10**9, now=bench.now)
                left = await gates.leave([held], now=bench.now)
                [called] = left.called
                bench.move(AGAIN_MS)
                assert (await bench.engine.tend(now=bench.now)).called == (called,)
                [entered] = await gates.enter([Entry("g", "h", 10**9, 1, called.waiter)], now=bench.now)
                held = Held("g", "h", entered.token)
                bench.move(1)
            most.append({each.name: each.calls for each in ran})
    assert most[0] == most[1]
    assert max(most[0].values()) < 25


async def test_a_wide_gate_calls_a_long_line_in_parts(redis_server: RedisServer, redis_url: str) -> None:
    async with bench_at(redis_url) as bench:
        gates = bench.engine.gates
        [first] = await gates.enter([Entry("g", "h", 10**9)], now=bench.now)
        waiters = [f"w{i}" for i in range(3_500)]
        for i in range(0, len(waiters), 500):
            await gates.enter([Entry("g", each, 10**9, 1, each) for each in waiters[i : i + 500]], now=bench.now)
        await gates.enter([Entry("g", "wider", 10**9, 5_000)], now=bench.now)
        with redis_server.client() as client, counted(client) as ran:
            told = [each.waiter for each in (await gates.leave([Held("g", "h", first.token)], now=bench.now)).called]
            assert len(told) == 1_000
            more = True
            while more:
                did = await bench.engine.tend(now=bench.now)
                told += [each.waiter for each in did.called]
                more = did.more
        assert told == waiters
        assert max(each.calls for each in ran) < 25


@both_colours
async def test_who_drains_a_full_server_gets_in(new_redis: NewRedis, colour: str) -> None:
    server = new_redis()
    async with bench_at(server.url, colour) as bench:
        await bench.put("t")
        with server.client() as client:
            client.config_set("maxmemory", 1)
            with pytest.raises(QueueFull):
                await bench.put("t")
            gates = bench.engine.gates
            [entered, waits] = await gates.enter([Entry("g", "a", 5_000), Entry("g", "b", 5_000, 1, "w")], now=bench.now)
            assert (entered.token is not None, waits.since) == (True, bench.now)
            assert await gates.keep([Held("g", "a", entered.token)], 9_000, now=bench.now) == [True]
            assert (await gates.leave([Held("g", "a", entered.token)], now=bench.now)).called
            assert len((await gates.spend([Spend("r", 2, 1_000, 3)], now=bench.now))[0].at) == 2
            bench.move(60_000)
            assert (await bench.engine.tend(now=bench.now)).next_in is None


@both_colours
async def test_names_may_be_any_text(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    texts = ["", " ", "\n", "}:meta", "{x}", "h", "c", "ü€𝄞", "a:b", "1:h", "\0"]
    async with bench_at(redis_url, colour) as bench:
        gates = bench.engine.gates
        entered = await gates.enter([Entry(text, text, 9_000, 1, text) for text in texts], now=bench.now)
        held = [Held(text, text, got.token) for text, got in zip(texts, entered, strict=True)]
        waits = await gates.enter([Entry(text, text + "2", 9_000, 1, text) for text in texts], now=bench.now)
        assert [each.since for each in waits] == [bench.now] * len(texts)
        assert len(await gates.spend([Spend(text, 1, 10, holder=text) for text in texts], now=bench.now)) == len(texts)
        assert await gates.keep(held, 9_000, now=bench.now) == [True] * len(texts)
        left = await gates.leave(held, now=bench.now)
        assert [(each.gate, each.waiter) for each in left.called] == [(text, text) for text in texts]
        with redis_server.client() as client:
            invariants_hold(client)
        bench.move(60_000)
        assert (await bench.engine.tend(now=bench.now)).next_in is None
    assert left_over(redis_server) == set()


async def die(bench: Bench, count: int, **options: Any) -> None:
    """Programs that took a lock each, waited for it or used a rate, and died."""
    gates, names = bench.engine.gates, [f"d{i}" for i in range(count)]
    await gates.enter([Entry(name, "holder", 5_000, **options) for name in names], now=bench.now)
    await gates.enter([Entry(name, "late", 5_000, waiter="w", asks=3_000, **options) for name in names], now=bench.now)
    await gates.spend([Spend(f"r{i}", 1, 1_000, 1) for i in range(count)], now=bench.now)


@both_colours
@pytest.mark.parametrize("who", ["enters", "keeps", "leaves", "tends"])
async def test_locks_of_dead_programs_go_where_no_worker_runs(new_redis: NewRedis, colour: str, who: str) -> None:
    server = new_redis()
    async with bench_at(server.url, colour) as bench:
        gates = bench.engine.gates
        await die(bench, 40)
        assert len(left_over(server)) > 80
        bench.move(5_000 + 600_000)
        mine = Entry("mine", "me", 5_000)
        [got] = await gates.enter([mine], now=bench.now)
        held = Held("mine", "me", got.token)
        for _ in range(20):
            if who == "enters":
                await gates.enter([mine], now=bench.now)
            elif who == "keeps":
                assert await gates.keep([held], 5_000, now=bench.now) == [True]
            elif who == "leaves":
                await gates.leave([Held("other", "me", got.token)], now=bench.now)
            elif not (await bench.engine.tend(now=bench.now)).more:
                break
        assert left_over(server) == {"gate:mine", "inside:mine", "agenda"}


@both_colours
async def test_tidying_leaves_who_waits_and_who_is_only_late(new_redis: NewRedis, colour: str) -> None:
    server = new_redis()
    async with bench_at(server.url, colour) as bench:
        gates = bench.engine.gates
        entered = await gates.enter([Entry(gate, "dead", 5_000) for gate in ("line", "late")], now=bench.now)
        await gates.enter([Entry("line", "b", 5_000, waiter="w")], now=bench.now)
        late = Held("late", "dead", entered[1].token)
        bench.move(600_000)
        assert await gates.keep([late], 5_000, now=bench.now) == [True]
        bench.move(5_000)
        await gates.keep([late], 5_000, now=bench.now)
        told = await bench.engine.tend(now=bench.now)
        assert [(each.gate, each.waiter) for each in told.called] == [("line", "w")]


def token_of(entered: Sequence[Entered]) -> int:
    [one] = entered
    assert one.token is not None
    return int(one.token)


@both_colours
async def test_tokens_of_quick_entries_do_not_run_ahead_of_the_time(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    """So who holds a lock after a failover that lost writes has a higher token than who held it before."""
    async with bench_at(redis_url, colour, now=0) as bench:
        gates = bench.engine.gates
        with redis_server.client() as client:
            await gates.enter([Entry("x", "before", 60_000)])
            base = picture(client)
            for first in range(20):
                await gates.enter([Entry(f"{first} {i}", "a", 60_000) for i in range(1_000)])
            bring_back(client, base)
            await gates.enter([Entry(f"y{i}", "a", 60_000) for i in range(1_000)])
            last = token_of(await gates.enter([Entry("z", "a", 60_000)]))
            seconds, rest = client.time()
            assert last <= seconds * 1_000_000 + rest
            bring_back(client, base)
            assert token_of(await gates.enter([Entry("z", "b", 60_000)])) > last

"""Whom a message wakes: one of those who sleep, by their own alarm, by a token, by polling, or by a key that expires."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence

import pytest
import redis

from bide import AsyncQueue
from bide.engines.aio import AsyncEngine
from bide.engines.base import Claim, NewMessage, Settings
from bide.engines.redis.aio import wakeup
from bide.engines.redis.server import AsyncListener, Listener
from bide.engines.registry import source
from bide.errors import ConfigError
from tests.redis.keyspace import COLOURS, bench_at
from tests.servers.fixtures import NewRedis

both_colours = pytest.mark.parametrize("colour", COLOURS)
START = 4_000_000_000_000
LEASE = 10_000
SLEEP, PATIENCE, MOMENT = 30.0, 15.0, 0.1


class Crowd:
    """Engines of one namespace, as those of many processes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.now = START
        self.engines: list[AsyncEngine] = []

    async def one(self) -> AsyncEngine:
        engine = source(Settings(url=self.url)).aio()
        await engine.open()
        self.engines.append(engine)
        return engine

    async def many(self, count: int) -> list[AsyncEngine]:
        return [await self.one() for _ in range(count)]

    async def claim(self, engine: AsyncEngine, topic: str = "t") -> Claim:
        return await engine.claim([topic], 10, LEASE, now=self.now)

    async def told(self, engines: list[AsyncEngine]) -> list[int | None]:
        """When each is to come back, from now."""
        dues = [(await self.claim(each)).next_due for each in engines]
        return [None if due is None else due - self.now for due in dues]

    async def close(self) -> None:
        for engine in self.engines:
            await engine.close()


@pytest.fixture
async def crowd(redis_url: str) -> AsyncIterator[Crowd]:
    made = Crowd(redis_url)
    yield made
    await made.close()


async def test_two_of_many_are_told_when_the_next_message_is_due(crowd: Crowd) -> None:
    first, *others = await crowd.many(6)
    await first.put([NewMessage("t", b"x", delay=5_000)], now=crowd.now)
    assert await crowd.told([first, *others]) == [5_000, 5_050, None, None, None, None]
    # Then each is told the same again, and other topics have alarms of their own
    assert await crowd.told([first, *others]) == [5_000, 5_050, None, None, None, None]
    await first.put([NewMessage("u", b"x", delay=4_000)], now=crowd.now)
    assert (await crowd.claim(others[4], "u")).next_due == crowd.now + 4_000


async def test_a_message_that_is_due_sooner_has_an_alarm_of_its_own(crowd: Crowd) -> None:
    one, two, three = await crowd.many(3)
    await one.put([NewMessage("t", b"x", delay=5_000)], now=crowd.now)
    assert await crowd.told([one, two, three]) == [5_000, 5_050, None]
    await one.put([NewMessage("t", b"x", delay=3_000)], now=crowd.now)
    assert await crowd.told([three, two, one]) == [3_000, 3_050, None]


async def test_the_alarm_of_one_that_closes_is_another_ones(crowd: Crowd) -> None:
    one, two, three, four = await crowd.many(4)
    await one.put([NewMessage("t", b"x", delay=5_000)], now=crowd.now)
    assert await crowd.told([one, two, three]) == [5_000, 5_050, None]
    await one.close()
    assert await crowd.told([four, two, three]) == [5_000, 5_050, None]


async def test_of_what_is_due_after_the_next_sweep_all_are_told(crowd: Crowd) -> None:
    """So nobody's alarm is relied on for long, whatever has become of its owner."""
    one, two, three = await crowd.many(3)
    await one.put([NewMessage("t", b"x", delay=60_000)], now=crowd.now)
    assert await crowd.told([one, two, three]) == [60_000] * 3
    crowd.now += 55_000
    assert await crowd.told([three, one, two]) == [5_000, 5_050, None]


async def test_one_that_gets_a_message_hands_its_alarm_on(crowd: Crowd) -> None:
    one, two, three = await crowd.many(3)
    await one.put([NewMessage("t", b"1", delay=1_000), NewMessage("t", b"2", delay=2_000)], now=crowd.now)
    assert await crowd.told([one, two, three]) == [1_000, 1_050, None]
    while await heard(three):
        pass
    sleeper = asyncio.create_task(three.wait(["t"], SLEEP))
    crowd.now += 1_000
    claim = await crowd.claim(one)
    assert ([each.body for each in claim.messages], claim.next_due) == ([b"1"], crowd.now + 1_000)
    # Then somebody who sleeps is woken, and told of the next
    await asyncio.wait_for(sleeper, PATIENCE)
    assert await crowd.told([three]) == [1_000]


async def heard(engine: AsyncEngine) -> bool:
    """Whether there was a token, which is then used up."""
    waiting = asyncio.create_task(engine.wait(["t"], SLEEP))
    done, _ = await asyncio.wait({waiting}, timeout=MOMENT)
    if not done:
        waiting.cancel()
        await asyncio.wait({waiting})
    return bool(done)


async def wakes(engine: AsyncEngine, other: AsyncEngine) -> None:
    """A sleeper wakes for a message of somebody else, and sleeps when there is none."""
    for topic in ("t", "u"):
        while (claim := await engine.claim(["t", "u"], 10, LEASE)).messages or claim.more:
            pass
        while await heard(engine):
            pass
        sleeper = asyncio.create_task(engine.wait(["t", "u"], SLEEP))
        await asyncio.sleep(0)
        await other.put([NewMessage(topic, b"x")])
        await asyncio.wait_for(sleeper, PATIENCE)
        assert [each.topic for each in (await engine.claim(["t", "u"], 10, LEASE)).messages] == [topic]


async def test_a_poller_wakes_for_a_message(redis_url: str) -> None:
    crowd = Crowd(f"{redis_url}?wake=poll")
    await wakes(*await crowd.many(2))
    await crowd.close()


async def test_one_that_listens_for_expiry_wakes_for_a_message(new_redis: NewRedis) -> None:
    crowd = Crowd(f"{new_redis(notify_keyspace_events='Ex').url}?wake=expiry")
    await wakes(*await crowd.many(2))
    await crowd.close()


async def any_way(way: str, new_redis: NewRedis) -> Crowd:
    return Crowd(f"{new_redis(notify_keyspace_events='Ex').url}?wake={way}")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "SWEEP", 0.02)


ways = pytest.mark.parametrize("way", ["list", "poll", "expiry"])


@ways
@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("delay", [0, 5_500])
async def test_a_sleeper_finds_by_itself_what_no_token_told_of(new_redis: NewRedis, way: str, delay: int) -> None:
    """Also what will be due soon: it asks for an alarm then."""
    crowd = await any_way(way, new_redis)
    one, two = await crowd.many(2)
    await one.put([NewMessage("t", b"x", delay=delay)])
    with redis.Redis.from_url(crowd.url.partition("?")[0]) as client:
        assert client.unlink("{bide:0}:w:t") == 1
    await asyncio.wait_for(two.wait(["u", "t"], SLEEP), PATIENCE)
    await crowd.close()


@ways
@pytest.mark.usefixtures("often")
async def test_a_sleeper_wakes_for_upkeep(new_redis: NewRedis, way: str) -> None:
    """Such as that of a lease which was not there yet when it fell asleep, and whose holder has died."""
    crowd = await any_way(way, new_redis)
    one, two = await crowd.many(2)
    await one.put([NewMessage("t", b"x")])
    await two.tend()
    assert len((await one.claim(["t"], 1, 10)).messages) == 1
    await asyncio.wait_for(two.wait(["u"], SLEEP), PATIENCE)
    assert (await two.tend()).returned == 1
    await crowd.close()


@pytest.mark.usefixtures("often")
async def test_one_who_finds_nothing_sleeps_on(redis_url: str) -> None:
    crowd = Crowd(redis_url)
    one, two = await crowd.many(2)
    await one.put([NewMessage("t", b"x", delay=60_000)])
    await two.tend()
    while (await two.claim(["t"], 1, LEASE)).more or await heard(two):
        pass
    with redis.Redis.from_url(redis_url) as client:
        client.config_resetstat()
        sleeper = asyncio.create_task(two.wait(["t"], SLEEP))
        await asyncio.sleep(0.2)  # some sweeps
        assert not sleeper.done()
        await one.put([NewMessage("t", b"y")])
        await asyncio.wait_for(sleeper, PATIENCE)
        # newer servers count it when it ends
        assert client.info("commandstats")["cmdstat_blpop"]["calls"] == 1
    await crowd.close()


@ways
@pytest.mark.usefixtures("often")
async def test_closing_ends_a_sleep_of_many_sweeps(new_redis: NewRedis, way: str) -> None:
    crowd = await any_way(way, new_redis)
    one = await crowd.one()
    sleeper = asyncio.create_task(one.wait(["t"], SLEEP))
    await asyncio.sleep(0.1)  # a few sweeps
    await crowd.close()
    await asyncio.wait_for(sleeper, PATIENCE)


async def test_expiry_is_not_listened_for_where_nobody_tells_of_it(redis_url: str) -> None:
    crowd = Crowd(f"{redis_url}?wake=expiry")
    with pytest.raises(ConfigError, match="notify-keyspace-events"):
        await crowd.one()


async def test_expiry_is_listened_for_where_a_hosted_server_does_not_say_whether_it_tells_of_it(new_redis: NewRedis) -> None:
    server = new_redis(notify_keyspace_events="Ex", rename_command='CONFIG ""')
    crowd = Crowd(f"{server.url}?wake=expiry")
    await wakes(*await crowd.many(2))
    await crowd.close()


@pytest.mark.parametrize(("command", "way"), [("BLPOP", "list"), ("CLIENT", "list"), ("SUBSCRIBE", "expiry")])
async def test_a_receiver_is_told_which_command_the_server_lacks(new_redis: NewRedis, command: str, way: str) -> None:
    server = new_redis(notify_keyspace_events="Ex", rename_command=f'{command} ""')
    with pytest.raises(ConfigError, match=f"unknown command ['`]{command}['`].*wake=poll"):
        await receive_from(f"{server.url}?wake={way}")
    assert await receive_from(f"{server.url}?wake=poll") == []


async def receive_from(url: str) -> Sequence[object]:
    async with AsyncQueue(url) as queue:
        return await queue.receive("t", wait=0.5)


async def test_a_wait_that_is_cancelled_ends_at_whatever_moment_that_comes(redis_url: str) -> None:
    """Such as the one in which a command was just sent. A worker that can't claim because of it sleeps for a whole sweep."""
    async with bench_at(redis_url) as bench:
        for rounds in [*range(40)] * 3:
            waiting = asyncio.ensure_future(bench.engine.wait(["t"], SLEEP))
            for _ in range(rounds):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting}, timeout=PATIENCE)
            assert waiting.cancelled()


@both_colours
async def test_a_sleep_that_ends_while_writes_are_paused_leaves_the_server_alive(new_redis: NewRedis, colour: str) -> None:
    """As in each planned failover of a Cluster: Redis 7.0 crashes when told to wake whom the pause holds back."""
    server = new_redis()

    def until_both_are_held_back() -> None:
        """The sleeper, and who is to wake it."""
        while client.info("clients")["blocked_clients"] < 2:
            time.sleep(0.01)

    with server.client() as client:
        async with bench_at(server.url, colour) as bench:
            await bench.claim("t")
            client.client_pause(60_000, all=False)
            sleeping = asyncio.ensure_future(bench.engine.wait(["t"], MOMENT))
            await asyncio.to_thread(until_both_are_held_back)
            client.client_unpause()
            await sleeping
            await bench.put("t")
            assert await bench.claim("t")


@both_colours
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_sleeper_whose_server_was_replaced_wakes_nobody_at_the_new_one(
    redis_url: str, colour: str, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, somebody else may have its number."""
    woken = "cmdstat_client|unblock"
    with redis.Redis.from_url(redis_url) as client:
        if int(client.info("server")["redis_version"].split(".")[0]) < 7:
            pytest.skip("Redis 7 is the first to count UNBLOCK by itself")
        async with bench_at(redis_url, colour) as bench:
            await bench.put("t", delay=100)
            await bench.claim("t")  # which tells it when to wake by itself
            client.config_resetstat()
            looks = itertools.count()
            for each in (AsyncListener, Listener):  # it is in its place when the sleep begins, and not when it ends
                monkeypatch.setattr(each, "outdated", property(lambda _: next(looks) > 0 and replaced))
            await bench.engine.wait(["t"], MOMENT)
            assert (woken in client.info("commandstats")) is not replaced

"""Bytes that the network kept back, and that arrive after they were repeated, answered, overtaken or given up: they change
nothing.
"""

import pytest
import redis

from bide.engines.redis import namespace
from bide.engines.redis.script import scripts
from bide.errors import OutcomeUnknown
from tests.redis.crowd import Scene, recorded
from tests.redis.keyspace import COLOURS, bench_at, bring_back, held
from tests.redis.late import Place, delayed, repeated

both_colours = pytest.mark.parametrize("colour", COLOURS)
MINUTE = 60_000

# Why these do no harm when their sender has given them up. All other scripts are refused then.
HARMLESS = {
    "sweep": "it only looks",
    "get": "it only looks",
    "read_results": "the same",
    "followers": "it only looks",
    "scan": "it only looks",
    "lease_ends": "it only looks",
    "leased": "it only looks",
    "stats": "it only looks",
    "time": "it only looks",
    "expect": "it says once for all that somebody listens, and is never unsaid",
    "pin": "it says once for all how many shards there are",
    "spread": "it says what follows what was known, and nothing else",
    "count_pause": "at worst a reshard looks once more",
    "close": "it gives back what belongs to an engine that is closed, and has no successor of its name",
}


@both_colours
@pytest.mark.parametrize("paused", [True, False])
async def test_a_pause_that_arrives_late_does_not_undo_a_newer_resume(place: Place, colour: str, paused: bool) -> None:
    async with delayed(place, colour) as (bench, proxy):
        await bench.put("t")
        await bench.engine.pause("t", not paused)
        await repeated(proxy, lambda: bench.engine.pause("t", paused))
        await bench.engine.pause("t", not paused)
        await proxy.deliver()
        assert (await bench.engine.stats("t", now=bench.now)).paused is not paused


@both_colours
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("between", [True, False])
async def test_a_claim_that_arrives_late_leases_to_nobody(place: Place, colour: str, first: int, between: bool) -> None:
    """Whether it was answered with a message or with none, and whether its connection has asked something since."""
    async with delayed(place, colour) as (bench, proxy):
        for _ in range(first):
            await bench.put("t")

        async def take() -> None:
            for each in await bench.claim("t", limit=5):
                assert await bench.end(each, "done") == "done"

        await repeated(proxy, lambda: bench.claim("t", limit=5))
        if between:
            await take()
        sent = await bench.put("t", b"next", max_attempts=1)
        await proxy.deliver()
        assert (await bench.find(id=sent.id)).state == "ready"


@both_colours
async def test_a_claim_that_arrives_after_its_lease_has_ended_gives_nothing(place: Place, colour: str) -> None:
    async with delayed(place, colour) as (bench, proxy), bench_at(place.url, colour) as other:
        sent = await bench.put("t")
        await repeated(proxy, lambda: bench.claim("t", lease=1_000))
        other.now = bench.now + 1_000
        assert (await other.tend()).returned == 1
        await proxy.deliver()
        assert (await other.find(id=sent.id)).state == "ready"


@both_colours
async def test_an_extension_that_arrives_late_does_not_lengthen_the_lease_again(place: Place, colour: str) -> None:
    async with delayed(place, colour) as (bench, proxy):
        await bench.put("t")
        [claimed] = await bench.claim("t", lease=5_000)
        await repeated(proxy, lambda: bench.extend(claimed, 90_000))
        assert await bench.extend(claimed, 1_000)
        await proxy.deliver()
        assert (await bench.find(id=claimed.id)).lease_until == bench.now + 1_000


@pytest.mark.parametrize("verb", sorted(set(scripts()) - set(HARMLESS)))
async def test_what_its_sender_has_given_up_is_refused(scene: Scene, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for call in await recorded(scene, verb, monkeypatch):
        bring_back(scene.client, scene.base)
        until = int(call.args[6])
        assert scene.now < until < scene.now + MINUTE
        with pytest.raises(redis.ResponseError, match="TOOOLD"):
            scene.client.eval(call.script.text, len(call.keys), *call.keys, until + 1, *call.args[1:])
        assert held(scene.client) == scene.base.held
        scene.client.eval(call.script.text, len(call.keys), *call.keys, until, *call.args[1:])


@both_colours
async def test_what_came_too_late_is_sent_anew_and_acts_once(place: Place, colour: str) -> None:
    async with delayed(place, colour) as (bench, proxy), bench_at(place.url, colour) as other:
        other.now = bench.now + 5 * MINUTE
        for _ in range(3):  # on each shard
            await other.put("u")
        proxy.once = "lose request"
        sent = await bench.put("t")
        assert sent.due == other.now
        assert len(await bench.stored("t")) == 1


@both_colours
async def test_what_may_have_acted_longer_ago_than_the_server_remembers_is_unknown(place: Place, colour: str) -> None:
    async with delayed(place, colour) as (bench, proxy), bench_at(place.url, colour) as other:
        other.now = bench.now + 11 * MINUTE
        for _ in range(3):  # on each shard
            await other.put("u")
        proxy.once = "lose request"
        with pytest.raises(OutcomeUnknown):
            await bench.put("t")


def test_the_time_to_act_is_counted_from_when_the_server_was_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: ours[0])
    clock = namespace.ServerClock()
    clock.hear(1_000_000)
    assert clock.until(None, 15.0) == 1_015_000
    ours[0] += 4.5
    clock.hear(999_000)  # an answer that was overtaken
    assert clock.until(None, 15.0) == 1_019_500
    assert clock.until(3_000_000, 15.0) == 3_015_000
    ours[0] += 3_600
    assert clock.until(None, 15.0) == 1_000_000 + int(namespace.SILENT) * 1_000 + 15_000

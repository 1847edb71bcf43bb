"""An operation acts once, however often and however late it arrives; and who is not sure says so."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
import redis

from bide.engines.base import End, NewMessage, Ref
from bide.engines.redis import failures
from bide.engines.redis.script import scripts
from bide.errors import OutcomeUnknown, Unavailable
from bide.testing.contract.bench import Bench
from bide.types import CancelResult
from tests.redis.crowd import Call, Scene, recorded
from tests.redis.keyspace import COLOURS, bench_at, bring_back, held
from tests.redis.proxy import Proxy, hasty, proxied
from tests.servers.redis import RedisServer

MINUTE = 60_000
ONCE = [
    "put",
    "put_named",
    "put_ruled",
    "settle",
    "extend",
    "cancel",
    "cancel_seen",
    "reschedule",
    "requeue",
    "purge",
    "purge_dead",
    "pause",
]


def send(scene: Scene, call: Call, **changed: Any) -> object:
    """The bytes of a call, with other words in its head."""
    order = ("now", "known", "lane", "number", "salt", "shards", "until")
    args = [changed.get(name, arg) for name, arg in zip(order, call.args, strict=False)] + list(call.args[7:])
    return scene.client.eval(call.script.text, len(call.keys), *call.keys, *args)


@pytest.mark.parametrize("verb", ONCE)
async def test_the_same_bytes_act_once_and_get_the_same_answer(
    scene: Scene, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in await recorded(scene, verb, monkeypatch):
        bring_back(scene.client, scene.base)
        first = send(scene, call, known=scene.now)
        after = held(scene.client)
        assert after != scene.base.held
        for now in (scene.now, scene.now, scene.now + 5 * MINUTE, scene.now + 10 * MINUTE - 1):
            assert send(scene, call, known=scene.now, now=now) == first
            assert held(scene.client) == after


@pytest.mark.parametrize("verb", ONCE)
async def test_an_operation_that_another_of_its_lane_has_overtaken_is_refused(
    scene: Scene, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in await recorded(scene, verb, monkeypatch):
        bring_back(scene.client, scene.base)
        send(scene, call, number=7)
        after = held(scene.client)
        for number in (6, 1, 0):
            with pytest.raises(redis.ResponseError, match="OVERTAKEN"):
                send(scene, call, number=number)
        assert held(scene.client) == after


@pytest.mark.parametrize("verb", ONCE)
async def test_an_operation_that_comes_ten_minutes_late_is_refused(
    scene: Scene, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in await recorded(scene, verb, monkeypatch):
        bring_back(scene.client, scene.base)
        for late in (10, 11, 21, 600):
            with pytest.raises(redis.ResponseError, match="TOOOLD"):
                send(scene, call, known=scene.now, now=scene.now + late * MINUTE)
        assert held(scene.client) == scene.base.held


@pytest.mark.parametrize("late", [21, 600])
@pytest.mark.parametrize("verb", ["put", "cancel"])
async def test_the_first_operation_of_an_engine_does_not_act_again_when_it_comes_late(
    scene: Scene, verb: str, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    [call] = await recorded(scene, verb, monkeypatch)
    bring_back(scene.client, scene.base)
    send(scene, call)
    after = held(scene.client)
    with pytest.raises(redis.ResponseError, match="TOOOLD"):
        send(scene, call, now=scene.now + late * MINUTE)
    assert held(scene.client) == after


@pytest.mark.parametrize("colour", COLOURS)
async def test_an_engine_that_was_silent_for_long_is_told_the_time_and_goes_on(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench, bench_at(redis_url, colour) as other:
        await bench.put("t")
        other.now = bench.now + 3 * 24 * 60 * MINUTE
        await other.put("t")
        bench.now = other.now
        sent = await bench.put("t", b"late")
        assert sent.due == bench.now
        assert len(await bench.stored("t")) == 3


# answers that do not come


@asynccontextmanager
async def behind(
    server: RedisServer, colour: str, options: str = "", *, patient: bool = False
) -> AsyncIterator[tuple[Bench, Proxy]]:
    """A bench that reaches the server through a proxy, and scripts that the server knows."""
    with server.client() as client:
        for script in scripts().values():
            client.script_load(script.text)
    async with proxied(server.port) as proxy, bench_at(proxy.patient_url + options, colour) as bench:
        await bench.claim("none")  # and now it knows the time
        with nullcontext() if patient else hasty(proxy):
            yield bench, proxy


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("what", ["lose answer", "lose request"])
async def test_an_answer_that_is_lost_is_asked_for_again(
    redis_url: str, redis_server: RedisServer, colour: str, what: str
) -> None:
    async with behind(redis_server, colour, patient=True) as (bench, proxy):
        proxy.once = what  # type: ignore[assignment]
        sent = await bench.put("t", b"1")
        assert [each.id for each in await bench.stored("t")] == [sent.id]
        proxy.once = what  # type: ignore[assignment]
        [claimed] = await bench.claim("t", limit=5)
        assert claimed.id == sent.id
        proxy.once = what  # type: ignore[assignment]
        assert await bench.end(claimed, "retry", delay=5, error="broke") == "scheduled"
        proxy.once = what  # type: ignore[assignment]
        assert await bench.cancel(id=sent.id) == CancelResult.CANCELLED
        assert proxy.scripts >= 8


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("what", ["lose answer", "lose request"])
@pytest.mark.parametrize("options", ["", "&shards=3"])
async def test_what_is_sent_again_with_the_errors_operation_acts_once(
    redis_url: str, redis_server: RedisServer, colour: str, what: str, options: str
) -> None:
    async with behind(redis_server, colour, options) as (bench, proxy):
        proxy.what = what  # type: ignore[assignment]
        with pytest.raises(OutcomeUnknown) as unknown:
            await bench.put("t", b"1")
        proxy.what = "pass"
        assert unknown.value.operation is not None
        for _ in range(3):
            await bench.put("t", b"1", operation=unknown.value.operation)
        assert len(await bench.stored("t")) == 1


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("what", ["lose answer", "lose request"])
async def test_one_message_of_a_batch_can_be_sent_again_with_its_own_operation(
    redis_url: str, redis_server: RedisServer, colour: str, what: str
) -> None:
    batch = [
        NewMessage(f"t{i % 3}", b"%d" % i, key=f"k{i}" if i % 4 == 0 else None, level=i % 3, delay=(i % 5) * 40_000)
        for i in range(100)
    ]
    async with behind(redis_server, colour) as (bench, proxy):
        proxy.what = what  # type: ignore[assignment]
        with pytest.raises(OutcomeUnknown) as unknown:
            await bench.put_all(*batch)
        proxy.what = "pass"
        assert len(set(unknown.value.operations)) == 100
        arrived = 100 if what == "lose answer" else 0
        for i in (0, 57, 99, 0):
            new = batch[i]
            sent = await bench.put(
                new.topic, new.body, key=new.key, level=new.level, delay=new.delay, operation=unknown.value.operations[i]
            )
            assert (await bench.find(id=sent.id)).body == new.body
        assert sum([len(await bench.stored(f"t{i}")) for i in range(3)]) == max(arrived, 3)


@pytest.mark.parametrize("colour", COLOURS)
async def test_what_arrives_after_it_was_sent_again_does_not_act(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with behind(redis_server, colour) as (bench, proxy):
        proxy.what, proxy.once = "lose request", "hold request"
        with pytest.raises(OutcomeUnknown) as unknown:
            await bench.put("t", b"1")
        proxy.what = "pass"
        assert unknown.value.operation is not None
        await bench.put("t", b"1", operation=unknown.value.operation)
        await proxy.deliver()
        assert len(await bench.stored("t")) == 1


@pytest.mark.parametrize("colour", COLOURS)
async def test_every_message_of_a_batch_for_several_shards_has_an_operation(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    batch = [NewMessage("t", b"%d" % i, key=f"k{i}") for i in range(30)]
    async with behind(redis_server, colour, "&shards=3") as (bench, proxy):
        proxy.what = "lose answer"
        with pytest.raises(OutcomeUnknown) as unknown:
            await bench.put_all(*batch)
        proxy.what = "pass"
        assert len(unknown.value.operations) == len(batch)


@pytest.mark.parametrize("colour", COLOURS)
async def test_an_end_that_arrives_late_does_not_act_on_the_next_delivery(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with behind(redis_server, colour) as (bench, proxy):
        claimed = await bench.running("t")
        proxy.what, proxy.once = "lose request", "hold request"
        with pytest.raises(OutcomeUnknown):
            await bench.end(claimed, "done")
        proxy.what = "pass"
        assert await bench.end(claimed, "retry") == "scheduled"
        [again] = await bench.claim("t")
        await proxy.deliver()
        assert await bench.end(again, "done") == "done"


# operations that look like ours


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    "operation",
    [
        "~0.0123456789abcdef.99999999999999999999#0",
        "~0.0123456789abcdef.999999999999999#0",
        "~0.0123456789abcdef.1#99999999999999999999",
        "~99999999999999999999.0123456789abcdef.1#0",
        "~0.ab.1#0",
        "~0.0123456789abcdef0.1#0",
        "~\u0663.0123456789abcdef.\u0661#\u0660",
        "~0.0123456789abcdef.1#0",
        "~63.0123456789abcdef.99999999999999#999",
    ],
)
@pytest.mark.parametrize("options", ["", "?shards=3"])
async def test_an_operation_that_looks_like_one_of_ours_is_as_good_as_any(
    redis_url: str, colour: str, operation: str, options: str
) -> None:
    async with bench_at(redis_url + options, colour) as bench:
        first = await bench.put("t", operation=operation)
        assert await bench.put("t", operation=operation) == first
        assert len(await bench.stored("t")) == 1


# who is told what


PASSING = {
    "READONLY": b"-READONLY You can't write against a read only replica.\r\n",
    "LOADING": b"-LOADING Redis is loading the dataset in memory\r\n",
    "TRYAGAIN": b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    "MASTERDOWN": b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    "CLUSTERDOWN": b"-CLUSTERDOWN The cluster is down\r\n",
    "NOREPLICAS": b"-NOREPLICAS Not enough good replicas to write.\r\n",
    "BUSY": b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("code", PASSING)
async def test_what_passes_by_itself_is_waited_for(redis_url: str, redis_server: RedisServer, colour: str, code: str) -> None:
    async with behind(redis_server, colour, patient=True) as (bench, proxy):
        proxy.once = PASSING[code]
        await bench.put("t")
        assert len(await bench.stored("t")) == 1


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("code", PASSING)
async def test_when_the_server_refused_all_the_time_nothing_was_done_and_that_is_told(
    redis_url: str, redis_server: RedisServer, colour: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MIGRATION", 0.5)
    async with behind(redis_server, colour) as (bench, proxy):
        proxy.what = PASSING[code]
        with pytest.raises(Unavailable, match="Nothing was done"):
            await bench.put("t")


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("code", PASSING)
async def test_what_may_have_happened_stays_unknown_when_the_server_refuses_afterwards(
    redis_url: str, redis_server: RedisServer, colour: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MIGRATION", 0.5)
    async with behind(redis_server, colour) as (bench, proxy):
        proxy.once, proxy.what = "lose answer", PASSING[code]
        with pytest.raises(OutcomeUnknown):
            await bench.put("t")
        proxy.what = "pass"
        assert len(await bench.stored("t")) == 1


# tasks that are cancelled


@pytest.mark.parametrize("verb", ["put", "claim", "settle", "get"])
async def test_a_task_that_is_cancelled_on_its_way_leaves_its_answer_to_nobody(
    redis_url: str, redis_server: RedisServer, verb: str
) -> None:
    async with behind(redis_server, "async", patient=True) as (bench, proxy):
        kept = await bench.put("kept", b"kept")
        claimed = await bench.running("held", b"held")
        await bench.put("due", b"due")
        proxy.asked.clear()
        proxy.once = "hold answer"
        asks: dict[str, Callable[[], Awaitable[Any]]] = {
            "put": lambda: bench.put("t", b"1"),
            "claim": lambda: bench.claim("due"),
            "settle": lambda: bench.end(claimed, "done"),
            "get": lambda: bench.get(id=kept.id),
        }
        task = asyncio.ensure_future(asks[verb]())
        await proxy.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        proxy.go_on()
        stored = await bench.find(id=kept.id)
        assert stored.body == b"kept"
        assert await bench.cancel(id=kept.id) == CancelResult.CANCELLED
        sent = await bench.put("after", b"2")
        assert [each.id for each in await bench.claim("after")] == [sent.id]
        results = await bench.engine.settle([End("held", claimed.id, claimed.token, "done")], now=bench.now)
        assert results == (["lost"] if verb == "settle" else ["done"])
        assert (await bench.engine.cancel([Ref(id=kept.id)] * 3, now=bench.now)) == [CancelResult.GONE] * 3


async def test_what_is_remembered_of_a_batch_with_keys_is_twenty_bytes_a_message(scene: Scene) -> None:
    scene.client.flushall()
    async with bench_at(scene.url, now=scene.now) as bench:
        await bench.engine.put([NewMessage(topic="t", body=b"1", key=f"k{n}") for n in range(1_000)], now=scene.now)
    records = [record for name in scene.client.keys("*:lanes:*") for record in scene.client.hvals(name)]
    assert 0 < max(map(len, records)) <= 20_000

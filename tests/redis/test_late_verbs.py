"""Every verb that writes, kept back by the network until it was repeated, answered and overtaken: it changes nothing then."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest
import redis

from bide.engines.aio import AsyncEngine
from bide.engines.base import Condition, Move, NewMessage, Ref, Seen, Verdict
from bide.engines.gates import Entry, Held, Spend
from bide.engines.gates.aio import AsyncGates
from bide.testing.contract.bench import Bench
from bide.types import Sent
from tests.redis.keyspace import COLOURS, held
from tests.redis.late import Place, delayed, recall, repeated

LOOKS = {"get", "scan", "stats"}
NO_WRITES = LOOKS | {"open", "close"} | {"wait"}  # what wait takes is a hint: a sleeper without it wakes with its sweep
DAY = 86_400_000
CLOCK = (b"raw", b"mark")  # time may be noted at any time

Step = Callable[[Bench], Awaitable[Any]]


class Late(NamedTuple):
    """What there is before, the call that is held back, and what comes after its repetition was answered."""

    verb: str
    before: Step
    call: Callable[[Bench, Any], Awaitable[Any]]
    after: Callable[[Bench, Any], Awaitable[Any]] | None = None


async def nothing(_: Bench) -> None:
    """An empty topic."""


async def pending(bench: Bench) -> str:
    await bench.put("t", b"ready")
    return (await bench.put("t", b"later", key="k", delay=5_000)).id


async def seen(bench: Bench) -> list[Sent]:
    return [await bench.put("t", b"a", delay=5_000), await bench.put("t", b"b", key="k", delay=6_000)]


async def as_seen(bench: Bench, sent: Sequence[Sent]) -> Any:
    """Over several shards, one alone."""
    refs, told = [Ref(id=each.id) for each in sent], [Seen(sent[0].due), Seen(sent[1].due, b"b")]
    most = bench.engine.capabilities.together
    return await bench.engine.cancel(refs[-most:], seen=told[-most:], now=bench.now)


async def moved_as_seen(bench: Bench, sent: Sequence[Sent]) -> Any:
    condition = Condition(sent[0].id, sent[0].due) if bench.engine.capabilities.together > 1 else None
    return await bench.engine.reschedule([Move(Ref(id=sent[1].id), 1, seen=sent[1].due)], condition=condition, now=bench.now)


async def running(bench: Bench) -> Any:
    return await bench.running("t", b"held", key="k")


async def dead(bench: Bench) -> str:
    return (await bench.bury("t", b"dead")).id


async def left(bench: Bench) -> None:
    await bench.running("t", b"left", lease=1_000)
    bench.move(1_000)


def put(**options: Any) -> Callable[[Bench, Any], Awaitable[Any]]:
    return lambda at, _: at.put("t", b"new", **options)


def end(verdict: Verdict, **options: Any) -> Callable[[Bench, Any], Awaitable[Any]]:
    return lambda at, claimed: at.end(claimed, verdict, **options)


def purge(state: Any) -> Callable[[Bench, Any], Awaitable[Any]]:
    return lambda at, _: at.engine.purge("t", state, now=at.now)


async def extended_less(bench: Bench, claimed: Any) -> None:
    assert await bench.extend(claimed, 1_000)


async def paused(bench: Bench) -> None:
    await bench.put("t")
    await bench.engine.pause("t", True)


LATE = {
    "put": Late("put", nothing, put()),
    "put for later": Late("put", nothing, put(delay=DAY)),
    "put under a key": Late("put", nothing, put(key="k")),
    "put in place of another": Late("put", pending, put(key="k", if_exists="replace", delay=9)),
    "put under an operation": Late("put", nothing, put(operation="o")),
    "put after a running one": Late("put", running, put(key="k", if_exists="replace")),
    "claim": Late("claim", pending, lambda at, _: at.claim("t", limit=2)),
    "claim of nothing": Late("claim", nothing, lambda at, _: at.claim("t", limit=9)),
    "claim under a request": Late("claim", pending, lambda at, _: at.engine.claim(["t"], 2, 9_000, request="r", now=at.now)),
    "settle done": Late("settle", running, end("done")),
    "settle retry": Late("settle", running, end("retry", delay=5)),
    "settle release": Late("settle", running, end("release")),
    "settle dead": Late("settle", running, end("dead")),
    "extend": Late("extend", running, lambda at, claimed: at.extend(claimed, 90_000), extended_less),
    "cancel": Late("cancel", pending, lambda at, id: at.cancel(id=id)),
    "cancel by key": Late("cancel", pending, lambda at, _: at.cancel(topic="t", key="k")),
    "cancel as seen": Late("cancel", seen, as_seen),
    "reschedule": Late("reschedule", pending, lambda at, id: at.reschedule(id, delay=1)),
    "reschedule as seen": Late("reschedule", seen, moved_as_seen),
    "reschedule for later": Late("reschedule", pending, lambda at, id: at.reschedule(id, delay=DAY)),
    "tend": Late("tend", left, lambda at, _: at.engine.tend(now=at.now)),
    "requeue": Late("requeue", dead, lambda at, _: at.engine.requeue("t", now=at.now)),
    "requeue by id": Late("requeue", dead, lambda at, id: at.engine.requeue("t", [id], now=at.now)),
    "purge of the ready": Late("purge", pending, purge("ready")),
    "purge of the scheduled": Late("purge", pending, purge("scheduled")),
    "purge of the dead": Late("purge", dead, purge("dead")),
    "pause": Late("pause", pending, lambda at, _: at.engine.pause("t", True), lambda at, _: at.engine.pause("t", False)),
    "resume": Late("pause", paused, lambda at, _: at.engine.pause("t", False), lambda at, _: at.engine.pause("t", True)),
}


async def waited_for(bench: Bench) -> Held:
    """Somebody is inside, and two wait."""
    gates = bench.engine.gates
    [first, *_] = await gates.enter([Entry("g", f"h{i}", 9_000, 1, f"w{i}") for i in range(3)], now=bench.now)
    return Held("g", "h0", first.token)


async def abandoned(bench: Bench) -> None:
    await waited_for(bench)
    bench.move(9_000)


async def come_and_gone(bench: Bench, _: Any) -> None:
    """Whoever has come in is out again."""
    gates = bench.engine.gates
    for holder, waiter in (("new", None), ("h1", "w1"), ("h2", "w2")):
        [entered] = await gates.enter([Entry("g", holder, 9_000, 1, waiter)], now=bench.now)
        assert entered.token is not None
        await gates.leave([Held("g", holder, entered.token)], now=bench.now)


async def back_again(bench: Bench, _: Any) -> None:
    """Under the same name, and last in the line."""
    await bench.engine.gates.enter([Entry("g", "h1", 9_000, 1, "w1"), Entry("g", "h0", 9_000, 1, "w0")], now=bench.now)


async def spent(bench: Bench) -> None:
    await bench.engine.gates.spend([Spend("r", 9, 60_000, 2)], now=bench.now)


LATE |= {
    "enter": Late("enter", nothing, lambda at, _: at.engine.gates.enter([Entry("g", "new", 9_000)], now=at.now), come_and_gone),
    "enter the line": Late(
        "enter", waited_for, lambda at, _: at.engine.gates.enter([Entry("g", "new", 9_000, 1, "new")], now=at.now)
    ),
    "keep": Late(
        "keep",
        waited_for,
        lambda at, inside: at.engine.gates.keep([inside], 20_000, now=at.now),
        lambda at, inside: at.engine.gates.keep([inside], 10_000, now=at.now),
    ),
    "leave": Late("leave", waited_for, lambda at, inside: at.engine.gates.leave([inside], now=at.now), back_again),
    "leave the line": Late(
        "leave", waited_for, lambda at, _: at.engine.gates.leave([Held("g", "w1", None)], now=at.now), back_again
    ),
    "tend of gates": Late("tend", abandoned, lambda at, _: recall(at)),
    "spend": Late("spend", spent, lambda at, _: at.engine.gates.spend([Spend("r", 9, 60_000, 3)], now=at.now)),
    "spend ahead": Late("spend", spent, lambda at, _: at.engine.gates.spend([Spend("r", 2, 60_000, holder="h")], now=at.now)),
}


async def overtaken(bench: Bench) -> None:
    """All that was there ends, and messages in every state take its place: what came late would meet them."""
    await bench.engine.pause("t", False)
    bench.move(DAY)
    await bench.tend()
    while got := await bench.claim("t", limit=10):
        for each in got:
            assert await bench.end(each, "done") == "done"
    await bench.engine.requeue("t", now=bench.now)
    await bench.claim("t", limit=10)
    await bench.bury("t", b"dead since")
    await bench.running("t", b"held since", lease=9 * DAY)
    await bench.put_all(NewMessage("t", b"later since", key="k", delay=7_000), NewMessage("t", b"ready since", max_attempts=1))


def stored(client: redis.Redis) -> dict[bytes, Any]:
    found: dict[bytes, Any] = dict(held(client))
    for name, (kind, value) in held(client).items():
        if name.endswith(b":meta"):
            found[name] = kind, {field: text for field, text in value.items() if field not in CLOCK}
    return found


async def arrives_late(place: Place, colour: str, late: Late, *, far: bool) -> tuple[dict[bytes, Any], dict[bytes, Any]]:
    """What is stored before and after the first bytes arrive at last."""
    async with delayed(place, colour) as (bench, proxy):
        there = await late.before(bench)
        await repeated(proxy, lambda: late.call(bench, there))
        if late.after:
            await late.after(bench, there)
        elif far:
            await overtaken(bench)
        with place.server.client() as client:
            before = stored(client)
            await proxy.deliver()
            return before, stored(client)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("far", [False, True], ids=["answered", "overtaken"])
@pytest.mark.parametrize("name", LATE)
async def test_what_arrives_after_its_repetition_was_answered_changes_nothing(
    place: Place, colour: str, name: str, far: bool
) -> None:
    before, after = await arrives_late(place, colour, LATE[name], far=far)
    assert after == before


def test_no_verb_that_writes_is_left_out() -> None:
    verbs = AsyncEngine.__abstractmethods__ | AsyncGates.__abstractmethods__
    assert {each.verb for each in LATE.values()} == verbs - NO_WRITES


async def test_a_verb_without_an_operation_is_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same check on an engine that names none of its operations, so that each acts as often as it arrives."""
    from bide.engines.redis.aio.calls import AsyncCalls

    do = AsyncCalls.do

    async def nameless(self: AsyncCalls, verb: str, args: Any, now: Any, *, once: bool = True, **how: Any) -> Any:
        return await do(self, verb, args, now, once=False, **how)

    monkeypatch.setattr(AsyncCalls, "do", nameless)
    before, after = await arrives_late(place, "async", LATE["put"], far=False)
    assert after != before

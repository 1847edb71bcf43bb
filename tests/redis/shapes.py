"""Awkward shapes of a queue, in any size, and what each verb meets there.

A shape goes on step by step, and tells after each step what it was: who goes along sees what that step cost the server.
"""

import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import NamedTuple

from bide.engines.base import MAX_BATCH, Claimed, Hold, Move, NewMessage, Ref, Verdict, Window
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept
from bide.testing.contract.bench import Bench, ending
from bide.types import State

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
MONTH = 30 * DAY
HELD = 50 * DAY  # a lease that does not end by itself

Steps = AsyncIterator[str]


class Shape(NamedTuple):
    steps: Callable[[Bench, int], Steps]
    full: int  # how many messages it has
    some: int  # enough for every border that a script has


async def put(bench: Bench, batch: Iterable[NewMessage]) -> list[str]:
    """In calls of a thousand."""
    new = list(batch)
    ids: list[str] = []
    for i in range(0, len(new), MAX_BATCH):
        ids += [each.id for each in await bench.put_all(*new[i : i + MAX_BATCH])]
    return ids


async def take(
    bench: Bench, topics: Sequence[str], many: int = 2**60, *, limit: int = MAX_BATCH, lease: int = HELD
) -> list[Claimed]:
    found: list[Claimed] = []
    while len(found) < many:
        claim = await bench.engine.claim(topics, min(limit, many - len(found)), lease, now=bench.now)
        found += claim.messages
        if not claim.messages and not claim.more:
            break
    return found


async def end(bench: Bench, claimed: Sequence[Claimed], verdict: Verdict = "done", *, delay: int = 0) -> None:
    for i in range(0, len(claimed), MAX_BATCH):
        ends = [ending(each, verdict, delay=delay) for each in claimed[i : i + MAX_BATCH]]
        assert "lost" not in await bench.engine.settle(ends, now=bench.now)


async def purge(bench: Bench, topic: str, state: State) -> None:
    while (await bench.engine.purge(topic, state, now=bench.now)).more:
        pass


async def tend(bench: Bench) -> None:
    while (await bench.engine.tend(now=bench.now)).more:
        pass


async def looked(bench: Bench, topic: str, *states: State) -> Steps:
    """All that an operator asks of a large topic."""
    await bench.engine.stats(topic, now=bench.now)
    yield "stats of a topic"
    await bench.engine.stats(now=bench.now)
    yield "stats of all"
    await bench.engine.stats(topic, window=Window(bench.now - DAY, bench.now + MONTH, 62), now=bench.now)
    yield "timeline"
    for state in (None, *states):
        first = await bench.engine.scan(topic, state, 10, now=bench.now)
        yield f"10 {state or 'messages'}"
        after = first.after
        for _ in range(5):
            if after is not None:
                after = (await bench.engine.scan(topic, state, MAX_BATCH, after, now=bench.now)).after
        yield f"5,000 {state or 'messages'} after them"


async def month(bench: Bench, many: int) -> Steps:
    chance = random.Random(1)
    dues = [MINUTE + chance.randrange(MONTH) for _ in range(many)]
    ids = await put(bench, (NewMessage("t", b"x", delay=due) for due in dues))
    yield "put"
    async for step in looked(bench, "t", "scheduled"):
        yield step
    some = chance.sample(ids, 2_000)
    await bench.engine.get([Ref(id) for id in some[:1_000]], now=bench.now)
    yield "get 1,000"
    await bench.engine.cancel([Ref(id) for id in some[:1_000]], now=bench.now)
    yield "cancel 1,000"
    await bench.engine.reschedule([Move(Ref(id), chance.randrange(MONTH)) for id in some[1_000:]], now=bench.now)
    yield "reschedule 1,000"
    bench.move(MONTH // 2)
    await bench.engine.stats("t", now=bench.now)
    yield "stats when half is due"
    claimed = await take(bench, ["t"], 5_000)
    yield "claim 5,000"
    await end(bench, claimed)
    yield "settle 5,000"
    async for step in looked(bench, "t", "ready"):
        yield f"{step}, half due"
    await purge(bench, "t", "ready")
    yield "purge of the ready"
    await purge(bench, "t", "scheduled")
    yield "purge of the scheduled"


async def instant(bench: Bench, many: int) -> Steps:
    ids = await put(bench, [NewMessage("t", b"x", delay=HOUR)] * many)
    yield "put"
    async for step in looked(bench, "t", "scheduled"):
        yield step
    await bench.engine.cancel([Ref(id) for id in ids[::-3][:1_000]], now=bench.now)
    yield "cancel 1,000"
    bench.move(HOUR - 1)
    for _ in range(20):
        assert not await bench.claim("t", limit=1_000)
    yield "claims a moment before"
    bench.move(1)
    async for step in looked(bench, "t", "ready"):
        yield f"{step}, due"
    claimed = await take(bench, ["t"], many // 2)
    yield "claim half"
    await end(bench, claimed)
    yield "settle half"
    await bench.engine.stats("t", now=bench.now)
    yield "stats when half has ended"
    await purge(bench, "t", "ready")
    yield "purge of the ready"


async def moved(bench: Bench, many: int) -> Steps:
    """Each of them by a call of its own."""
    chance = random.Random(2)
    ids = await put(bench, (NewMessage("t", b"x", delay=HOUR + chance.randrange(HOUR)) for _ in range(many)))
    yield "put"
    for id in ids:
        await bench.reschedule(id, delay=HOUR + chance.randrange(10 * MINUTE))
    yield "reschedule each"
    async for step in looked(bench, "t", "scheduled"):
        yield step
    bench.move(HOUR + 5 * MINUTE)
    claimed = await take(bench, ["t"], many // 4)
    yield "claim a quarter"
    await end(bench, claimed)
    yield "settle a quarter"
    await purge(bench, "t", "ready")
    yield "purge of the ready"
    await purge(bench, "t", "scheduled")
    yield "purge of the scheduled"


async def leased(bench: Bench, many: int) -> Steps:
    """One in each claim."""
    await put(bench, [NewMessage("t", b"x")] * many)
    yield "put"
    claimed = await take(bench, ["t"], limit=1)
    assert len(claimed) == many
    yield "claim each"
    await bench.find(id=claimed[-1].id)
    yield "get one"
    await bench.engine.get([Ref(each.id) for each in claimed[::-2][:1_000]], now=bench.now)
    yield "get 1,000"
    async for step in looked(bench, "t", "leased"):
        yield step
    holds = [Hold(each.topic, each.id, each.token) for each in claimed[::-2][:1_000]]
    assert all(await bench.engine.extend(holds, HELD, now=bench.now))
    yield "extend 1,000"
    await end(bench, claimed[:1_000])
    yield "settle 1,000"
    bench.move(HELD)
    await tend(bench)
    yield "tend when all leases have ended"


async def dead(bench: Bench, many: int) -> Steps:
    """They have keys, and are far more than another client keeps."""
    few = await bench.another(dead_max=100)
    for i in range(0, many, MAX_BATCH):
        await bench.put_all(*[NewMessage("t", b"x", key=f"k{i + n}") for n in range(MAX_BATCH)])
        await end(bench, await take(bench, ["t"]), "dead")
    yield "put, claim and bury"
    async for step in looked(bench, "t", "dead"):
        yield step
    await bench.engine.requeue("t", now=bench.now)
    yield "requeue 1,000"
    claimed = await take(bench, ["t"])
    yield "claim 1,000"
    await end(few, claimed, "dead")
    yield "bury 1,000 over a lowered limit"
    await few.engine.tend(now=few.now)
    yield "tend over a lowered limit, once"
    await purge(bench, "t", "dead")
    yield "purge of the dead"


async def large(bench: Bench, many: int) -> Steps:
    body = bytes(2**18)
    ids = await put(bench, [NewMessage("t", body)] * many)
    yield "put"
    await bench.engine.get([Ref(id) for id in ids[:100]], now=bench.now)
    yield "get 100"
    await bench.engine.scan("t", None, 100, now=bench.now)
    yield "100 messages"
    await bench.engine.reschedule([Move(Ref(id), SECOND) for id in ids], now=bench.now)
    yield "reschedule all"
    bench.move(SECOND)
    claimed = await take(bench, ["t"], many // 2)
    yield "claim half"
    await end(bench, claimed)
    yield "settle half"
    await purge(bench, "t", "ready")
    yield "purge of the ready"


async def kept(bench: Bench, many: int) -> Steps:
    """Results of 256 KiB, and as many messages that wait for all of them."""
    results, until = bench.engine.results, bench.now + DAY
    ids = await put(bench, (NewMessage("t", b"", delay=DAY) for _ in range(many)))
    waiting = await put(bench, (NewMessage("w", b"", delay=DAY) for _ in range(many)))
    yield "put"
    await results.expect([Expected(id, until) for id in ids], now=bench.now)
    yield "expect"
    for each in waiting:
        await results.expect([Dependent(each, tuple(ids), until)], now=bench.now)
        await results.follow([Follow(each, id, until) for id in ids], now=bench.now)
    yield "depend and follow"
    told = await results.fulfil([Kept(id, DAY, bytes(2**18)) for id in ids], now=bench.now)
    assert [len(each) for each in told] == [many] * many
    yield "fulfil"
    found = await results.read(ids, now=bench.now)
    assert [len(each.value or b"") for each in found if each is not None] == [2**18] * many
    yield "read"
    for id in ids:
        ready = await results.arrive([Arrival(each, id) for each in waiting], now=bench.now)
        assert ready == [id == ids[-1]] * many
    yield "arrive"
    await results.arrive([Arrival(each, None) for each in waiting], now=bench.now)
    yield "called"


async def topics(bench: Bench, many: int) -> Steps:
    names = [f"t{i}" for i in range(many)]
    for level in (0, 1, 2):
        for delay in (0, HOUR, 100 * HOUR):
            await bench.put_all(*[NewMessage(name, b"x", delay=delay, level=level) for name in names])
    yield "put nine in each"
    for at, what in ((bench.now, "first"), (bench.now + HOUR, "second"), (bench.now + 100 * HOUR, "last")):
        bench.now = at
        claimed = await take(bench, names, limit=100)
        assert len(claimed) == 3 * many
        yield f"claim the {what} three, 100 at a time"
        await end(bench, claimed)
        yield f"settle the {what} three"
        await bench.engine.stats(now=bench.now)
        yield f"stats of all without the {what} three"
        await bench.claim(*names)
        await bench.engine.wait(names, 0.05)
        await bench.claim(*names)
        yield f"idle claims after the {what} three"
    await put(bench, (NewMessage(name, b"x", delay=HOUR, key=f"{i}", expires_in=MINUTE) for name in names for i in range(3)))
    yield "put with keys that expire"
    bench.move(2 * HOUR)
    await tend(bench)
    yield "tend when all have expired"


async def keyed(bench: Bench, many: int) -> Steps:
    for how in ("keep", "keep", "replace", "later"):
        batch = [
            NewMessage("t", b"x" * 100, key=f"order:{i}", if_exists=how, delay=HOUR + i, expires_in=DAY, operation=f"{how}{i}")
            for i in range(many)
        ]
        await put(bench, batch)
        yield f"put, {how}"
    async for step in looked(bench, "t", "scheduled"):
        yield step
    refs = [Ref(topic="t", key=f"order:{i}") for i in range(many)]
    for i in range(0, many, MAX_BATCH):
        await bench.engine.get(refs[i : i + MAX_BATCH], now=bench.now)
    yield "get"
    await bench.engine.reschedule([Move(ref, MINUTE) for ref in refs[:MAX_BATCH]], now=bench.now)
    yield "reschedule 1,000"
    await bench.engine.cancel(refs[:300], now=bench.now)
    yield "cancel 300"
    bench.move(HOUR + many)
    claimed = await take(bench, ["t"], lease=SECOND)
    assert len(claimed) == many - 300
    yield "claim"
    bench.move(SECOND)
    await tend(bench)
    yield "tend when all leases have ended"
    bench.move(2 * DAY)
    await tend(bench)
    yield "tend when all have expired"


async def retried(bench: Bench, many: int) -> Steps:
    chance = random.Random(3)
    await put(bench, (NewMessage("t", b"x", key=f"k{i}" if i % 2 else None, level=i % 3, max_attempts=9) for i in range(many)))
    yield "put"
    for delay in (0, SECOND, HOUR):
        claimed = await take(bench, ["t"])
        yield f"claim, then {delay // SECOND:,} s"
        await end(bench, claimed, "release", delay=delay)
        yield f"release for {delay // SECOND:,} s"
        bench.move(delay)
        for _ in range(0, many, MAX_BATCH):
            some = await take(bench, ["t"], MAX_BATCH)
            ends = [ending(each, "retry", delay=delay and chance.randrange(DAY), error="it broke" * 20) for each in some]
            await bench.engine.settle(ends, now=bench.now)
        yield f"claim and retry for {'a time of a day' if delay else '0 s'}"
        bench.move(DAY)
    async for step in looked(bench, "t", "ready"):
        yield step
    claimed = await take(bench, ["t"])
    await end(bench, claimed, "dead")
    yield "claim and bury"
    await bench.engine.requeue("t", [each.id for each in claimed[:MAX_BATCH]], delay=HOUR, now=bench.now)
    yield "requeue 1,000"


async def shards(bench: Bench, many: int) -> Steps:
    """Over 64 of them."""
    ids = await put(bench, (NewMessage("t", b"x", delay=i % 7 * DAY, key=f"{i}" if i % 2 else None) for i in range(many)))
    yield "put"
    async for step in looked(bench, "t", "ready"):
        yield step
    await bench.engine.get([Ref(id) for id in ids[:1_000]], now=bench.now)
    yield "get 1,000"
    await bench.engine.cancel([Ref(id) for id in ids[:1_000]], now=bench.now)
    yield "cancel 1,000"
    await bench.engine.reschedule([Move(Ref(id), SECOND) for id in ids[1_000:2_000]], now=bench.now)
    yield "reschedule 1,000"
    claimed = await take(bench, ["t"], 1_000)
    yield "claim 1,000"
    await end(bench, claimed)
    yield "settle 1,000"
    await purge(bench, "t", "ready")
    yield "purge of the ready"
    await tend(bench)
    yield "tend"


SHAPES = {
    "30 days": Shape(month, 600_000, 20_000),
    "one millisecond": Shape(instant, 1_000_000, 100_000),
    "moved one by one": Shape(moved, 300_000, 5_000),
    "leased one by one": Shape(leased, 20_000, 3_000),
    "dead letters": Shape(dead, 60_000, 5_000),
    "256 KiB each": Shape(large, 1_000, 40),
    "results of 256 KiB": Shape(kept, 400, 60),
    "topics": Shape(topics, 1_000, 1_000),
    "keys": Shape(keyed, 1_000, 1_000),
    "retries": Shape(retried, 1_000, 1_000),
    "64 shards": Shape(shards, 20_000, 4_000),
}

"""What holds for every verb, and how an engine is opened and closed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bide.engines.base import MAX_BATCH, Hold, Move, NewMessage, Ref
from bide.errors import BadOption, Unavailable, Unsupported
from bide.testing.contract.bench import LEASE, WAKE_TIMEOUT, Bench, bodies, ending, needs
from bide.types import CancelResult, State


class Life:
    async def test_no_verb_on_one_topic_changes_another(self, bench: Bench) -> None:
        # Given the same messages in two topics
        key = {"key": "k"} if bench.can.keys else {}
        for topic in ("mail", "news"):
            held = await bench.running(topic, b"held")
            await bench.bury(topic, b"dead")
            await bench.put(topic, b"ready")
            await bench.put(topic, b"later", delay=5_000, **key)
        shown: State | None = None if bench.can.inspect else "dead"
        before = await bench.stored("mail", shown) if bench.can.dead else []
        # When every verb is called for one of them
        await bench.put("news", b"new")
        await bench.claim("news")
        await bench.end(held, "retry", delay=1_000, error="oops")
        if bench.can.keys:
            await bench.put("news", b"other", key="k", if_exists="replace")
        if bench.can.keys and bench.can.cancel:
            await bench.cancel(topic="news", key="k")
        if bench.can.dead:
            await bench.engine.requeue("news", now=bench.now)
            await bench.engine.purge("news", "ready" if bench.can.inspect else "dead", now=bench.now)
        if bench.can.pause:
            await bench.engine.pause("news", True)
        # Then the other is unchanged
        if bench.can.dead:
            assert await bench.stored("mail", shown) == before
        assert bodies(await bench.claim("mail", limit=5)) == [b"ready"]
        bench.move(5_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"later"]

    async def test_namespaces_do_not_see_each_other(self, bench: Bench) -> None:
        # Given a message in one namespace
        other = await bench.another(namespace="other")
        named = ({"key": "k"} if bench.can.keys else {}) | ({"operation": "o"} if bench.can.idempotent else {})
        sent = await bench.put("mail", b"ours", **named)
        # Then the other does not show it
        assert await other.claim("mail", limit=5) == []
        if bench.can.inspect:
            assert await other.stored("mail") == []
            assert dict((await other.engine.stats(now=other.now)).topics) == {}
        if bench.can.lookup:
            assert await other.get(id=sent.id) is None
        if bench.can.cancel:
            assert await other.cancel(id=sent.id) is CancelResult.GONE
        # And a message that is sent there is another one
        assert (await other.put("mail", b"theirs", **named)).created
        if bench.can.pause:
            await other.engine.pause("mail", True)
        assert bodies(await bench.claim("mail", limit=5)) == [b"ours"]

    async def test_engine_time_never_goes_back(self, bench: Bench) -> None:
        # Given an engine that was called with a later time
        await bench.put("mail", b"first", delay=15_000)
        bench.move(20_000)
        late = bench.now
        await bench.put("news")
        # When it is called with an earlier time
        bench.move(-20_000)
        sent = await bench.put("mail", b"second")
        claim = await bench.look("mail", limit=5)
        # Then its time does not go back
        assert sent.due == late
        assert claim.now == late
        assert sorted(bodies(claim.messages)) == [b"first", b"second"]
        # And a lease lasts from the later time
        bench.move(20_000 + LEASE - 1_000)
        assert (await bench.tend()).returned == 0

    async def test_a_batch_over_the_limit_is_refused(self, bench: Bench) -> None:
        held = await bench.running("mail")
        one_too_many = MAX_BATCH + 1
        refused: list[Callable[[], Awaitable[object]]] = [
            lambda: bench.engine.put([NewMessage("mail", b"x")] * one_too_many, now=bench.now),
            lambda: bench.engine.settle([ending(held, "done")] * one_too_many, now=bench.now),
        ]
        if bench.can.extend:
            hold = Hold(held.topic, held.id, held.token)
            refused.append(lambda: bench.engine.extend([hold] * one_too_many, LEASE, now=bench.now))
        if bench.can.cancel:
            refused.append(lambda: bench.engine.cancel([Ref(id=held.id)] * one_too_many, now=bench.now))
            refused.append(lambda: bench.engine.reschedule([Move(Ref(id=held.id))] * one_too_many, now=bench.now))
        if bench.can.lookup:
            refused.append(lambda: bench.engine.get([Ref(id=held.id)] * one_too_many, now=bench.now))
        for verb in refused:
            with pytest.raises(BadOption):
                await verb()
        # Then nothing was done, and a batch of exactly the limit is accepted
        assert await bench.claim("mail", limit=5) == []
        assert await bench.end(held, "done") == "done"
        assert len(await bench.put_all(*[NewMessage("mail", b"x")] * MAX_BATCH)) == MAX_BATCH
        assert len(await bench.claim("mail", limit=MAX_BATCH)) == MAX_BATCH

    async def test_opening_again_changes_nothing(self, bench: Bench) -> None:
        held = await bench.running("mail", b"held")
        await bench.put("mail", b"ready")
        await bench.put("mail", b"later", delay=5_000)
        await bench.engine.open()
        assert bodies(await bench.claim("mail", limit=5)) == [b"ready"]
        bench.move(5_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"later"]
        assert await bench.end(held, "done") == "done"

    async def test_closing_again_changes_nothing(self, bench: Bench) -> None:
        other = await bench.another()
        await bench.put("mail", b"left behind")
        await bench.engine.close()
        await bench.engine.close()
        with pytest.raises(Unavailable):
            await bench.put("mail")
        # Then other engines go on
        assert bodies(await other.claim("mail", limit=5)) == [b"left behind"]

    async def test_a_closed_engine_refuses_every_verb(self, bench: Bench) -> None:
        other = await bench.another()
        held = await bench.running("news")
        sent = await bench.put("mail", b"waits")
        engine, ref = bench.engine, Ref(id=sent.id)
        await engine.close()
        verbs: list[Callable[[], Awaitable[object]]] = [
            engine.open,
            lambda: engine.put([NewMessage("mail", b"x")], now=bench.now),
            lambda: engine.claim(["mail"], 1, LEASE, now=bench.now),
            lambda: engine.settle([ending(held, "done")], now=bench.now),
            lambda: engine.tend(now=bench.now),
            lambda: engine.wait(["mail"], WAKE_TIMEOUT),
        ]
        perhaps: list[tuple[bool, Callable[[], Awaitable[object]]]] = [
            (bench.can.extend, lambda: engine.extend([Hold("news", held.id, held.token)], LEASE, now=bench.now)),
            (bench.can.cancel, lambda: engine.cancel([ref], now=bench.now)),
            (bench.can.cancel, lambda: engine.reschedule([Move(ref)], now=bench.now)),
            (bench.can.lookup, lambda: engine.get([ref], now=bench.now)),
            (bench.can.inspect, lambda: engine.scan("mail", None, 1, now=bench.now)),
            (bench.can.inspect, lambda: engine.stats(now=bench.now)),
            (bench.can.inspect, lambda: engine.purge("mail", "ready", now=bench.now)),
            (bench.can.dead, lambda: engine.scan("mail", "dead", 1, now=bench.now)),
            (bench.can.dead, lambda: engine.requeue("mail", now=bench.now)),
            (bench.can.dead, lambda: engine.purge("mail", "dead", now=bench.now)),
            (bench.can.pause, lambda: engine.pause("mail", True)),
        ]
        for verb in verbs + [verb for able, verb in perhaps if able]:
            with pytest.raises(Unavailable):
                await verb()
        for verb in [verb for able, verb in perhaps if not able]:
            with pytest.raises((Unavailable, Unsupported)):
                await verb()
        # Then none of them did anything
        assert bodies(await other.claim("mail", limit=5)) == [b"waits"]

    @needs("wake")
    async def test_close_wakes_a_sleeper(self, bench: Bench) -> None:
        sleeper = await bench.sleeper("mail")
        await bench.engine.close()
        assert await bench.woken(sleeper) == [sleeper]
        [ended] = await asyncio.gather(sleeper, return_exceptions=True)
        assert ended is None or isinstance(ended, Unavailable)

"""What an engine that lacks something does, and how receivers wait."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bide.engines.base import Hold, Move, NewMessage, Past, Ref, Window
from bide.engines.gates import Entry, Held, Spend
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept
from bide.errors import Unsupported
from bide.testing.contract.bench import LEASE, MOMENT, PROMPT, ROUNDS, STATES, WAKE_TIMEOUT, Bench, bodies, ending, lacks, needs


async def refuses_to_put(bench: Bench, **options: Any) -> None:
    with pytest.raises(Unsupported):
        await bench.put_all(NewMessage("mail", b"plain"), NewMessage("mail", b"refused", **options))
    assert await bench.claim("mail", limit=5) == []


class Lacking:
    @lacks("cancel")
    async def test_without_cancel_nothing_is_cancelled_or_moved(self, bench: Bench) -> None:
        sent = await bench.put("mail", delay=1_000)
        with pytest.raises(Unsupported):
            await bench.cancel(id=sent.id)
        with pytest.raises(Unsupported):
            await bench.reschedule(sent.id, delay=9_000)
        bench.move(1_000)
        assert [each.id for each in await bench.claim("mail", limit=5)] == [sent.id]

    @lacks("lookup")
    async def test_without_lookup_nothing_is_looked_up(self, bench: Bench) -> None:
        sent = await bench.put("mail")
        with pytest.raises(Unsupported):
            await bench.engine.get([Ref(id=sent.id)], now=bench.now)
        assert [each.id for each in await bench.claim("mail", limit=5)] == [sent.id]

    @lacks("keys")
    async def test_without_keys_a_key_is_refused(self, bench: Bench) -> None:
        for how in ("keep", "replace", "later", "merge", "error"):
            await refuses_to_put(bench, key="k", if_exists=how)
        if bench.can.cancel:
            with pytest.raises(Unsupported):
                await bench.cancel(topic="mail", key="k")
        if bench.can.lookup:
            with pytest.raises(Unsupported):
                await bench.get(topic="mail", key="k")

    @lacks("idempotent")
    async def test_without_idempotent_an_operation_is_refused(self, bench: Bench) -> None:
        await refuses_to_put(bench, operation="a")

    @lacks("priority")
    async def test_without_priority_a_level_is_refused(self, bench: Bench) -> None:
        await refuses_to_put(bench, level=0)
        await refuses_to_put(bench, level=2)

    @lacks("past")
    async def test_without_past_what_a_message_had_elsewhere_is_refused(self, bench: Bench) -> None:
        await refuses_to_put(bench, past=Past(attempt=1))
        await refuses_to_put(bench, past=Past(dead=True))

    @lacks("extend")
    async def test_without_extend_a_lease_ends_as_it_would(self, bench: Bench) -> None:
        held = await bench.running("mail")
        with pytest.raises(Unsupported):
            await bench.engine.extend([Hold(held.topic, held.id, held.token)], 60_000, now=bench.now)
        bench.move(LEASE + 1_000)
        await bench.tend()
        assert [each.id for each in await bench.claim("mail", limit=5)] == [held.id]

    @lacks("inspect")
    async def test_without_inspect_a_topic_is_not_looked_into(self, bench: Bench) -> None:
        await bench.put("mail", b"later", delay=1_000)
        dead = await bench.bury("mail", b"dead")
        verbs: list[Callable[[], Awaitable[object]]] = [
            lambda: bench.engine.scan("mail", None, 5, now=bench.now),
            lambda: bench.engine.stats("mail", now=bench.now),
            lambda: bench.engine.stats(now=bench.now),
            lambda: bench.engine.stats("mail", window=Window(bench.now, bench.now + 9_000, 3), now=bench.now),
            *(lambda state=each: bench.engine.scan("mail", state, 5, now=bench.now) for each in STATES[:3]),
            *(lambda state=each: bench.engine.purge("mail", state, now=bench.now) for each in STATES[:3]),
        ]
        for verb in verbs:
            with pytest.raises(Unsupported):
                await verb()
        bench.move(1_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"later"]
        # Then what has died can be seen if the engine says so
        if bench.can.dead:
            assert [each.id for each in await bench.stored("mail", "dead")] == [dead.id]

    @lacks("dead")
    async def test_without_dead_no_dead_letter_is_told_or_brought_back(self, bench: Bench) -> None:
        dead = await bench.bury("mail", b"dead")
        verbs: list[Callable[[], Awaitable[object]]] = [
            lambda: bench.engine.scan("mail", "dead", 5, now=bench.now),
            lambda: bench.engine.requeue("mail", now=bench.now),
            lambda: bench.engine.requeue("mail", [dead.id], now=bench.now),
            lambda: bench.engine.purge("mail", "dead", now=bench.now),
            lambda: bench.engine.purge("mail", "dead", [dead.id], now=bench.now),
        ]
        for verb in verbs:
            with pytest.raises(Unsupported):
                await verb()
        assert not bench.can.inspect
        assert await bench.claim("mail", limit=5) == []

    @lacks("pause")
    async def test_without_pause_a_topic_goes_on(self, bench: Bench) -> None:
        sent = await bench.put("mail")
        with pytest.raises(Unsupported):
            await bench.engine.pause("mail", True)
        assert [each.id for each in await bench.claim("mail", limit=5)] == [sent.id]

    @lacks("gates")
    async def test_without_gates_none_is_kept(self, bench: Bench) -> None:
        gates = bench.engine.gates
        verbs: list[Callable[[], Awaitable[object]]] = [
            lambda: gates.enter([Entry("g", "a", LEASE)], now=bench.now),
            lambda: gates.keep([Held("g", "a", "1")], LEASE, now=bench.now),
            lambda: gates.leave([Held("g", "a", "1")], now=bench.now),
            lambda: gates.spend([Spend("g", 1, 1_000)], now=bench.now),
        ]
        for verb in verbs:
            with pytest.raises(Unsupported):
                await verb()

    @lacks("results")
    async def test_without_results_none_is_kept(self, bench: Bench) -> None:
        results = bench.engine.results
        verbs: list[Callable[[], Awaitable[object]]] = [
            lambda: results.expect([Expected("a", bench.now + 1)], now=bench.now),
            lambda: results.fulfil([Kept("a", 1, b"")], now=bench.now),
            lambda: results.read(["a"], now=bench.now),
            lambda: results.expect([Dependent("a", ("b",), bench.now + 1)], now=bench.now),
            lambda: results.follow([Follow("a", "b", bench.now + 1)], now=bench.now),
            lambda: results.arrive([Arrival("a", "b")], now=bench.now),
        ]
        for verb in verbs:
            with pytest.raises(Unsupported):
                await verb()

    @lacks("transactional")
    async def test_without_transactional_no_transaction_is_joined(self, bench: Bench) -> None:
        held = await bench.running("mail")
        with pytest.raises(Unsupported):
            await bench.engine.put([NewMessage("mail", b"x")], connection=object(), now=bench.now)
        with pytest.raises(Unsupported):
            await bench.engine.settle([ending(held, "done")], connection=object(), now=bench.now)
        later = await bench.put("mail", delay=1_000)
        with pytest.raises(Unsupported):
            await bench.engine.cancel([Ref(id=later.id)], connection=object(), now=bench.now)
        with pytest.raises(Unsupported):
            await bench.engine.reschedule([Move(Ref(id=later.id), at=0)], connection=object(), now=bench.now)
        if bench.can.results:
            with pytest.raises(Unsupported):
                await bench.engine.results.expect([Expected(later.id, bench.now + 1)], connection=object(), now=bench.now)
        assert await bench.claim("mail", limit=5) == []
        assert await bench.end(held, "done") == "done"


class Waiting:
    async def test_wait_ends_at_its_timeout(self, bench: Bench) -> None:
        sleeper = await bench.sleeper("mail")
        await asyncio.wait_for(bench.engine.wait(["mail"], MOMENT), WAKE_TIMEOUT)
        await asyncio.wait_for(bench.engine.wait(["mail", "news"], 0), WAKE_TIMEOUT)
        # Then a wait with a longer timeout goes on
        assert not sleeper.done()

    @needs("wake")
    async def test_a_message_that_is_due_wakes_a_sleeper(self, bench: Bench) -> None:
        other = await bench.another()
        sleeper = await bench.sleeper("news", "mail")
        await bench.put("mail")
        assert await bench.woken(sleeper) == [sleeper]
        # And also when it is not the first, and comes from another engine
        sleeper = await bench.sleeper("news", "mail")
        await other.put("mail")
        assert await bench.woken(sleeper) == [sleeper]
        # And when a message comes back
        released, _lost = await bench.claim("mail", limit=2)
        sleeper = await bench.sleeper("news", "mail")
        await bench.end(released, "release")
        assert await bench.woken(sleeper) == [sleeper]
        sleeper = await bench.sleeper("news", "mail")
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        assert await bench.woken(sleeper) == [sleeper]

    @needs("wake", "inspect")
    async def test_a_message_due_sooner_than_all_others_wakes_a_sleeper(self, bench: Bench) -> None:
        last = await bench.put("mail", delay=50_000)
        for delay in (40_000, 30_000):
            sleeper = await bench.sleeper("mail")
            await bench.put("mail", delay=delay)
            assert await bench.woken(sleeper) == [sleeper]
        # And also when it is the next only since it was rescheduled
        if bench.can.cancel:
            sleeper = await bench.sleeper("mail")
            await bench.reschedule(last.id, delay=20_000)
            assert await bench.woken(sleeper) == [sleeper]

    @needs("wake")
    async def test_a_message_that_came_before_the_sleeper_is_not_slept_on(self, bench: Bench) -> None:
        await bench.claim("mail")
        await bench.put("mail")
        late = asyncio.create_task(bench.engine.wait(["news", "mail"], 2 * WAKE_TIMEOUT))
        assert await bench.woken(late) == [late]

    @needs("wake")
    async def test_what_a_claim_leaves_behind_wakes_another_sleeper(self, bench: Bench) -> None:
        one, two = await bench.sleeper("mail"), await bench.sleeper("mail")
        await bench.put_all(NewMessage("mail", b"x"), NewMessage("mail", b"x"))
        assert await bench.woken(one, two)
        # When the one that woke claims less than is due
        assert len(await bench.claim("mail", limit=1)) == 1
        await asyncio.wait({one, two}, timeout=WAKE_TIMEOUT)
        assert (one.done(), two.done()) == (True, True)

    @needs("wake")
    async def test_one_message_wakes_one_sleeper(self, bench: Bench) -> None:
        for _ in range(ROUNDS):
            sleepers = [await bench.sleeper("mail") for _ in range(3)]
            stranger = await bench.sleeper("news")
            began = time.monotonic()
            await bench.put("mail")
            woken = await bench.woken(*sleepers, stranger)
            in_time = time.monotonic() < began + PROMPT
            strange = stranger.done()
            # Then the next two messages wake the next two, however soon they come
            await bench.put("mail")
            await bench.put("mail")
            await asyncio.wait(sleepers, timeout=WAKE_TIMEOUT)
            assert all(each.done() for each in sleepers)
            if in_time:
                break
            # once more: who does not look for a second is taken for gone, and another wakes; after long, all look
            await bench.put("news")
            await asyncio.wait({stranger}, timeout=WAKE_TIMEOUT)
            await bench.claim("mail", "news", limit=4)
        assert (len(woken), strange, in_time) == (1, False, True)

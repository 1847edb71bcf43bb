"""Verbs for a whole topic: requeue, purge, pause and resume."""

import asyncio

import pytest

from bide.core.times import MAX_DELAY_MS
from bide.engines.base import NewMessage, Stored, Swept
from bide.errors import BadOption, BadTime
from bide.testing.contract.bench import LEASE, Bench, bodies, needs
from bide.types import State


class Sweeping:
    @needs("dead", "attempts")
    async def test_a_requeued_message_has_all_its_attempts_again(self, bench: Bench) -> None:
        claimed = await bench.running("mail", b"body", max_attempts=2, headers={"a": "1"})
        await bench.end(claimed, "retry")
        [claimed] = await bench.claim("mail", limit=5)
        assert await bench.end(claimed, "retry", error="oops") == "dead"
        # When it is requeued with a delay of a second
        assert await bench.engine.requeue("mail", [claimed.id], delay=1_000, now=bench.now) == Swept(1, False)
        assert await bench.stored("mail", "dead") == []
        if bench.can.inspect:
            [stored] = await bench.stored("mail")
            assert (stored.id, stored.state, stored.due, stored.attempt) == (claimed.id, "scheduled", bench.now + 1_000, 0)
        assert await bench.claim("mail", limit=5) == []
        bench.move(1_000)
        [again] = await bench.claim("mail", limit=5)
        assert (again.id, again.body, dict(again.headers), again.attempt) == (claimed.id, b"body", {"a": "1"}, 1)
        # Then it may fail as often as before
        assert await bench.end(again, "retry") == "scheduled"
        [again] = await bench.claim("mail", limit=5)
        assert await bench.end(again, "retry") == "dead"

    @needs("dead", "keys")
    async def test_a_requeued_message_takes_its_key_back_if_it_is_free(self, bench: Bench) -> None:
        free = await bench.bury("mail", b"free", key="free")
        taken = await bench.bury("mail", b"taken", key="taken")
        over = await bench.bury("mail", b"over", key="over")
        # Given another message that holds one key, and one that has expired with another key
        holder = await bench.put("mail", b"holder", delay=60_000, key="taken")
        await bench.put("mail", b"expired", key="over", expires_in=1_000)
        bench.move(1_000)
        assert await bench.engine.requeue("mail", now=bench.now) == Swept(3, False, keyless=1)
        kept = await bench.put("mail", b"more", key="free")
        assert (kept.id, kept.outcome) == (free.id, "kept")
        assert (await bench.put("mail", b"more", key="taken")).id == holder.id
        # Then the message whose key is taken is requeued without a key
        claimed = {each.id: each.key for each in await bench.claim("mail", limit=5)}
        assert claimed == {free.id: "free", taken.id: None, over.id: "over"}

    @needs("dead", "keys")
    async def test_requeue_tells_how_many_came_back_without_their_key(self, bench: Bench) -> None:
        # Given three messages that had a key, of which two keys are taken, and one that never had a key
        first, second = await bench.bury("mail", key="first"), await bench.bury("mail", key="second")
        await bench.bury("mail", key="third")
        await bench.bury("mail")
        for key in ("first", "second"):
            await bench.put("mail", delay=60_000, key=key)
        # When some are requeued by id, and then the rest
        assert await bench.engine.requeue("mail", [first.id], now=bench.now) == Swept(1, False, keyless=1)
        assert await bench.engine.requeue("mail", now=bench.now) == Swept(3, False, keyless=1)
        # Then a message that has lost its key once is not counted again
        [again] = [each for each in await bench.claim("mail", limit=5) if each.id == second.id]
        assert await bench.end(again, "dead") == "dead"
        assert await bench.engine.requeue("mail", now=bench.now) == Swept(1, False)

    @needs("dead")
    async def test_requeue_leaves_what_is_not_dead_alone(self, bench: Bench) -> None:
        async def others() -> list[Stored]:
            if not bench.can.inspect:
                return []
            return await bench.stored("mail", "leased") + await bench.stored("mail", "scheduled")

        # Given dead messages, and others
        other = await bench.bury("news")
        dead = []
        for _ in range(3):
            dead.append((await bench.bury("mail")).id)
            bench.move(1_000)
        leased = await bench.running("mail", lease=60_000)
        later = await bench.put("mail", delay=9_000)
        before = await others()
        # When some of them are requeued by id, and messages that are not dead
        ids = [leased.id, later.id, other.id, "no such id", dead[2]]
        assert await bench.engine.requeue("mail", ids, now=bench.now) == Swept(1, False)
        assert [each.id for each in await bench.claim("mail", limit=5, lease=60_000)] == [dead[2]]
        # And when all are, a page at a time, the oldest first
        assert await bench.engine.requeue("mail", limit=1, now=bench.now) == Swept(1, True)
        assert [each.id for each in await bench.stored("mail", "dead")] == [dead[1]]
        assert [each.id for each in await bench.claim("mail", limit=5, lease=60_000)] == [dead[0]]
        assert await bench.engine.requeue("mail", now=bench.now) == Swept(1, False)
        assert await bench.engine.requeue("mail", now=bench.now) == Swept(0, False)
        # Then the others are unchanged
        assert [each for each in await others() if each.id not in dead] == before
        assert [each.id for each in await bench.stored("news", "dead")] == [other.id]
        assert await bench.end(leased, "done") == "done"

    @needs("dead")
    async def test_requeue_spreads_due_times_evenly(self, bench: Bench) -> None:
        dead = [(await bench.bury("mail")).id for _ in range(7)]
        # When four of ten places over a second are taken, by id
        asked = {"delay": 5_000, "over": 1_000, "limit": 10}
        assert await bench.engine.requeue("mail", dead[:4], **asked, now=bench.now) == Swept(4, False)
        first = bench.now + 5_000
        if bench.can.inspect:
            assert sorted(each.due for each in await bench.stored("mail", "scheduled")) == [first + n * 100 for n in range(4)]
        # And three places, by the others, the oldest of which comes first
        bench.move(60_000)
        assert await bench.engine.requeue("mail", over=1_000, limit=3, now=bench.now) == Swept(3, False)
        begin = bench.now
        # Then each is handed out in its time
        rounds = []
        for _ in range(3):
            rounds.append(await bench.claim("mail", limit=9, lease=60_000))
            bench.move(333)
        assert [len(each) for each in rounds] == [4 + 1, 1, 1]
        dues = {each.id: each.due for claimed in rounds for each in claimed}
        assert sorted(dues[id] for id in dead[:4]) == [first + n * 100 for n in range(4)]
        assert sorted(dues[id] for id in dead[4:]) == [begin, begin + 333, begin + 666]

    @needs("dead")
    async def test_requeue_beyond_the_longest_delay_is_refused(self, bench: Bench) -> None:
        dead = await bench.bury("mail")
        for ids in (None, [dead.id]):
            with pytest.raises(BadTime):
                await bench.engine.requeue("mail", ids, delay=1_000, over=MAX_DELAY_MS, now=bench.now)
        assert [each.state for each in await bench.stored("mail", "dead")] == ["dead"]
        assert await bench.claim("mail", limit=5) == []

    @needs("dead")
    async def test_purge_by_id_drops_only_those_dead_letters(self, bench: Bench) -> None:
        keyed = {"key": "k"} if bench.can.keys else {}
        dead = [(await bench.bury("mail", b"x" * 2_000, **keyed)).id for _ in range(5)]
        other = await bench.bury("news")
        leased = await bench.running("mail", lease=60_000)
        later = await bench.put("mail", delay=9_000)
        state: State | None = None if bench.can.inspect else "dead"
        before = {each.id for each in await bench.stored("mail", state)}
        # When two are named, one of them twice, beside ids of other messages
        ids = [dead[3], leased.id, later.id, other.id, "no such id", dead[1], dead[3]]
        assert await bench.engine.purge("mail", "dead", ids, now=bench.now) == Swept(2, False)
        # Then all other messages are left
        assert {each.id for each in await bench.stored("mail", state)} == before - {dead[1], dead[3]}
        assert [each.id for each in await bench.stored("news", state)] == [other.id]
        if bench.can.inspect:
            assert (await bench.engine.stats("mail", now=bench.now)).dead == 3
        # And what is gone can't come back
        assert await bench.engine.purge("mail", "dead", ids, now=bench.now) == Swept(0, False)
        assert await bench.engine.requeue("mail", ids, now=bench.now) == Swept(0, False)
        assert await bench.engine.purge("mail", "dead", [], now=bench.now) == Swept(0, False)
        # And a small limit leaves the rest for the next call
        for more in (True, False):
            assert await bench.engine.purge("mail", "dead", [dead[0], dead[4]], limit=1, now=bench.now) == Swept(1, more)
        assert await bench.end(leased, "done") == "done"
        bench.move(9_000)
        assert [each.id for each in await bench.claim("mail", limit=5)] == [later.id]

    @needs("inspect")
    async def test_purge_of_pending_messages_by_id_is_refused(self, bench: Bench) -> None:
        here = await bench.put("mail", delay=9_000)
        with pytest.raises(BadOption):
            await bench.engine.purge("mail", "scheduled", [here.id], now=bench.now)
        assert [each.id for each in await bench.stored("mail")] == [here.id]

    @needs("dead")
    async def test_purge_drops_one_state_of_one_topic(self, bench: Bench) -> None:
        for topic in ("mail", "news"):
            for _ in range(3):
                await bench.bury(topic, b"dead")
            await bench.running(topic, b"leased")
            await bench.put_all(*(NewMessage(topic, b"ready") for _ in range(3)))
            await bench.put_all(*(NewMessage(topic, b"scheduled", delay=9_000) for _ in range(3)))
        shown: State | None = None if bench.can.inspect else "dead"
        news = await bench.stored("news", shown)
        left = {b"dead", b"leased", b"ready", b"scheduled"} if bench.can.inspect else {b"dead"}
        states: tuple[State, ...] = ("ready", "dead", "scheduled") if bench.can.inspect else ("dead",)
        for state in states:
            # When one page is purged, and then the rest
            assert await bench.engine.purge("mail", state, limit=2, now=bench.now) == Swept(2, True)
            assert len(await bench.stored("mail", state)) == 1
            assert await bench.engine.purge("mail", state, now=bench.now) == Swept(1, False)
            assert await bench.engine.purge("mail", state, now=bench.now) == Swept(0, False)
            # Then all other messages are left
            left.remove(state.encode())
            assert set(bodies(await bench.stored("mail", shown))) == left
        assert await bench.stored("news", shown) == news
        assert bodies(await bench.claim("mail", "news", limit=9)) == [b"ready"] * (3 if bench.can.inspect else 6)
        bench.move(9_000)
        pending = bodies(await bench.claim("mail", "news", limit=9))
        assert pending == [b"scheduled"] * (3 if bench.can.inspect else 6)

    @needs("inspect")
    async def test_purge_of_the_leased_is_refused(self, bench: Bench) -> None:
        held = await bench.running("mail")
        with pytest.raises(BadOption):
            await bench.engine.purge("mail", "leased", now=bench.now)
        assert [each.state for each in await bench.stored("mail")] == ["leased"]
        assert await bench.end(held, "done") == "done"


class Pausing:
    @needs("pause")
    async def test_a_paused_topic_hands_out_nothing_and_tells_no_time(self, bench: Bench) -> None:
        for topic in ("mail", "news"):
            await bench.put(topic, topic.encode())
        await bench.put("mail", b"later mail", delay=2_000)
        await bench.put("news", b"later news", delay=5_000)
        await bench.engine.pause("mail", True)
        alone = await bench.look("mail", limit=5)
        assert (list(alone.messages), alone.next_due) == ([], None)
        # Then other topics go on
        both = await bench.look("mail", "news", limit=5)
        assert (bodies(both.messages), both.next_due) == ([b"news"], bench.now + 5_000)
        bench.move(2_000)
        assert await bench.claim("mail", limit=5) == []
        # And this one goes on once it is resumed
        await bench.engine.pause("mail", False)
        assert bodies(await bench.claim("mail", limit=5)) == [b"mail", b"later mail"]

    @needs("pause", "inspect")
    async def test_once_a_pause_has_answered_nothing_more_is_handed_out(self, bench: Bench) -> None:
        await bench.put_all(*[NewMessage("mail", b"x")] * 20)
        claims = [asyncio.ensure_future(bench.claim("mail")) for _ in range(20)]
        await bench.engine.pause("mail", True)
        leased = (await bench.engine.stats("mail", now=bench.now)).leased
        found = await asyncio.gather(*claims)
        assert leased == sum(map(len, found)) == (await bench.engine.stats("mail", now=bench.now)).leased

    @needs("pause")
    async def test_what_was_handed_out_before_a_pause_can_still_end(self, bench: Bench) -> None:
        await bench.put_all(*(NewMessage("mail", b"x", max_attempts=5) for _ in range(3)))
        done, retried, lost = await bench.claim("mail", limit=3)
        await bench.engine.pause("mail", True)
        if bench.can.inspect:
            mail, news, together = [await bench.engine.stats(which, now=bench.now) for which in ("mail", "news", None)]
            assert (mail.paused, news.paused, together.paused, together.topics["mail"].paused) == (True, False, True, True)
        assert await bench.end(done, "done") == "done"
        assert await bench.end(retried, "retry", delay=1_000) == "scheduled"
        if bench.can.extend:
            assert await bench.extend(lost, LEASE)
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        # Then messages that came back are not handed out until the topic is resumed
        assert await bench.claim("mail", limit=5) == []
        await bench.engine.pause("mail", False)
        assert {each.id for each in await bench.claim("mail", limit=5)} == {retried.id, lost.id}
        if bench.can.inspect:
            assert not (await bench.engine.stats(now=bench.now)).paused

    @needs("pause", "wake")
    async def test_resuming_wakes_a_sleeper(self, bench: Bench) -> None:
        await bench.engine.pause("mail", True)
        await bench.put("mail")
        assert await bench.claim("mail") == []
        sleeper = await bench.sleeper("mail")
        await bench.engine.pause("mail", False)
        assert await bench.woken(sleeper) == [sleeper]
        assert len(await bench.claim("mail")) == 1

"""Inspection: what get, scan and stats say of a message, of a topic, and of all topics."""

import asyncio
from collections.abc import Sequence
from itertools import groupby

import pytest

from bide.engines.base import NewMessage, Ref, Stored, Verdict, Window
from bide.errors import BadOption
from bide.testing.contract.bench import LEASE, STATES, Bench, counts, needs


async def fill(bench: Bench, topic: str) -> list[str]:
    """Puts messages of every state, in no order: 4 scheduled, 3 ready, 2 leased, 2 dead. Returns their ids."""
    dead = [await bench.bury(topic) for _ in range(2)]
    leased = [await bench.running(topic, lease=60_000) for _ in range(2)]
    pending = await bench.put_all(*(NewMessage(topic, b"x", delay=delay * 1_000) for delay in (9, 1, 7, 3, 8, 2, 6)))
    bench.move(3_500)
    return [*(each.id for each in dead + leased), *(each.id for each in pending)]


def _id(stored: Stored | None) -> str:
    assert stored is not None
    return stored.id


class Inspecting:
    @needs("lookup")
    async def test_get_tells_what_is_stored(self, bench: Bench) -> None:
        named = ({"key": "k"} if bench.can.keys else {}) | ({"level": 2} if bench.can.priority else {})
        sent = await bench.put("mail", b"body", delay=2_000, max_attempts=5, expires_in=60_000, headers={"a": "1"}, **named)
        stored = await bench.find(id=sent.id)
        assert (stored.id, stored.topic, stored.body, dict(stored.headers)) == (sent.id, "mail", b"body", {"a": "1"})
        assert (stored.state, stored.due, stored.expires) == ("scheduled", sent.due, sent.due + 60_000)
        assert (stored.attempt, stored.max_attempts, stored.last_error, stored.lease_until) == (0, 5, None, None)
        assert (stored.key, stored.level) == (named.get("key"), named.get("level", 1))
        if bench.can.keys:
            assert await bench.get(topic="mail", key="k") == stored
        # Then it shows each state of the message
        bench.move(2_000)
        assert (await bench.find(id=sent.id)).state == "ready"
        [claimed] = await bench.claim("mail", limit=5)
        stored = await bench.find(id=sent.id)
        assert (stored.state, stored.lease_until, stored.attempt) == ("leased", bench.now + LEASE, claimed.attempt)
        await bench.end(claimed, "dead", error="no use")
        stored = await bench.find(id=sent.id)
        assert (stored.state, stored.lease_until, stored.last_error) == ("dead", None, "no use")

    @needs("lookup", "inspect")
    async def test_get_and_scan_tell_which_claim_holds_a_message_and_since_when(self, bench: Bench) -> None:
        for topic in ("mail", "mail", "news"):
            await bench.put(topic)
        waiting = await bench.put("mail", delay=60_000)
        bench.move(10_000)
        first, second = bench.now, bench.now + 2_000
        held = [*await bench.claim_as("worker/a.1", "mail")]
        bench.move(2_000)
        held += [*await bench.claim_as("worker/b.1", "mail", "news", limit=2)]
        bench.move(1_000)
        expected = {id: (request, since) for (id, request, since) in zip(
            [each.id for each in held], ["worker/a.1", "worker/b.1", "worker/b.1"], [first, second, second], strict=True
        )}  # fmt: skip
        shown = [each for topic in ("mail", "news") for page in await bench.pages(topic, "leased") for each in page]
        assert {each.id: each.request for each in shown} == {id: request for id, (request, _) in expected.items()}
        for each in shown:  # an engine may number its claims by their time, two of one millisecond too
            assert each.leased_since in range(expected[each.id][1], expected[each.id][1] + 10)
        assert sorted(await bench.engine.get([Ref(id=each.id) for each in shown], now=bench.now), key=_id) == sorted(
            shown, key=_id
        )
        # Then its end tells nothing of it any more
        await bench.end(held[0], "retry", delay=60_000)
        for id in (held[0].id, waiting.id):
            stored = await bench.find(id=id)
            assert (stored.state, stored.request, stored.leased_since) == ("scheduled", None, None)

    @needs("lookup", "inspect")
    async def test_get_and_scan_tell_since_when_a_message_waits_and_the_token_of_its_lease(self, bench: Bench) -> None:
        sent = await bench.put("mail", delay=1_000, max_attempts=5)
        bench.move(2_000)
        ends: Sequence[Verdict] = ("retry", "release")
        for verdict in ends:
            [claimed] = await bench.claim("mail")
            for stored in (await bench.find(id=sent.id), *(await bench.engine.scan("mail", None, 9, now=bench.now)).messages):
                assert stored.since in (None, sent.due)
                assert stored.token in (None, claimed.token)
            await bench.end(claimed, verdict, delay=60_000)
            for stored in (await bench.find(id=sent.id), *(await bench.engine.scan("mail", None, 9, now=bench.now)).messages):
                assert stored.due > sent.due
                assert stored.since in (None, sent.due)
                assert stored.token is None
            bench.move(60_000)

    @needs("lookup")
    async def test_nobody_holds_a_message_since_a_time_to_come(self, bench: Bench) -> None:
        await bench.put("mail")
        for _ in range(20):  # in one millisecond: each token is above the one before
            [held] = await bench.claim_as("worker/a.1", "mail")
            stored = await bench.find(id=held.id)
            assert stored.leased_since is None or stored.leased_since <= bench.now
            await bench.end(held, "release")

    @needs("lookup")
    async def test_get_of_what_has_ended_is_none(self, bench: Bench) -> None:
        done = await bench.running("mail")
        await bench.end(done, "done")
        here = await bench.put("mail", delay=5_000)
        expired = await bench.put("mail", expires_in=1_000)
        gone = [Ref(id=done.id), Ref(id=expired.id), Ref(id="no such id")]
        if bench.can.cancel:
            cancelled = await bench.put("mail", delay=5_000)
            await bench.cancel(id=cancelled.id)
            gone.append(Ref(id=cancelled.id))
        if bench.can.keys:
            gone.append(Ref(topic="mail", key="no such key"))
        bench.move(1_000)
        found = await bench.engine.get([Ref(id=here.id), *gone, Ref(id=here.id)], now=bench.now)
        assert [each and each.id for each in found] == [here.id, *[None] * len(gone), here.id]

    @needs("inspect")
    async def test_pages_together_show_every_message_once(self, bench: Bench) -> None:
        ids = await fill(bench, "mail")
        await fill(bench, "news")
        for limit in (1, 3, 100):
            pages = await bench.pages("mail", limit=limit)
            assert max(len(page) for page in pages) <= limit
            shown = [each for page in pages for each in page]
            assert sorted(each.id for each in shown) == sorted(ids)
            # Then they are in order, by state and then by due time
            groups = {state: [each.due for each in group] for state, group in groupby(shown, lambda each: each.state)}
            assert list(groups) == ["ready", "scheduled", "leased", "dead"]
            assert list(groups.values()) == [sorted(dues) for dues in groups.values()]
        if bench.can.lookup:
            assert shown == await bench.engine.get([Ref(id=each.id) for each in shown], now=bench.now)

    @needs("dead")
    async def test_dead_letters_come_in_the_order_in_which_they_died(self, bench: Bench) -> None:
        # Given messages that were buried in the reverse order of their due times
        held = []
        for topic in ("mail", "news", "mail", "mail", "mail"):
            held.append(await bench.running(topic, lease=60_000))
            bench.move(1_000)
        died = []
        for each in reversed(held):
            assert await bench.end(each, "dead", error="no use") == "dead"
            died += [each.id] if each.topic == "mail" else []
            bench.move(1_000)
        # Then they are listed in the order in which they died, whatever the page size
        for limit in (1, 3, 100):
            for state in (None, STATES[3]) if bench.can.inspect else STATES[3:]:
                assert [each.id for each in await bench.stored("mail", state, limit=limit)] == died

    @needs("dead")
    async def test_a_page_holds_one_state_when_asked(self, bench: Bench) -> None:
        ids = await fill(bench, "mail")
        shown: list[Stored] = []
        each_state = list(zip(STATES, (4, 3, 2, 2), strict=True))
        for state, count in each_state if bench.can.inspect else each_state[3:]:
            found = await bench.stored("mail", state, limit=2)
            assert [each.state for each in found] == [state] * count
            assert [each.due for each in found] == sorted(each.due for each in found)
            shown += found
        assert sorted(each.id for each in shown) == sorted(ids if bench.can.inspect else ids[:2])
        assert await bench.stored("unknown", "dead") == []

    @needs("dead")
    async def test_a_page_mark_that_is_not_ours_is_refused(self, bench: Bench) -> None:
        await fill(bench, "mail")
        for mark in ("nonsense", "", "0", "ready", "dead:1", "žluť", "' or 1=1 --"):
            for state in (None, STATES[0], STATES[3]) if bench.can.inspect else STATES[3:]:
                with pytest.raises(BadOption):
                    await bench.engine.scan("mail", state, 5, mark, now=bench.now)

    @needs("inspect")
    async def test_counts_agree_with_a_full_scan(self, bench: Bench) -> None:
        await fill(bench, "mail")
        await fill(bench, "news")
        every = []
        for topic in ("mail", "news"):
            shown = await bench.stored(topic)
            every += shown
            stats = await bench.engine.stats(topic, now=bench.now)
            assert counts(stats) == tuple(sum(each.state == state for each in shown) for state in STATES)
        together = await bench.engine.stats(now=bench.now)
        assert counts(together) == tuple(sum(each.state == state for each in every) for state in STATES)
        # Then the stats of all topics contain each topic
        for topic in ("mail", "news"):
            assert counts(together.topics[topic]) == counts(await bench.engine.stats(topic, now=bench.now))
        assert set(together.topics) == {"mail", "news"}
        # And the times agree
        ready = [each.due for each in every if each.state == "ready"]
        assert together.oldest_overdue == (bench.now - min(ready)) / 1_000
        assert together.next_due == min(each.due for each in every if each.state == "scheduled")
        assert (together.paused, together.dead_dropped) == (False, 0)

    @needs("inspect")
    async def test_counts_leave_out_the_topics_that_are_not_asked_for(self, bench: Bench) -> None:
        # Given topics with messages of every state
        for topic in ("mail", "news", "old"):
            await fill(bench, topic)
        # Then the stats of all but some are those of the others
        window = Window(bench.now - 60_000, bench.now + 60_000, 2)
        alone = await bench.engine.stats("news", window=window, now=bench.now)
        others = await bench.engine.stats(but=["mail", "old", "unknown"], window=window, now=bench.now)
        assert (counts(others), list(others.timeline)) == (counts(alone), list(alone.timeline))
        assert set(others.topics) == {"news"}
        nothing = await bench.engine.stats(but={"mail", "news", "old"}, now=bench.now)
        assert (counts(nothing), dict(nothing.topics)) == ((0, 0, 0, 0), {})

    @needs("inspect")
    async def test_a_message_that_moves_meanwhile_is_counted_once(self, bench: Bench) -> None:
        mover = await bench.another()
        await bench.put("mail")
        seen: set[int] = set()

        async def look() -> None:
            while not moving.done():
                seen.add(sum(counts(await bench.engine.stats("mail", now=bench.now))))
                await asyncio.sleep(0)

        async def move() -> None:
            for _ in range(200):
                [claimed] = await mover.claim("mail")
                await asyncio.sleep(0)
                assert await mover.end(claimed, "release") == "scheduled"
                await asyncio.sleep(0)

        moving = asyncio.ensure_future(move())
        await asyncio.gather(moving, look())
        assert seen == {1}

    @needs("inspect")
    async def test_nothing_is_left_when_all_has_ended(self, bench: Bench) -> None:
        # Given messages that end in every way
        done = await bench.running("mail")
        await bench.end(done, "done")
        await bench.bury("mail")
        await bench.engine.purge("mail", "dead", now=bench.now)
        await bench.put("mail", delay=9_000)
        await bench.engine.purge("mail", "scheduled", now=bench.now)
        late = await bench.running("mail", expires_in=1_000)
        assert await bench.end(late, "retry", delay=2_000) == "expired"
        if bench.can.cancel:
            assert await bench.cancel(id=(await bench.put("mail")).id)
        await bench.put("mail", expires_in=1_000)
        bench.move(1_000)
        await bench.tend()
        # Then nothing is shown
        assert await bench.stored("mail") == []
        topic, together, unknown = [await bench.engine.stats(which, now=bench.now) for which in ("mail", None, "unknown")]
        assert dict(together.topics) == {}
        for stats in (topic, together, unknown):
            assert counts(stats) == (0, 0, 0, 0)
            assert (stats.oldest_overdue, stats.next_due, stats.dead_dropped, stats.paused) == (None, None, 0, False)

    @needs("inspect")
    async def test_the_timeline_counts_what_is_pending(self, bench: Bench) -> None:
        # Given messages that are leased or dead, and those that are pending
        await bench.bury("mail")
        await bench.running("mail")
        start = bench.now
        for delay in (0, 500, 999, 1_000, 2_500, 3_000, 3_999, 4_000, 9_000):
            await bench.put("mail", delay=delay)
        await bench.put("news", delay=2_500)
        bench.move(600)
        # Then a part counts what falls due from its start up to, not including, its end
        window = Window(start, start + 4_000, 4)
        assert list((await bench.engine.stats("mail", window=window, now=bench.now)).timeline) == [3, 1, 1, 2]
        together = await bench.engine.stats(window=window, now=bench.now)
        assert list(together.timeline) == [3, 1, 2, 2]
        assert {topic: list(stats.timeline) for topic, stats in together.topics.items()} == {
            "mail": [3, 1, 1, 2],
            "news": [0, 0, 1, 0],
        }
        window = Window(start + 500, start + 2_500, 2)
        assert list((await bench.engine.stats("mail", window=window, now=bench.now)).timeline) == [3, 0]
        assert list((await bench.engine.stats("mail", now=bench.now)).timeline) == []

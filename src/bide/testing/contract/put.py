"""Puts of messages without a key: due times, bodies, operations; also of those that had attempts in another queue."""

import pytest

from bide.engines.base import MAX_BATCH, OPERATION_MS, Move, NewMessage, Past, Ref
from bide.errors import BadTime, BideError
from bide.testing.contract.bench import Bench, bodies, ending, needs

DAY = 86_400_000


class Putting:
    async def test_a_delay_counts_from_the_engine_s_now(self, bench: Bench) -> None:
        first = await bench.put("mail", b"first", delay=5_000)
        bench.move(3_000)
        second = await bench.put("mail", b"second", delay=5_000)
        assert (first.due, second.due) == (bench.now + 2_000, bench.now + 5_000)
        bench.move(4_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"first"]
        bench.move(1_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"second"]

    async def test_an_empty_batch_is_answered_with_nothing(self, bench: Bench) -> None:
        assert await bench.engine.put([], now=bench.now) == []
        assert await bench.claim("mail", limit=5) == []

    async def test_an_instant_in_the_past_means_now(self, bench: Bench) -> None:
        past = await bench.put("mail", b"past", at=bench.now - 60_000)
        future = await bench.put("mail", b"future", at=bench.now + 60_000)
        assert (past.due, future.due) == (bench.now, bench.now + 60_000)
        [claimed] = await bench.claim("mail", limit=5)
        assert (claimed.body, claimed.due) == (b"past", bench.now)

    async def test_a_message_due_later_than_the_longest_delay_refuses_its_batch(self, bench: Bench) -> None:
        longest = bench.can.max_delay
        good = NewMessage("mail", b"good")
        by_delay = NewMessage("mail", b"far", delay=longest + 1)
        by_instant = NewMessage("mail", b"far", at=bench.now + longest + 1)
        for bad in (by_delay, by_instant):
            with pytest.raises(BadTime):
                await bench.put_all(good, bad, good)
        assert await bench.claim("mail", limit=5) == []
        if bench.can.inspect:
            assert await bench.stored("mail") == []
        # And the longest delay itself is accepted
        assert (await bench.put("mail", delay=longest)).due == bench.now + longest

    async def test_answers_come_in_the_order_of_the_batch(self, bench: Bench) -> None:
        asked = [("mail", 9_000), ("news", 1_000), ("mail", 0), ("bills", 5_000), ("news", 1_000), ("mail", 3_000)]
        sent = await bench.put_all(*(NewMessage(topic, b"%d" % n, delay=delay) for n, (topic, delay) in enumerate(asked)))
        assert [(each.topic, each.due - bench.now) for each in sent] == asked
        assert [each.outcome for each in sent] == ["created"] * 6
        # Then each id is the id of its own message
        bench.move(9_000)
        claimed = await bench.claim("mail", "news", "bills", limit=10)
        assert {each.id: each.body for each in claimed} == {each.id: b"%d" % n for n, each in enumerate(sent)}

    async def test_bodies_and_headers_come_back_as_they_were_sent(self, bench: Bench) -> None:
        sent_bodies = [b"", b"\0", bytes(range(256)), "žluť 馬 🐎".encode(), b"x" * min(100_000, bench.can.max_body)]
        headers = {"lang": "cs", "名": "値 🐎", "empty": "", "long": "x" * 1_000}
        sent = await bench.put_all(*(NewMessage("mail", body, headers=headers, max_attempts=9) for body in sent_bodies))
        bare = await bench.put("mail", b"bare")
        claimed = {each.id: each for each in await bench.claim("mail", limit=10)}
        assert [claimed[each.id].body for each in sent] == sent_bodies
        assert [dict(claimed[each.id].headers) for each in sent] == [headers] * len(sent)
        assert dict(claimed[bare.id].headers) == {}
        # And so does the rest
        for each in (*sent, bare):
            message = claimed[each.id]
            assert (message.topic, message.due, message.key) == ("mail", each.due, None)
            assert message.max_attempts == (3 if each is bare else 9)

    @needs("idempotent")
    async def test_the_same_operation_acts_once_and_gets_the_same_answer(self, bench: Bench) -> None:
        # Given a put whose answer was lost
        first = await bench.put("mail", b"first", delay=1_000, operation="a")
        bench.move(500)
        # Then it can be repeated, also together with others, and with another body
        assert await bench.put("mail", b"second", delay=9_000, operation="a") == first
        again, other = await bench.put_all(NewMessage("mail", b"third", operation="a"), NewMessage("mail", b"b", operation="b"))
        assert again == first
        assert other.created
        bench.move(500)
        claimed = await bench.claim("mail", limit=5)
        assert sorted(bodies(claimed)) == [b"b", b"first"]
        # And when its message has ended
        assert await bench.engine.settle([ending(each, "done") for each in claimed], now=bench.now) == ["done", "done"]
        assert await bench.put("mail", b"fourth", operation="a") == first
        bench.move(20_000)
        assert await bench.claim("mail", limit=5) == []

    @needs("idempotent")
    async def test_an_operation_belongs_to_its_topic_and_key(self, bench: Bench) -> None:
        keys = [None, "k", "l"] if bench.can.keys else [None]
        for operation, size in (("one by one", 1), ("together", 6)):
            batch = [NewMessage(topic, b"x", key=key, operation=operation) for topic in ("mail", "news") for key in keys]
            first = [sent for i in range(0, len(batch), size) for sent in await bench.put_all(*batch[i : i + size])]
            assert [(each.topic, each.outcome) for each in first] == [(each.topic, "created") for each in batch]
            # Then each is a message of its own, and gets its own answer again
            assert await bench.put_all(*batch) == first
            claimed = await bench.claim("mail", "news", limit=10)
            assert sorted(each.id for each in claimed) == sorted(each.id for each in first)
            # And also when the messages have ended
            await bench.engine.settle([ending(each, "done") for each in claimed], now=bench.now)
            assert await bench.put_all(*reversed(batch)) == first[::-1]

    @needs("idempotent")
    async def test_an_operation_is_forgotten_after_ten_minutes(self, bench: Bench) -> None:
        early = await bench.put("mail", b"early", operation="early")
        late = await bench.put("mail", b"late", operation="late")
        bench.move(OPERATION_MS - 1_000)
        assert await bench.put("mail", b"early", operation="early") == early
        bench.move(2_000)
        again = await bench.put("mail", b"late again", operation="late")
        assert again.created
        assert again.id != late.id
        assert bodies(await bench.claim("mail", limit=5)) == [b"early", b"late", b"late again"]

    async def test_a_connection_that_can_t_be_joined_is_refused(self, bench: Bench) -> None:
        held = await bench.running("mail")
        with pytest.raises(BideError):
            await bench.engine.put([NewMessage("mail", b"x")], connection=object(), now=bench.now)
        with pytest.raises(BideError):
            await bench.engine.settle([ending(held, "done")], connection=object(), now=bench.now)
        later = await bench.put("mail", delay=1_000)
        with pytest.raises(BideError):
            await bench.engine.cancel([Ref(id=later.id)], connection=object(), now=bench.now)
        with pytest.raises(BideError):
            await bench.engine.reschedule([Move(Ref(id=later.id), at=0)], connection=object(), now=bench.now)
        # Then nothing was done outside the transaction either
        assert await bench.claim("mail", limit=5) == []
        assert await bench.end(held, "done") == "done"


class Pasts:
    @needs("past", "keys", "lookup", "priority", "traces")
    async def test_a_message_may_come_with_the_attempts_that_it_has_had(self, bench: Bench) -> None:
        # Given messages due now, soon and far away, with and without a key, in all sizes
        past = Past(attempt=2, error="it broke ∅", traces=[b"first", b"\0\xff"])
        news = [
            NewMessage("mail", b"%d" % n * size, at=bench.now + delay, key=key, max_attempts=4, level=level, past=past)
            for n, (size, delay, key, level) in enumerate(
                [(1, 0, None, 1), (9_000, 1_000, "k", 0), (1, 3 * DAY, "l", 2), (5_000, -1_000, None, 1)]
            )
        ]
        sent = await bench.put_all(*news)
        assert [each.outcome for each in sent] == ["created"] * 4
        assert [each.due for each in sent] == [bench.now, bench.now + 1_000, bench.now + 3 * DAY, bench.now]
        for new, each in zip(news, sent, strict=True):
            stored = await bench.find(id=each.id)
            assert (stored.attempt, stored.max_attempts, stored.last_error) == (2, 4, "it broke ∅")
            assert (stored.due, stored.key, stored.level, stored.body) == (each.due, new.key, new.level, new.body)
            assert list(stored.traces) == [b"first", b"\0\xff"]
        # Then none of them is handed out early, and each goes on counting
        assert sorted(each.id for each in await bench.claim("mail", limit=9)) == sorted([sent[0].id, sent[3].id])
        bench.move(1_000)
        [claimed] = await bench.claim("mail", limit=9)
        assert (claimed.id, claimed.attempt, claimed.max_attempts, claimed.key) == (sent[1].id, 3, 4, "k")
        assert await bench.end(claimed, "retry", delay=1_000) == "scheduled"
        bench.move(3 * DAY - 1_000)
        ids = sorted(each.id for each in await bench.claim("mail", limit=9))
        assert ids == sorted([sent[1].id, sent[2].id])

    @needs("past", "lookup")
    async def test_a_message_that_comes_with_its_last_attempt_is_delivered_once_more_only(self, bench: Bench) -> None:
        await bench.put("mail", max_attempts=3, past=Past(attempt=2))
        [claimed] = await bench.claim("mail")
        assert claimed.attempt == 3
        assert await bench.end(claimed, "retry", error="the last") == "dead"
        assert (await bench.find(id=claimed.id)).last_error == "the last"

    @needs("past", "keys", "inspect")
    async def test_a_dead_letter_may_come_as_it_was(self, bench: Bench) -> None:
        past = Past(attempt=3, error="no such order", traces=[b"why"], dead=True)
        news = [
            NewMessage("mail", b"%d" % n * size, at=bench.now + due, key=key, headers={"h": "v"}, expires_in=life, past=past)
            for n, (size, due, key, life) in enumerate([(1, 0, None, None), (3_000, 9_000, "k", 1), (1, 5 * DAY, "l", DAY)])
        ]
        sent = await bench.put_all(*news)
        assert [each.outcome for each in sent] == ["created"] * 3
        assert sorted(bodies(await bench.stored("mail"))) == sorted(new.body for new in news)
        for new, each in zip(news, sent, strict=True):
            stored = await bench.find(id=each.id)
            assert (stored.state, stored.attempt, stored.last_error) == ("dead", 3, "no such order")
            assert (stored.key, stored.headers, list(stored.traces)) == (new.key, {"h": "v"}, [b"why"])
        # Then it is not delivered, and lives again by requeue only
        bench.move(6 * DAY)
        await bench.tend()
        assert await bench.claim("mail", limit=9) == []
        assert (await bench.engine.stats(now=bench.now)).dead == 3
        assert (await bench.engine.requeue("mail", [sent[1].id], now=bench.now)).count == 1
        [claimed] = await bench.claim("mail", limit=9)
        assert (claimed.id, claimed.key, claimed.attempt) == (sent[1].id, "k", 1)
        # And dropping the others leaves nothing
        await bench.end(claimed, "done")
        assert (await bench.engine.purge("mail", "dead", now=bench.now)).count == 2
        assert dict((await bench.engine.stats(now=bench.now)).topics) == {}

    @needs("past", "keys", "lookup")
    async def test_a_dead_letter_that_comes_takes_no_key(self, bench: Bench) -> None:
        # Given a pending message with the key
        first = await bench.put("mail", b"pending", delay=1_000, key="k")
        dead = NewMessage("mail", b"dead", key="k", past=Past(attempt=3, dead=True))
        batch = [dead, NewMessage("mail", b"other", delay=1_000, key="l"), NewMessage("mail", b"dead", key="l", past=dead.past)]
        sent = await bench.put_all(*batch)
        assert [each.outcome for each in sent] == ["created"] * 3
        # Then the pending ones keep their keys
        assert (await bench.find(topic="mail", key="k")).id == first.id
        assert (await bench.find(topic="mail", key="l")).id == sent[1].id
        again = await bench.put("mail", b"again", delay=1_000, key="k")
        assert (again.id, again.outcome) == (first.id, "kept")
        assert (await bench.engine.requeue("mail", [sent[0].id], now=bench.now)).keyless == 1

    @needs("past", "keys", "idempotent", "inspect")
    async def test_a_batch_with_a_past_acts_once(self, bench: Bench) -> None:
        pasts = [Past(attempt=1), Past(attempt=3, error="why", dead=True), None]
        batch = [
            NewMessage(
                "mail", b"%d" % n, delay=n % 2 * 1_000, operation=f"o{n}", key=f"k{n}" if n % 7 else None, past=pasts[n % 3]
            )
            for n in range(MAX_BATCH)
        ]
        sent = await bench.put_all(*batch)
        for claimed in await bench.claim("mail", limit=50):
            await bench.end(claimed, "done")
        assert await bench.put_all(*batch) == sent
        stats = await bench.engine.stats(now=bench.now)
        dead = sum(each is not None and each.dead for new in batch for each in [new.past])
        assert (stats.dead, stats.scheduled + stats.ready + stats.dead) == (dead, MAX_BATCH - 50)
        stored = await bench.stored("mail")
        assert {each.attempt for each in stored} == {0, 1, 3}

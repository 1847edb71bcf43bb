"""Messages that had attempts in another queue, and dead letters of another queue, come as they were."""

from bide.engines.base import MAX_BATCH, NewMessage, Past
from bide.testing.contract.bench import Bench, bodies, needs

DAY = 86_400_000


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

"""Upkeep: leases that ended, messages that expired, and dead letters that are too old or too many."""

from bide.engines.base import NewMessage
from bide.testing.contract.bench import LEASE, ROUNDS, Bench, bodies, needs


class Upkeep:
    async def test_a_message_whose_lease_has_ended_comes_back(self, bench: Bench) -> None:
        first = await bench.running("mail", b"body", max_attempts=3)
        bench.move(LEASE - 1_000)
        assert (await bench.tend()).returned == 0
        bench.move(2_000)
        assert await bench.claim("mail", limit=5) == []
        tended = await bench.tend()
        assert (tended.returned, tended.buried) == (1, 0)
        # Then it is ready again, with its attempt counted
        if bench.can.lookup:
            stored = await bench.find(id=first.id)
            assert (stored.state, stored.due, stored.lease_until) == ("ready", first.due, None)
        [again] = await bench.claim("mail", limit=5)
        assert (again.id, again.body, again.due) == (first.id, b"body", first.due)
        if bench.can.attempts:
            assert again.attempt == 2
        assert (await bench.tend()).returned == 0

    async def test_a_claim_that_tells_when_upkeep_is_needed_tells_it_in_time(self, bench: Bench) -> None:
        async def needed() -> bool:
            upkeep = (await bench.look("nothing")).upkeep
            return upkeep is None or upkeep <= bench.now

        await bench.tend()
        long = await bench.running("mail", lease=10 * LEASE)
        await bench.running("news", lease=LEASE)
        bench.move(LEASE)
        assert await needed()
        assert (await bench.tend()).returned == 1
        # When a long lease is made a short one
        if bench.can.extend:
            assert await bench.extend(long, LEASE)
            bench.move(LEASE)
            assert await needed()
            assert (await bench.tend()).returned == 1
        if not bench.can.inspect:
            return
        # When a message expires: sent, moved, and come back
        await bench.put("late", expires_in=LEASE)
        bench.move(2 * LEASE)
        assert await needed()
        assert (await bench.tend()).expired == 1
        held = await bench.running("back", expires_in=3 * LEASE)
        await bench.end(held, "retry", delay=1)
        bench.move(4 * LEASE)
        assert await needed()
        assert (await bench.tend()).expired == 1

    @needs("attempts")
    async def test_a_lease_that_ended_after_the_named_instant_is_left_alone(self, bench: Bench) -> None:
        # Given leases that ended one after the other, on the last attempts of their messages, long ago
        ends, held = [], []
        for n in range(3):
            held.append(await bench.running("mail", b"%d" % n, max_attempts=1))
            ends.append(bench.now + LEASE)
            bench.move(100)
        bench.move(10 * LEASE)
        # When tend is called with the instant at which the second of them ended
        did = await bench.engine.tend(ended_by=ends[1], now=bench.now)
        assert (did.returned, did.buried, did.more) == (2, 2, False)
        # Then the third goes on for as long as tend is called so
        assert (await bench.engine.tend(ended_by=ends[1], now=bench.now)).returned == 0
        if bench.can.extend:
            assert await bench.extend(held[2], LEASE)
            assert (await bench.tend()).returned == 0
            bench.move(LEASE)
        # And an instant in the future spares none
        assert (await bench.engine.tend(ended_by=bench.now + LEASE, now=bench.now)).returned == 1
        assert [await bench.end(each, "done") for each in held] == ["lost"] * 3

    @needs("attempts")
    async def test_a_lease_that_ends_on_the_last_attempt_buries_its_message(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=2)
        await bench.end(claimed, "retry")
        [claimed] = await bench.claim("mail", limit=5)
        bench.move(LEASE + 1_000)
        tended = await bench.tend()
        assert (tended.returned, tended.buried) == (1, 1)
        assert await bench.claim("mail", limit=5) == []
        assert await bench.end(claimed, "done") == "lost"
        if bench.can.dead:
            [dead] = await bench.stored("mail", "dead")
            assert (dead.id, dead.state, dead.attempt) == (claimed.id, "dead", 2)
            assert "lease" in (dead.last_error or "").lower()

    async def test_an_expired_message_is_not_handed_out(self, bench: Bench) -> None:
        for topic, lives in (("mail", (5_000, 6_000)), ("news", (6_000, 5_000)), ("bills", (5_000, 5_000))):
            for life in lives:
                await bench.put(topic, b"%d" % life, delay=1_000, expires_in=life)
        bench.move(6_000)
        for topic in ("mail", "news"):
            [claimed] = await bench.claim(topic, limit=5)
            assert claimed.body == b"6000"
            # Then the claim has removed the expired one
            if bench.can.inspect:
                assert [each.id for each in await bench.stored(topic)] == [claimed.id]
            assert await bench.end(claimed, "done") == "done"
        assert await bench.claim("bills", limit=5) == []

    async def test_expiry_counts_from_the_due_time(self, bench: Bench) -> None:
        sent = await bench.put("mail", delay=10_000, expires_in=5_000)
        if bench.can.lookup:
            assert (await bench.find(id=sent.id)).expires == sent.due + 5_000
        bench.move(14_000)
        assert len(await bench.claim("mail", limit=5)) == 1

    @needs("inspect")
    async def test_tend_removes_what_has_expired(self, bench: Bench) -> None:
        await bench.put_all(*(NewMessage("mail", b"short", delay=1_000, expires_in=2_000) for _ in range(3)))
        await bench.put("mail", b"long", delay=1_000, expires_in=9_000)
        bench.move(2_000)
        assert (await bench.tend()).expired == 0
        bench.move(1_000)
        assert (await bench.tend()).expired == 3
        if bench.can.inspect:
            assert bodies(await bench.stored("mail")) == [b"long"]
        assert (await bench.tend()).expired == 0
        assert bodies(await bench.claim("mail", limit=5)) == [b"long"]

    @needs("dead")
    async def test_dead_letters_that_are_too_old_are_dropped_and_counted(self, bench: Bench) -> None:
        keeping = await bench.another(namespace="keeping", dead_for=10_000)
        await keeping.bury("mail", b"old")
        keeping.move(5_000)
        await keeping.bury("mail", b"young")
        keeping.move(4_000)
        assert (await keeping.tend()).dropped == 0
        assert bodies(await keeping.stored("mail", "dead")) == [b"old", b"young"]
        # When the first is too old
        keeping.move(2_000)
        assert (await keeping.tend()).dropped == 1
        assert bodies(await keeping.stored("mail", "dead")) == [b"young"]
        if keeping.can.inspect:
            stats = await keeping.engine.stats("mail", now=keeping.now)
            assert (stats.dead, stats.dead_dropped) == (1, 1)
        # Then the count of dropped ones stays when all are gone
        keeping.move(10_000)
        assert (await keeping.tend()).dropped == 1
        assert await keeping.stored("mail", "dead") == []
        if not keeping.can.inspect:
            return
        stats = await keeping.engine.stats(now=keeping.now)
        assert (stats.dead, stats.dead_dropped, stats.topics["mail"].dead_dropped) == (0, 2, 2)

    @needs("dead", "lookup")
    async def test_a_dead_letter_that_died_again_is_as_old_as_its_last_death(self, bench: Bench) -> None:
        keeping = await bench.another(namespace="keeping", dead_for=10_000)
        await keeping.bury("mail", b"again")
        keeping.move(5_000)
        assert (await keeping.engine.requeue("mail", now=keeping.now)).count == 1
        [again] = await keeping.claim("mail")
        assert await keeping.end(again, "dead") == "dead"
        keeping.move(6_000)
        assert (await keeping.tend()).dropped == 0
        keeping.move(5_000)
        assert (await keeping.tend()).dropped == 1

    @needs("dead")
    async def test_dead_letters_that_are_too_many_are_dropped_and_counted(self, bench: Bench) -> None:
        keeping = await bench.another(namespace="keeping", dead_max=2)
        for n in range(5):
            await keeping.bury("mail", b"%d" % n)
            keeping.move(1_000)
        await keeping.bury("news", b"news")
        await keeping.tend()
        # Then the newest are left, and other topics have their own limit
        assert bodies(await keeping.stored("mail", "dead")) == [b"3", b"4"]
        assert bodies(await keeping.stored("news", "dead")) == [b"news"]
        if not keeping.can.inspect:
            return
        mail, news, all_together = [await keeping.engine.stats(which, now=keeping.now) for which in ("mail", "news", None)]
        assert (mail.dead, mail.dead_dropped) == (2, 3)
        assert (news.dead, news.dead_dropped) == (1, 0)
        assert (all_together.dead, all_together.dead_dropped) == (3, 3)

    @needs("dead")
    async def test_a_dead_letter_that_is_too_old_and_one_too_many_is_counted_once(self, bench: Bench) -> None:
        keeping = await bench.another(namespace="keeping", dead_for=1_000, dead_max=1)
        await keeping.bury("mail", b"old")
        await keeping.put("mail", b"last", max_attempts=1)
        assert bodies(await keeping.claim("mail", lease=50)) == [b"last"]
        keeping.move(5_000)
        for piece in range(ROUNDS):
            assert piece < ROUNDS - 1
            if not (await keeping.tend()).more:
                break
        # Then the old one has gone, and the one whose lease has ended is dead
        assert bodies(await keeping.stored("mail", "dead")) == [b"last"]
        if not keeping.can.inspect:
            return
        stats = await keeping.engine.stats("mail", now=keeping.now)
        assert (stats.dead, stats.dead_dropped) == (1, 1)

    async def test_tend_does_no_more_than_its_budget(self, bench: Bench) -> None:
        # Given ten leases that have ended and, where they can be seen, five messages that have expired
        stale = 5 if bench.can.inspect else 0
        await bench.put_all(*(NewMessage("mail", b"held") for _ in range(10)))
        assert len(await bench.claim("mail", limit=10, lease=1_000)) == 10
        ends = bench.now + 1_000
        await bench.put_all(*(NewMessage("mail", b"stale", expires_in=1_000) for _ in range(stale)))
        bench.move(2_000)
        # When tend is called with a small budget
        returned = expired = 0
        for piece in range(ROUNDS):
            did = await bench.engine.tend(4, now=bench.now)
            assert did.returned + did.expired + did.dropped <= 4
            returned, expired = returned + did.returned, expired + did.expired
            if bench.can.inspect:  # what is not done yet is unchanged
                assert {each.lease_until for each in await bench.stored("mail", "leased")} <= {ends}
            if not did.more:
                break
            assert piece < 100
        # Then nothing is left out
        assert (returned, expired) == (10, stale)
        assert bodies(await bench.claim("mail", limit=20)) == [b"held"] * 10

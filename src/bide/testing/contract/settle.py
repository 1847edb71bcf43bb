"""Ends of deliveries: done, retry, release and dead; fencing by tokens; and leases that are extended."""

from bide.engines.base import End, Hold, NewMessage, Tended, Verdict
from bide.testing.contract.bench import LEASE, Bench, bodies, ending, needs

VERDICTS: tuple[Verdict, ...] = ("done", "retry", "release", "dead")


class Settling:
    async def test_done_ends_a_message_for_good(self, bench: Bench) -> None:
        claimed = await bench.running("mail")
        assert await bench.end(claimed, "done") == "done"
        if bench.can.inspect:
            assert await bench.stored("mail") == []
        bench.move(LEASE + 1_000)
        await bench.tend()
        assert await bench.claim("mail", limit=5) == []

    async def test_retry_makes_a_message_due_after_the_delay(self, bench: Bench) -> None:
        claimed = await bench.running("mail", b"body", headers={"a": "1"})
        bench.move(500)
        assert await bench.end(claimed, "retry", delay=2_000, error="oops") == "scheduled"
        if bench.can.lookup:
            stored = await bench.find(id=claimed.id)
            assert (stored.state, stored.due, stored.last_error) == ("scheduled", bench.now + 2_000, "oops")
            assert stored.lease_until is None
        bench.move(1_999)
        assert await bench.claim("mail", limit=5) == []
        bench.move(1)
        [again] = await bench.claim("mail", limit=5)
        assert (again.id, again.body, dict(again.headers), again.due) == (claimed.id, b"body", {"a": "1"}, bench.now)
        # And without a delay at once
        assert await bench.end(again, "retry") == "scheduled"
        assert [each.id for each in await bench.claim("mail", limit=5)] == [claimed.id]

    @needs("attempts")
    async def test_retry_after_the_last_attempt_buries_with_the_error(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=2)
        assert await bench.end(claimed, "retry", error="first") == "scheduled"
        [claimed] = await bench.claim("mail", limit=5)
        assert await bench.end(claimed, "retry", error="second") == "dead"
        if bench.can.dead:
            [dead] = await bench.stored("mail", "dead")
            assert (dead.id, dead.attempt, dead.last_error) == (claimed.id, 2, "second")
        bench.move(LEASE + 1_000)
        await bench.tend()
        assert await bench.claim("mail", limit=5) == []

    @needs("attempts")
    async def test_retry_may_give_a_message_more_attempts(self, bench: Bench) -> None:
        for headers, body in (({}, b"body"), ({"a": "1"}, b"long" * 1_000)):
            # Given messages on their last attempt, of which one has said how many it has
            for most in (3, 1):
                key = "k" if bench.can.keys else None
                claimed = await bench.running("mail", body, max_attempts=most, headers=headers, key=key, expires_in=2**40)
                for _ in range(most - 1):
                    assert await bench.end(claimed, "retry") == "scheduled"
                    [claimed] = await bench.claim("mail", limit=5)
                # When a retry gives it more, it keeps them
                assert await bench.end(claimed, "retry", error="no", trace=b"1", attempts=most + 3) == "scheduled"
                if bench.can.lookup:
                    stored = await bench.find(id=claimed.id)
                    assert (stored.attempt, stored.max_attempts, stored.last_error) == (most, most + 3, "no")
                [claimed] = await bench.claim("mail", limit=5)
                assert (claimed.attempt, claimed.max_attempts) == (most + 1, most + 3)
                assert (claimed.body, dict(claimed.headers), claimed.key) == (body, headers, key)
                # Then releases, the ends of leases and retries that do not tell count by them
                assert await bench.end(claimed, "release") == "scheduled"
                await bench.claim("mail", limit=5)
                bench.move(LEASE + 1_000)
                assert await bench.tend() == Tended(returned=1)
                [claimed] = await bench.claim("mail", limit=5)
                assert (claimed.attempt, claimed.max_attempts) == (most + 2, most + 3)
                assert await bench.end(claimed, "retry") == "scheduled"
                [claimed] = await bench.claim("mail", limit=5)
                assert await bench.end(claimed, "retry", error="last") == "dead"

    @needs("attempts")
    async def test_retry_may_give_a_message_fewer_attempts(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=9)
        assert await bench.end(claimed, "retry", attempts=2) == "scheduled"
        [claimed] = await bench.claim("mail", limit=5)
        assert (claimed.attempt, claimed.max_attempts) == (2, 2)
        assert await bench.end(claimed, "retry") == "dead"
        # One that has had them is buried as it was
        claimed = await bench.running("mail", max_attempts=9)
        assert await bench.end(claimed, "retry", attempts=1) == "dead"
        if bench.can.inspect:
            assert sorted(each.max_attempts for each in await bench.stored("mail", "dead")) == [2, 9]

    async def test_an_error_may_hold_any_character(self, bench: Bench) -> None:
        claimed = await bench.running("mail")
        assert await bench.end(claimed, "dead", error="cut \0 off\x1b\r\n € \U0001f600") == "dead"
        if bench.can.dead:
            [dead] = await bench.stored("mail", "dead")
            assert dead.last_error is not None
            assert dead.last_error.startswith("cut ")
            assert dead.last_error.endswith(" off\x1b\r\n € \U0001f600")

    async def test_release_gives_a_message_back_without_counting_the_attempt(self, bench: Bench) -> None:
        # Given a message that may be tried once
        claimed = await bench.running("mail", max_attempts=1)
        assert await bench.end(claimed, "release", delay=2_000) == "scheduled"
        bench.move(1_999)
        assert await bench.claim("mail", limit=5) == []
        bench.move(1)
        [again] = await bench.claim("mail", limit=5)
        assert (again.id, again.due, again.attempt) == (claimed.id, bench.now, claimed.attempt)
        # And without a delay at once, any number of times
        assert await bench.end(again, "release") == "scheduled"
        [again] = await bench.claim("mail", limit=5)
        assert again.attempt == claimed.attempt
        assert await bench.end(again, "done") == "done"

    async def test_release_without_a_delay_keeps_the_due_time(self, bench: Bench) -> None:
        # Given a message that was handed out while a younger one waits
        claimed = await bench.running("mail", b"older")
        bench.move(1_000)
        await bench.put("mail", b"younger")
        bench.move(1_000)
        # When it is released, it keeps its place in the order
        assert await bench.end(claimed, "release") == "scheduled"
        both = await bench.claim("mail", limit=1 if bench.can.inspect else 2)
        [again] = [each for each in both if each.body == b"older"]
        assert (again.id, again.due) == (claimed.id, claimed.due)

    async def test_a_message_set_aside_comes_back_before_it_expires(self, bench: Bench) -> None:
        lasting = await bench.running("mail", b"lasting")
        brief = await bench.running("news", b"brief", expires_in=8_000)
        bench.move(1_000)
        for each in (lasting, brief):
            assert await bench.end(each, "release", delay=60_000, aside=True) == "scheduled"
        bench.move(6_998)
        assert await bench.claim("mail", "news", limit=5) == []
        bench.move(1)
        [again] = await bench.claim("mail", "news", limit=5)
        assert (again.id, again.since, again.attempt) == (brief.id, brief.since, 1)
        # That was its last time
        assert await bench.end(again, "release", delay=60_000, aside=True) == "expired"
        bench.move(53_001)
        assert bodies(await bench.claim("mail", "news", limit=5)) == [b"lasting"]

    async def test_dead_buries_a_message_with_its_reason(self, bench: Bench) -> None:
        claimed = await bench.running("mail", b"body", max_attempts=5)
        assert await bench.end(claimed, "dead", error="no use") == "dead"
        if bench.can.dead:
            [dead] = await bench.stored("mail", "dead")
            assert (dead.id, dead.state, dead.body, dead.last_error) == (claimed.id, "dead", b"body", "no use")
            assert dead.lease_until is None
        bench.move(LEASE + 1_000)
        await bench.tend()
        assert await bench.claim("mail", limit=5) == []

    @needs("fencing")
    async def test_an_old_token_is_lost_and_changes_nothing(self, bench: Bench) -> None:
        # Given a receiver whose lease ended, and another that has the message now
        old = await bench.running("mail", max_attempts=5)
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        for verdict in VERDICTS:
            assert await bench.end(old, verdict, delay=60_000, error="late") == "lost"
        [new] = await bench.claim("mail", limit=5)
        assert new.id == old.id
        for verdict in VERDICTS:
            assert await bench.end(old, verdict, delay=60_000, error="late") == "lost"
        # Then only the new receiver can end it
        if bench.can.lookup:
            stored = await bench.find(id=new.id)
            assert (stored.state, stored.attempt, stored.last_error) == ("leased", new.attempt, None)
        assert await bench.end(new, "done") == "done"

    async def test_a_delivery_ends_once(self, bench: Bench) -> None:
        for first in VERDICTS:
            topic = f"mail-{first}"
            claimed = await bench.running(topic, max_attempts=5)
            await bench.end(claimed, first, delay=1_000, error="first")
            for second in VERDICTS:
                assert await bench.end(claimed, second, delay=60_000, error="second") == "lost"
            # Then the first end counts
            bench.move(1_000)
            assert len(await bench.claim(topic, limit=5)) == (first in ("retry", "release"))
        if bench.can.dead:
            assert [each.last_error for each in await bench.stored("mail-dead", "dead")] == ["first"]
        # And the same in one batch
        claimed = await bench.running("mail")
        twice = [ending(claimed, "done"), ending(claimed, "retry")]
        assert await bench.engine.settle(twice, now=bench.now) == ["done", "lost"]
        assert await bench.claim("mail", limit=5) == []

    async def test_each_end_is_answered_for_itself(self, bench: Bench) -> None:
        await bench.put_all(*(NewMessage("mail", name, expires_in=5_000) for name in (b"done", b"retry", b"dead", b"late")))
        claimed = {each.body: each for each in await bench.claim("mail", limit=5)}
        other = await bench.running("news")
        stranger = End("mail", claimed[b"done"].id, "no such token", "done")
        nobody = End("mail", "no such id", claimed[b"done"].token, "done")
        ends = [
            ending(claimed[b"dead"], "dead", error="no use"),
            stranger,
            ending(claimed[b"late"], "release", delay=60_000),
            ending(claimed[b"done"], "done"),
            nobody,
            ending(other, "done"),
            ending(claimed[b"retry"], "retry", delay=1_000),
        ]
        answers = await bench.engine.settle(ends, now=bench.now)
        assert answers == ["dead", "lost", "expired", "done", "lost", "done", "scheduled"]
        bench.move(1_000)
        [retried] = await bench.claim("mail", limit=5)
        assert retried.body == b"retry"
        assert await bench.engine.settle([nobody, ending(retried, "done"), stranger], now=bench.now) == ["lost", "done", "lost"]

    async def test_acks_of_what_is_none_of_its_own_are_lost(self, bench: Bench) -> None:
        claimed = await bench.running("mail")
        strangers = [
            End("mail", claimed.id, "no such token", "done"),
            End("mail", "no such id", claimed.token, "done"),
            End("mail", "no such id", "no such token", "done"),
        ]
        assert await bench.engine.settle(strangers, now=bench.now) == ["lost"] * 3
        ends = [*strangers, ending(claimed, "done"), *strangers]
        assert await bench.engine.settle(ends, now=bench.now) == [*["lost"] * 3, "done", *["lost"] * 3]

    async def test_a_late_end_counts_while_nobody_has_taken_the_lease_back(self, bench: Bench) -> None:
        late = await bench.running("mail", lease=1_000)
        later = await bench.running("news", lease=1_000, max_attempts=5)
        bench.move(60_000)
        assert await bench.end(late, "done") == "done"
        assert await bench.end(later, "retry", delay=1_000) == "scheduled"
        assert (await bench.tend()).returned == 0
        assert await bench.claim("mail", "news", limit=5) == []
        bench.move(1_000)
        assert [each.id for each in await bench.claim("mail", "news", limit=5)] == [later.id]

    async def test_a_message_that_would_come_back_after_its_expiry_ends(self, bench: Bench) -> None:
        for verdict in ("retry", "release"):
            # Given a message that came back in time, with the same expiry
            claimed = await bench.running("mail", expires_in=5_000, max_attempts=5)
            assert await bench.end(claimed, verdict, delay=3_000) == "scheduled"
            bench.move(3_000)
            [claimed] = await bench.claim("mail", limit=5)
            # Then the next time would be too late
            assert await bench.end(claimed, verdict, delay=3_000) == "expired"
            if bench.can.inspect:
                assert await bench.stored("mail") == []
            bench.move(3_000)
            assert await bench.claim("mail", limit=5) == []
        # And one whose lease ends too late does not come back either
        lost = await bench.running("mail", expires_in=5_000, max_attempts=5)
        bench.move(LEASE + 1_000)
        await bench.tend()
        assert await bench.claim("mail", limit=5) == []
        assert await bench.end(lost, "done") == "lost"


class Leases:
    @needs("extend")
    async def test_an_extended_lease_ends_later(self, bench: Bench) -> None:
        extended = await bench.running("mail", b"extended")
        left = await bench.running("mail", b"left")
        bench.move(LEASE - 2_000)
        assert await bench.extend(extended, LEASE)
        if bench.can.lookup:
            assert (await bench.find(id=extended.id)).lease_until == bench.now + LEASE
            assert (await bench.find(id=left.id)).lease_until == bench.now + 2_000
        # Then only the other lease ends at the old time
        bench.move(LEASE - 1_000)
        assert (await bench.tend()).returned == 1
        assert [each.id for each in await bench.claim("mail", limit=5, lease=60_000)] == [left.id]
        # And the extended one ends at the new time
        bench.move(2_000)
        assert (await bench.tend()).returned == 1
        assert [each.id for each in await bench.claim("mail", limit=5)] == [extended.id]
        # And a lease that is over can be extended as long as the message was not returned
        late = await bench.running("news")
        bench.move(LEASE + 1_000)
        assert await bench.extend(late, LEASE)
        await bench.tend()
        assert await bench.claim("news", limit=5) == []

    @needs("extend")
    async def test_deliveries_of_one_claim_are_extended_apart_and_together(self, bench: Bench) -> None:
        await bench.put_all(NewMessage("mail", b"a"), NewMessage("mail", b"b"))
        first, second = await bench.claim("mail", limit=2)
        holds = [Hold(each.topic, each.id, each.token) for each in (first, second)]
        # Given one that has a lease of its own, then both the same, and then the other a longer one
        assert await bench.engine.extend(holds[:1], LEASE + 1_000, now=bench.now) == [True]
        assert await bench.engine.extend(holds, 3 * LEASE, now=bench.now) == [True, True]
        assert await bench.engine.extend(holds[1:], 5 * LEASE, now=bench.now) == [True]
        # Then the last one counts for each
        bench.move(2 * LEASE)
        assert (await bench.tend()).returned == 0
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        assert [each.id for each in await bench.claim("mail", limit=2, lease=10 * LEASE)] == [first.id]
        bench.move(2 * LEASE)
        assert (await bench.tend()).returned == 1
        assert [each.id for each in await bench.claim("mail", limit=2)] == [second.id]

    @needs("extend", "fencing")
    async def test_an_old_token_extends_nothing(self, bench: Bench) -> None:
        # Given a receiver whose lease ended, and another that has the message now
        old = await bench.running("mail", max_attempts=5)
        bench.move(LEASE + 1_000)
        await bench.tend()
        assert not await bench.extend(old, 60_000)
        [new] = await bench.claim("mail", limit=5)
        ended = await bench.running("news")
        await bench.end(ended, "done")
        # Then only the new receiver can extend, and each item has its own answer
        holds = [Hold(each.topic, each.id, each.token) for each in (old, new, ended)]
        assert await bench.engine.extend(holds, 20_000, now=bench.now) == [False, True, False]
        assert await bench.engine.extend(holds[:1], 90_000, now=bench.now) == [False]
        # And its lease ends when the extension says
        bench.move(19_000)
        assert (await bench.tend()).returned == 0
        bench.move(2_000)
        assert (await bench.tend()).returned == 1

"""A server's clock that was ahead and is set right: instants wait for it, and delays go on by engine time."""

from bide.engines.base import Ref
from bide.testing.contract.bench import Bench, bodies, counts, needs
from bide.types import CancelResult, RescheduleResult

HOUR = 3_600_000  # ms
SOON = 600_000
AGAIN = 60_000  # by engine time, an engine looks again so soon whether the clock has reached an instant


SEEN = 8  # sends, by turns to all parts of an engine that has several: each has a time of its own


async def was_ahead(bench: Bench) -> int:
    """The clock was an hour ahead, and the engine has seen that. Gives engine time, which stays there."""
    bench.move(HOUR)
    for _ in range(SEEN):
        await bench.put("other", b"seen")
    ahead = bench.now
    bench.move(-HOUR)
    return ahead


class Clocks:
    @needs("instants")
    async def test_an_instant_is_never_handed_out_before_the_clock_has_reached_it(self, bench: Bench) -> None:
        # Given messages for an instant, sent before and after the clock was an hour ahead
        at = bench.now + SOON
        before = await bench.put("mail", b"before", at=at)
        ahead = await was_ahead(bench)
        after = await bench.put("mail", b"after", at=at + 1)
        assert (before.due, after.due) == (at, at + 1)
        # Then no claim hands them out, or asks to be made again at once
        for now in (bench.now, at - 1):
            bench.now = now
            claim = await bench.look("mail", limit=5)
            assert (bodies(claim.messages), claim.now) == ([], ahead)
            assert claim.next_due is not None
            assert claim.next_due > claim.now
        # And they come when the clock has reached them
        bench.now = ahead + AGAIN
        assert sorted(bodies(await bench.claim("mail", limit=5))) == [b"after", b"before"]

    @needs("instants")
    async def test_a_delay_counts_on_engine_time(self, bench: Bench) -> None:
        # Given a message with a delay, and many for an instant that would come first
        for number in range(20):
            await bench.put("mail", b"later", at=bench.now + SOON + number)
        await bench.put("mail", b"delayed", delay=2 * SOON)
        # When the clock was an hour ahead and is set right
        ahead = await was_ahead(bench)
        # Then engine time has passed the delay, and what waits for the clock holds nothing up
        assert bodies(await bench.claim("mail")) == [b"delayed"]
        # And a new delay ends by engine time
        sent = await bench.put("news", delay=1_000)
        assert sent.due == ahead + 1_000

    @needs("instants", "cancel")
    async def test_the_last_time_that_a_message_was_given_says_which_time_it_waits_for(self, bench: Bench) -> None:
        # Given messages that are given other times
        at = bench.now + SOON
        moved = await bench.put("mail", b"instant now", delay=1)
        assert await bench.reschedule(moved.id, at=at) is RescheduleResult.MOVED
        other = await bench.put("mail", b"delayed now", at=at)
        assert await bench.reschedule(other.id, delay=SOON) is RescheduleResult.MOVED
        # When the clock was ahead and is set right
        ahead = await was_ahead(bench)
        # Then the one that has a delay comes first
        [claimed] = await bench.claim("mail", limit=5)
        assert claimed.body == b"delayed now"
        # And so does one that is tried again
        assert await bench.end(claimed, "retry", delay=0, error="no") == "scheduled"
        [claimed] = await bench.claim("mail", limit=5)
        assert (claimed.body, claimed.attempt) == (b"delayed now", 2)
        bench.now = ahead + AGAIN
        assert bodies(await bench.claim("mail", limit=5)) == [b"instant now"]

    @needs("instants", "inspect")
    async def test_an_instant_stays_one_when_its_lease_ends(self, bench: Bench) -> None:
        # Given a message for an instant that was handed out by a clock that was ahead
        at = bench.now + SOON
        await bench.put("mail", b"x", at=at)
        bench.move(HOUR)
        assert len(await bench.claim("mail", lease=1_000)) == 1
        bench.move(1_000)
        assert (await bench.tend()).returned == 1
        # When the clock is set right, it waits again
        ahead = bench.now
        bench.now = at - 1
        assert await bench.claim("mail") == []
        bench.now = ahead + AGAIN
        assert [each.attempt for each in await bench.claim("mail")] == [2]

    @needs("instants")
    async def test_an_instant_does_not_expire_while_the_clock_is_behind_it(self, bench: Bench) -> None:
        # Given a message for an instant that is sent while engine time is ahead
        ahead = await was_ahead(bench)
        await bench.put("mail", b"x", at=bench.now + SOON, expires_in=AGAIN)
        # Then its life begins when engine time comes to the instant
        assert await bench.claim("mail") == []
        assert (await bench.tend()).expired == 0
        bench.now = ahead + AGAIN
        assert bodies(await bench.claim("mail")) == [b"x"]

    @needs("instants", "inspect", "lookup", "cancel")
    async def test_what_waits_for_the_clock_is_scheduled(self, bench: Bench) -> None:
        # Given a message for an instant that is held back
        at = bench.now + SOON
        sent = await bench.put("mail", b"x", at=at)
        await was_ahead(bench)
        assert await bench.claim("mail") == []
        # Then it is told as scheduled for that instant
        found = await bench.find(id=sent.id)
        assert (found.state, found.due) == ("scheduled", at)
        assert counts(await bench.engine.stats("mail", now=bench.now)) == (1, 0, 0, 0)
        assert [each.id for each in await bench.stored("mail", "scheduled")] == [sent.id]
        # And can be moved and cancelled
        assert await bench.reschedule(sent.id, at=at + 1) is RescheduleResult.MOVED
        assert await bench.claim("mail") == []
        [result] = await bench.engine.cancel([Ref(id=sent.id)], now=bench.now)
        assert result is CancelResult.CANCELLED

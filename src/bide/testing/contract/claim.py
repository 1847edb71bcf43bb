"""Claims: each due message goes to one receiver, in due order, who is told when to claim again."""

import asyncio
from collections.abc import Awaitable

from bide.engines.base import Claim, Claimed, NewMessage, Verdict
from bide.testing.contract.bench import LEASE, Bench, bodies, needs

COMES_BACK: tuple[tuple[Verdict, int], ...] = (("retry", 2_000), ("release", 5_000), ("release", 0), ("retry", 0))


def _id(message: Claimed) -> str:
    return message.id


class Claiming:
    async def test_a_message_is_never_handed_out_early(self, bench: Bench) -> None:
        delays = [4_000, 1_000, 3_000, 2_000]
        await bench.put_all(*(NewMessage("mail", b"%d" % delay, delay=delay) for delay in delays))
        for due in sorted(delays):
            bench.move(999)
            assert await bench.claim("mail", limit=5) == []
            bench.move(1)
            assert bodies(await bench.claim("mail", limit=5)) == [b"%d" % due]

    async def test_a_due_message_is_handed_out_to_one_holder_at_a_time(self, bench: Bench) -> None:
        # Given many receivers that claim at once, through two engines
        sent = await bench.put_all(*(NewMessage("mail", b"x") for _ in range(40)))
        other = await bench.another()
        claims = await asyncio.gather(*(each.claim("mail", limit=7) for each in (bench, other) * 4))
        rest = await bench.claim("mail", limit=100)
        # Then each message went to one receiver
        claimed = [message.id for claim in (*claims, rest) for message in claim]
        assert sorted(claimed) == sorted(each.id for each in sent)
        # And to no other while the lease lasts
        bench.move(LEASE - 1_000)
        await bench.tend()
        assert await bench.claim("mail", limit=100) == []

    async def test_a_claim_takes_no_more_than_its_limit(self, bench: Bench) -> None:
        await bench.put_all(*(NewMessage(topic, b"x") for topic in ("mail", "news", "mail", "news", "mail")))
        counts = [len(await bench.claim("mail", "news", limit=limit)) for limit in (1, 3, 3, 3)]
        assert counts == [1, 3, 1, 0]

    @needs("attempts")
    async def test_attempts_count_from_one(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=4)
        assert (claimed.attempt, claimed.max_attempts) == (1, 4)
        for attempt in (2, 3, 4):
            await bench.end(claimed, "retry", delay=1_000)
            bench.move(1_000)
            [claimed] = await bench.claim("mail", limit=5)
            assert (claimed.attempt, claimed.max_attempts) == (attempt, 4)

    async def test_since_tells_when_a_message_first_fell_due(self, bench: Bench) -> None:
        sent = await bench.put("mail", delay=1_000, key="k" if bench.can.keys else None, max_attempts=9)

        async def claimed() -> Claimed:
            """Claimed twice, as after a lost answer."""
            request = f"at {bench.now}"
            first, again = [
                await bench.engine.claim(topics, 5, LEASE, request=request, now=bench.now) for topics in (["mail"], [])
            ]
            [message] = first.messages
            assert list(again.messages) == [message]
            return message

        # Given a message that is delivered again and again: after retry, release, and the end of a lease
        bench.move(3_000)
        message = await claimed()
        assert (message.due, message.since) == (sent.due, sent.due)
        for verdict, delay in COMES_BACK:
            await bench.end(message, verdict, delay=delay)
            bench.move(delay + 1_000)
            message = await claimed()
            assert (message.id, message.since) == (sent.id, sent.due)
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        message = await claimed()
        assert message.since == sent.due < message.due
        # Then only a call that gives it a new time resets it
        if bench.can.cancel:
            await bench.end(message, "retry", delay=2_000)
            assert await bench.reschedule(sent.id, delay=1_000)
            bench.move(4_000)
            message = await claimed()
            assert message.since == message.due == bench.now - 3_000
        for how in ("replace", "later") if bench.can.keys else ():
            await bench.end(message, "release", delay=2_000)
            again = await bench.put("mail", delay=1_000, key="k", if_exists=how, max_attempts=9)
            bench.move(4_000)
            message = await claimed()
            assert (message.id, message.since, message.due) == (sent.id, again.due, again.due)
        if bench.can.dead:
            await bench.end(message, "retry", delay=2_000)
            bench.move(2_000)
            await bench.end(await claimed(), "dead")
            assert (await bench.engine.requeue("mail", delay=1_000, now=bench.now)).count == 1
            bench.move(4_000)
            message = await claimed()
            assert message.since == message.due == bench.now - 3_000

    @needs("fencing")
    async def test_tokens_rise_as_text_with_each_delivery_of_a_message(self, bench: Bench) -> None:
        tokens = []
        await bench.put("mail", max_attempts=100)
        for turn in range(24):  # enough for a number to grow by a digit
            [claimed] = await bench.claim("mail", limit=5)
            tokens.append(claimed.token)
            if turn % 3 == 0:
                await bench.end(claimed, "retry")
            elif turn % 3 == 1:
                await bench.end(claimed, "release")
            else:
                bench.move(LEASE + 1_000)
                assert (await bench.tend()).returned == 1
        assert tokens == sorted(set(tokens))

    async def test_the_same_request_gives_the_same_deliveries(self, bench: Bench) -> None:
        await bench.put_all(*(NewMessage("mail", b"%d" % n) for n in range(4)))
        first = await bench.engine.claim(["mail"], 2, LEASE, request="a", now=bench.now)
        assert len(first.messages) == 2
        # When the answer was lost, the same request gets it again
        again = await bench.engine.claim(["mail"], 2, LEASE, request="a", now=bench.now)
        assert list(again.messages) == list(first.messages)
        # And another request gets other messages
        other = await bench.engine.claim(["mail"], 2, LEASE, request="b", now=bench.now)
        assert sorted(bodies([*first.messages, *other.messages])) == [b"0", b"1", b"2", b"3"]
        assert [await bench.end(each, "done") for each in again.messages] == ["done", "done"]

    async def test_a_claim_of_no_topics_gives_only_what_its_request_still_holds(self, bench: Bench) -> None:
        def held(request: str | None) -> Awaitable[Claim]:
            return bench.engine.claim([], 1, LEASE, request=request, now=bench.now)

        async def gives_nothing(request: str | None) -> bool:
            claim = await held(request)
            return (list(claim.messages), claim.now, claim.next_due) == ([], bench.now, None)

        # Given a request that holds more than one message, and messages that are not claimed
        await bench.put_all(*(NewMessage("mail", b"%d" % n, max_attempts=9) for n in range(6)))
        claim = await bench.engine.claim(["mail"], 4, LEASE, request="a", now=bench.now)
        ended, extended, lost, released = claim.messages
        assert await gives_nothing(None)
        assert await gives_nothing("b")
        # Then another engine gets all that it holds, with their tokens, whatever the limit
        other = await bench.another()
        again = await other.engine.claim([], 1, LEASE, request="a", now=bench.now)
        assert sorted(again.messages, key=_id) == sorted(claim.messages, key=_id)
        assert again.next_due is None
        # And only those that it still holds
        assert await bench.end(ended, "done") == "done"
        assert await bench.end(released, "release") == "scheduled"
        assert sorted((await held("a")).messages, key=_id) == sorted([extended, lost], key=_id)
        if bench.can.extend:
            bench.move(LEASE - 1_000)
            assert await bench.extend(extended, LEASE)
            bench.move(2_000)
            assert (await bench.tend()).returned == 1
            assert list((await held("a")).messages) == [extended]
        bench.move(LEASE + 1_000)
        await bench.tend()
        assert await gives_nothing("a")
        # And nothing was claimed
        assert len(await bench.claim("mail", limit=9)) == 5

    @needs("inspect")
    async def test_a_claim_tells_when_to_come_back(self, bench: Bench) -> None:
        nothing = await bench.look("mail")
        assert (nothing.now, nothing.next_due) == (bench.now, None)
        start = bench.now
        for topic, delay in (("mail", 5_000), ("mail", 3_000), ("news", 1_000), ("bills", 4_000)):
            await bench.put(topic, delay=delay)
        assert (await bench.look("mail")).next_due == start + 3_000
        assert (await bench.look("mail", "news", "bills")).next_due == start + 1_000
        # Then the due time of a due message is not a time to claim again
        bench.move(3_000)
        claim = await bench.look("mail", "bills", limit=5)
        assert (len(claim.messages), claim.now, claim.next_due) == (1, bench.now, start + 4_000)
        assert (await bench.look("mail", limit=5)).next_due == start + 5_000
        assert (await bench.look("news", limit=5)).next_due is None


class Order:
    """No topic and no priority starves."""

    @needs("inspect")
    async def test_what_is_due_first_comes_first(self, bench: Bench) -> None:
        await bench.put("mail", b"3", delay=3_000)
        await bench.put("mail", b"1", delay=1_000)
        await bench.put("mail", b"4", at=bench.now + 4_000)
        await bench.put("mail", b"2", delay=2_000)
        bench.move(4_000)
        assert bodies(await bench.claim("mail", limit=2)) == [b"1", b"2"]
        assert bodies(await bench.claim("mail")) == [b"3"]
        assert bodies(await bench.claim("mail")) == [b"4"]

    @needs("ordered")
    async def test_what_was_sent_first_comes_first_among_equals(self, bench: Bench) -> None:
        for n in range(12):
            await bench.put("mail", b"%02d" % n, at=bench.now + 5_000)
        await bench.put_all(*(NewMessage("mail", b"%02d" % n, delay=5_000) for n in range(12, 24)))
        bench.move(5_000)
        claimed = await bench.claim("mail", limit=7)
        claimed += [message for _ in range(10) for message in await bench.claim("mail")]
        claimed += await bench.claim("mail", limit=20)
        assert bodies(claimed) == [b"%02d" % n for n in range(24)]

    @needs("priority")
    async def test_higher_priority_comes_first(self, bench: Bench) -> None:
        for higher, lower in ((0, 1), (0, 2), (1, 2)):
            topic = f"{higher}-{lower}"
            for level in (lower, higher):
                await bench.put_all(*(NewMessage(topic, b"%d" % level, level=level) for _ in range(20)))
            # Then it gets nearly all of the limit, in one claim as in many
            together = await bench.claim(topic, limit=8)
            one_by_one = [message for _ in range(8) for message in await bench.claim(topic)]
            assert bodies(together).count(b"%d" % higher) >= 6
            assert bodies(one_by_one).count(b"%d" % higher) >= 6
        # And within a level, what is due first comes first
        await bench.put("mail", b"second", level=0, delay=2_000)
        await bench.put("mail", b"first", level=0, delay=1_000)
        bench.move(2_000)
        assert bodies(await bench.claim("mail", limit=2)) == [b"first", b"second"]

    @needs("priority")
    async def test_low_priority_is_not_starved(self, bench: Bench) -> None:
        await bench.put_all(*(NewMessage("mail", b"low", level=2) for _ in range(9)))
        bench.move(1_000)
        await bench.put_all(*(NewMessage("mail", b"high", level=0) for _ in range(100)))
        claimed = [message for _ in range(32) for message in await bench.claim("mail")]
        assert len(claimed) == 32
        assert bodies(claimed).count(b"low") >= 3  # the oldest of all has every eighth turn

    async def test_no_topic_starves_another(self, bench: Bench) -> None:
        # Given a topic with many older messages, of high priority if the engine has priorities
        urgent = 0 if bench.can.priority else 1
        await bench.put_all(*(NewMessage("busy", b"x", level=urgent) for _ in range(100)))
        bench.move(1_000)
        for topics in (["busy", "quiet"], ["calm", "busy", "quiet"], ["quiet", "idle", "calm", "busy"]):
            for quiet in topics:
                if quiet not in ("busy", "idle"):
                    await bench.put(quiet)
            # Then a claim with a limit of one per topic hands out one message of each topic, and is filled up
            claimed = await bench.claim(*topics, limit=len(topics))
            assert {each.topic for each in claimed} == set(topics) - {"idle"}
            assert len(claimed) == len(topics)

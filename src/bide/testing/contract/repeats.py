"""Sends that are repeated: how long they may put a message off, and for how long a key is sent once."""

from typing import Any

from bide.engines.base import NewMessage
from bide.testing.contract.bench import Bench, bodies, needs


class Debounce:
    @needs("keys")
    async def test_later_moves_a_message_no_further_than_its_longest_wait(self, bench: Bench) -> None:
        how: dict[str, Any] = {"key": "k", "if_exists": "later", "max_wait": 25_000}
        start = bench.now
        for body in (b"first", b"L" * 3_000):  # a large body may be kept elsewhere
            first = await bench.put("mail", body, delay=10_000, headers={"a": "1"}, **how)
            assert (first.due, first.outcome) == (bench.now + 10_000, "created")
            # Each send moves it, and the last ones only as far as the bound
            for expected in (18_000, 25_000, 25_000):
                bench.move(8_000)
                sent = await bench.put("mail", body, delay=10_000, headers={"a": "2"}, **how)
                assert (sent.id, sent.due, sent.outcome) == (first.id, start + expected, "postponed")
            bench.move(1_000)
            # Its first header tells when the first was sent
            [claimed] = await bench.claim("mail", limit=5)
            assert (claimed.id, claimed.body, claimed.due) == (first.id, body, start + 25_000)
            assert claimed.headers == {"bide-first": str(start), "a": "2"}
            # And the next one has a time of its own
            await bench.end(claimed, "done")
            bench.move(1_000)
            start = bench.now

    @needs("keys")
    async def test_a_longest_wait_never_makes_a_message_due_sooner(self, bench: Bench) -> None:
        how: dict[str, Any] = {"key": "k", "if_exists": "later"}
        # Given a message that was sent without one, and is due after it
        first = await bench.put("mail", delay=60_000, **how)
        sent = await bench.put("mail", delay=10_000, max_wait=20_000, **how)
        assert (sent.id, sent.due) == (first.id, first.due)
        # And it counts from the first send that has one
        bench.move(10_000)
        sent = await bench.put("mail", delay=55_000, max_wait=58_000, **how)
        assert sent.due == bench.now - 10_000 + 60_000
        # Then an instant is bounded, too
        at = await bench.put("news", at=bench.now + 90_000, max_wait=20_000, **how)
        assert at.due == bench.now + 20_000

    @needs("keys", "attempts")
    async def test_a_delivery_ends_a_longest_wait(self, bench: Bench) -> None:
        how: dict[str, Any] = {"key": "k", "if_exists": "later", "max_wait": 25_000}
        claimed = await bench.running("mail", **how)
        # Given a message that waits for its next attempt
        assert await bench.end(claimed, "retry", delay=5_000) == "scheduled"
        bench.move(2_000)
        sent = await bench.put("mail", delay=10_000, **how)
        assert (sent.id, sent.due, sent.outcome) == (claimed.id, bench.now + 10_000, "postponed")
        bench.move(10_000)
        [again] = await bench.claim("mail", limit=5)
        # Then one that is sent while it runs is a successor, from now on
        successor = await bench.put("mail", delay=20_000, **how)
        assert (successor.due, successor.outcome) == (bench.now + 20_000, "created")
        bench.move(10_000)
        assert (await bench.put("mail", delay=20_000, **how)).due == successor.due + 5_000
        assert await bench.end(again, "done") in ("done", "lost")


class Periods:
    @needs("keys")
    async def test_a_key_is_sent_once_in_its_time_whatever_becomes_of_the_message(self, bench: Bench) -> None:
        only: dict[str, Any] = {"key": "k", "unique_for": 60_000}
        for topic, ended in (("pending", ""), ("done", "done"), ("dead", "dead"), ("cancelled", "cancelled")):
            first = await bench.put(topic, b"first", delay=1_000, **only)
            assert first.outcome == "created"
            bench.move(1_000)
            if ended == "cancelled" and bench.can.cancel:
                assert await bench.cancel(id=first.id)
            elif ended in ("done", "dead"):
                [claimed] = await bench.claim(topic)
                assert await bench.end(claimed, "done" if ended == "done" else "dead") == ended
            # Then others are told of it
            for how, outcome in (("keep", "duplicate"), ("error", "exists")):
                sent = await bench.put(topic, b"other", if_exists=how, **{**only, "unique_for": 1})
                assert (sent.id, sent.due, sent.outcome) == (first.id, first.due, outcome)
            if topic != "pending":
                assert await bench.claim(topic, limit=5) == []
            # And who does not ask for it sends as ever
            plain = await bench.put(topic, b"plain", key="k")
            assert plain.outcome == ("kept" if topic == "pending" else "created")

    @needs("keys")
    async def test_a_key_may_be_sent_again_when_its_time_is_over(self, bench: Bench) -> None:
        only: dict[str, Any] = {"key": "k", "unique_for": 60_000}
        for _ in range(2):
            [claimed] = [await bench.running("mail", **only)]
            await bench.end(claimed, "done")
            bench.move(59_999)
            assert (await bench.put("mail", **only)).outcome == "duplicate"
            bench.move(1)
        # A key is one of its topic, and one that differs in a letter is another one
        assert (await bench.put("news", **only)).created
        assert (await bench.put("mail", **{**only, "key": "K"})).created

    @needs("keys")
    async def test_a_time_begins_with_a_message_that_is_accepted(self, bench: Bench) -> None:
        # Given a message that holds the key, and was not sent for a time
        held = await bench.put("mail", key="k")
        kept = await bench.put("mail", key="k", unique_for=60_000)
        assert (kept.id, kept.outcome) == (held.id, "kept")
        assert (await bench.put("mail", key="k", unique_for=60_000, if_exists="error")).outcome == "exists"
        [claimed] = await bench.claim("mail")
        await bench.end(claimed, "done")
        assert (await bench.put("mail", key="k", unique_for=60_000)).created

    @needs("keys", "idempotent")
    async def test_a_batch_and_a_repeated_operation_count_once(self, bench: Bench) -> None:
        batch = [NewMessage("mail", bytes([n]), key="k", unique_for=60_000, operation=f"o{n}") for n in range(3)]
        sent = await bench.put_all(*batch)
        assert [each.outcome for each in sent] == ["created", "duplicate", "duplicate"]
        assert len({each.id for each in sent}) == 1
        assert await bench.put_all(*batch) == sent
        assert bodies(await bench.claim("mail", limit=5)) == [b"\0"]

    @needs("keys")
    async def test_times_that_are_over_are_forgotten(self, bench: Bench) -> None:
        await bench.put_all(*(NewMessage("mail", key=f"k{n}", body=b"x", unique_for=1_000 + n) for n in range(500)))
        bench.move(2_000)
        await bench.tend()
        sent = await bench.put_all(*(NewMessage("mail", key=f"k{n}", body=b"x", unique_for=1_000) for n in range(500)))
        assert {each.outcome for each in sent} == {"kept"}

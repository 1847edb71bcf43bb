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
        shorter = how | {"max_wait": 11_000}
        claimed = await bench.running("mail", **shorter)
        # Given a message that waits for its next attempt
        assert await bench.end(claimed, "retry", delay=5_000) == "scheduled"
        bench.move(2_000)
        sent = await bench.put("mail", delay=10_000, **shorter)  # a second later than the longest wait that began before
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


class Merge:
    @needs("keys")
    async def test_merge_gathers_bodies_in_the_first_message(self, bench: Bench) -> None:
        how: dict[str, Any] = {"key": "k", "if_exists": "merge"}
        first = await bench.put("mail", b"[1]", delay=10_000, headers={"a": "1"}, expires_in=60_000, **how)
        assert first.outcome == "created"
        for body in (b'["two"]', b"[[3]]", b'[{"four":"]"}]'):
            bench.move(1_000)
            sent = await bench.put("mail", body, delay=30_000, headers={"b": "2"}, max_attempts=9, level=0, **how)
            assert (sent.id, sent.due, sent.outcome) == (first.id, first.due, "merged")
        # All else is as it was sent first
        bench.move(7_000)
        [claimed] = await bench.claim("mail", limit=5)
        assert (claimed.id, claimed.body) == (first.id, b'[1,"two",[3],{"four":"]"}]')
        assert (claimed.due, claimed.max_attempts, claimed.headers, claimed.key) == (first.due, 3, {"a": "1"}, "k")
        # Then a running message is left as it is, and a successor begins
        after = await bench.put("mail", b"[5]", delay=1_000, **how)
        assert (after.outcome, after.due) == ("created", bench.now + 1_000)
        assert (await bench.put("mail", b"[6]", **how)).id == after.id
        assert await bench.end(claimed, "done") == "done"
        bench.move(1_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"[5,6]"]

    @needs("keys")
    async def test_a_body_grows_to_any_size_up_to_its_largest(self, bench: Bench) -> None:
        how: dict[str, Any] = {"key": "k", "if_exists": "merge", "delay": 5_000, "headers": {"ü": "1"}}
        items = [b'["' + bytes([97 + n]) * 300 + b'"]' for n in range(9)]
        for topic, most in (("mail", 100_000), ("news", 1_000)):
            sent = [await bench.put(topic, item, largest=most, **how) for item in items]
            created = [each.id for each in sent if each.created]
            assert len(created) == (1 if topic == "mail" else 3)
            # What is full is delivered as it is, without its key
            bench.move(5_000)
            found = await bench.claim(topic, limit=9)
            assert {each.id for each in found} == set(created)
            assert [each.key for each in found] == [None] * (len(found) - 1) + ["k"]
            assert b",".join(each.body[1:-1] for each in found) == b",".join(item[1:-1] for item in items)
            assert all(each.body.startswith(b"[") and len(each.body) <= most for each in found)
            assert {each.headers["ü"] for each in found} == {"1"}

    @needs("keys")
    async def test_only_a_list_can_be_merged_into(self, bench: Bench) -> None:
        for topic, body, outcome, after in (
            ("text", b'"[1]"', "exists", b'"[1]"'), ("none", b"", "exists", b""), ("space", b"[1 ]", "exists", b"[1 ]"),
            ("half", b"[", "exists", b"["), ("list", b"[1]", "merged", b"[1,2]"), ("empty", b"[]", "merged", b"[2]"),
        ):  # fmt: skip
            first = await bench.put(topic, body, delay=1_000, key="k")
            sent = await bench.put(topic, b"[2]", key="k", if_exists="merge")
            assert (sent.id, sent.due, sent.outcome) == (first.id, first.due, outcome)
            bench.move(1_000)
            assert bodies(await bench.claim(topic, limit=5)) == [after]

    @needs("keys", "attempts")
    async def test_what_was_delivered_is_not_changed(self, bench: Bench) -> None:
        how: dict[str, Any] = {"key": "k", "if_exists": "merge"}
        claimed = await bench.running("mail", b"[1]", **how)
        assert await bench.end(claimed, "retry", delay=5_000, error="oops") == "scheduled"
        after = await bench.put("mail", b"[2]", delay=9_000, **how)
        assert (after.outcome, after.due) == ("created", bench.now + 9_000)
        assert (await bench.put("mail", b"[3]", **how)).id == after.id
        # Then each comes at its time, and the first one without the key
        bench.move(5_000)
        [again] = await bench.claim("mail", limit=5)
        assert (again.id, again.body, again.key, again.attempt) == (claimed.id, b"[1]", None, 2)
        assert await bench.end(again, "done") == "done"
        # One that was given back was not delivered for good
        bench.move(4_000)
        [second] = await bench.claim("mail", limit=5)
        assert await bench.end(second, "release", delay=1_000) == "scheduled"
        assert (await bench.put("mail", b"[4]", **how)).outcome == "merged"
        bench.move(1_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"[2,3,4]"]

    @needs("keys", "idempotent")
    async def test_a_batch_and_a_repeated_operation_gather_once(self, bench: Bench) -> None:
        batch = [NewMessage("mail", b"[%d]" % n, key="k", if_exists="merge", operation=f"o{n}") for n in range(3)]
        sent = await bench.put_all(*batch)
        assert [each.outcome for each in sent] == ["created", "merged", "merged"]
        assert await bench.put_all(*batch) == sent
        assert bodies(await bench.claim("mail", limit=5)) == [b"[0,1,2]"]

"""Keys: one message a key, and the successor of a running message, which takes its key."""

from bide.engines.base import NewMessage
from bide.testing.contract.bench import Bench, bodies, needs
from bide.types import CancelResult


class Keys:
    @needs("keys")
    async def test_keep_answers_with_the_message_that_holds_the_key(self, bench: Bench) -> None:
        first = await bench.put("mail", b"first", delay=5_000, key="k")
        kept = await bench.put("mail", b"second", delay=1_000, key="k")
        assert (kept.id, kept.due, kept.outcome) == (first.id, first.due, "kept")
        # Then there is only the first, also when it is due
        bench.move(5_000)
        assert (await bench.put("mail", b"third", key="k", if_exists="keep")).id == first.id
        assert bodies(await bench.claim("mail", limit=5)) == [b"first"]

    @needs("keys")
    async def test_error_answers_with_the_message_that_holds_the_key(self, bench: Bench) -> None:
        first = await bench.put("mail", b"first", delay=5_000, key="k", if_exists="error")
        assert first.outcome == "created"
        exists = await bench.put("mail", b"second", delay=1_000, key="k", if_exists="error")
        assert (exists.id, exists.due, exists.outcome) == (first.id, first.due, "exists")
        bench.move(5_000)
        assert (await bench.put("mail", b"third", key="k", if_exists="error")).outcome == "exists"
        assert bodies(await bench.claim("mail", limit=5)) == [b"first"]

    @needs("keys")
    async def test_replace_gives_a_pending_message_a_new_body_and_time(self, bench: Bench) -> None:
        # Given a message that is replaced by one with a later time, which is replaced by one with an earlier time
        first = await bench.put("mail", b"first", delay=5_000, key="k", headers={"a": "1"})
        second = await bench.put("mail", b"second", delay=20_000, key="k", if_exists="replace", headers={"b": "2"})
        assert (second.id, second.due, second.outcome) == (first.id, bench.now + 20_000, "replaced")
        bench.move(5_000)
        assert await bench.claim("mail", limit=5) == []
        third = await bench.put(
            "mail", b"third", delay=2_000, key="k", if_exists="replace", headers={"c": "3"}, max_attempts=7, expires_in=4_000
        )
        assert (third.id, third.due, third.outcome) == (first.id, bench.now + 2_000, "replaced")
        if bench.can.lookup:
            assert (await bench.find(id=first.id)).expires == third.due + 4_000
        if bench.can.lookup and bench.can.priority:
            await bench.put("news", b"normal", key="k", delay=5_000)
            high = await bench.put("news", b"high", key="k", delay=5_000, level=0, if_exists="replace")
            assert (await bench.find(id=high.id)).level == 0
        # Then there is only the last
        bench.move(2_000)
        [claimed] = await bench.claim("mail", limit=5)
        assert (claimed.id, claimed.body, claimed.headers, claimed.key) == (first.id, b"third", {"c": "3"}, "k")
        assert (claimed.due, claimed.max_attempts) == (third.due, 7)
        bench.move(20_000)
        assert await bench.claim("mail", limit=5) == []

    @needs("keys")
    async def test_later_gives_a_pending_message_the_new_body_and_the_later_time(self, bench: Bench) -> None:
        first = await bench.put("mail", b"first", delay=10_000, key="k", expires_in=1_000)
        # When the new time is earlier, the old time stays
        second = await bench.put("mail", b"second", delay=2_000, key="k", if_exists="later", headers={"b": "2"})
        assert (second.id, second.due, second.outcome) == (first.id, first.due, "postponed")
        # And when it is later, the new time counts
        third = await bench.put("mail", b"third", delay=15_000, key="k", if_exists="later", headers={"c": "3"})
        assert (third.id, third.due, third.outcome) == (first.id, bench.now + 15_000, "postponed")
        bench.move(14_000)
        assert await bench.claim("mail", limit=5) == []
        bench.move(2_000)
        [claimed] = await bench.claim("mail", limit=5)
        assert (claimed.id, claimed.body, claimed.headers, claimed.due) == (first.id, b"third", {"c": "3"}, third.due)

    @needs("keys", "attempts")
    async def test_replacing_starts_the_attempts_again(self, bench: Bench) -> None:
        for topic, how in (("mail", "replace"), ("news", "later")):
            # Given a message that failed once
            claimed = await bench.running(topic, b"old", key="k", max_attempts=2)
            assert await bench.end(claimed, "retry", delay=5_000, error="oops") == "scheduled"
            sent = await bench.put(topic, b"new", key="k", if_exists=how, max_attempts=2)
            assert sent.id == claimed.id
            if bench.can.lookup:
                stored = await bench.find(id=sent.id)
                assert (stored.attempt, stored.last_error) == (0, None)
            # Then it may fail once more
            bench.move(5_000)
            [again] = await bench.claim(topic, limit=5)
            assert (again.body, again.attempt) == (b"new", 1)
            assert await bench.end(again, "retry", delay=60_000) == "scheduled"

    @needs("keys")
    async def test_a_key_is_free_when_its_message_has_ended(self, bench: Bench) -> None:
        done = await bench.running("mail", key="done")
        await bench.end(done, "done")
        dead = await bench.bury("mail", key="dead")
        ended = {"expired": (await bench.put("mail", key="expired", expires_in=1_000)).id, "done": done.id, "dead": dead.id}
        if bench.can.cancel:
            ended["cancelled"] = (await bench.put("mail", delay=9_000, key="cancelled")).id
            assert await bench.cancel(id=ended["cancelled"])
        if bench.can.inspect:
            ended["purged"] = (await bench.put("mail", delay=9_000, key="purged")).id
            await bench.engine.purge("mail", "scheduled", now=bench.now)
        bench.move(1_000)
        for key, old in ended.items():
            sent = await bench.put("mail", key.encode(), key=key)
            assert sent.outcome == "created"
            assert sent.id != old
            # And from then on the key belongs to the new message
            assert (await bench.put("mail", b"more", key=key)).id == sent.id
        assert bodies(await bench.claim("mail", limit=10)) == [key.encode() for key in ended]

    @needs("keys")
    async def test_a_key_belongs_to_its_topic(self, bench: Bench) -> None:
        mail = await bench.put("mail", b"mail", key="k")
        news = await bench.put("news", b"news", key="k", if_exists="replace")
        assert (mail.outcome, news.outcome) == ("created", "created")
        assert (await bench.put("news", b"other news", key="k", if_exists="replace")).id == news.id
        if bench.can.cancel:
            assert await bench.cancel(topic="bills", key="k") is CancelResult.GONE
        assert bodies(await bench.claim("mail", limit=5)) == [b"mail"]
        assert bodies(await bench.claim("news", limit=5)) == [b"other news"]

    @needs("keys")
    async def test_messages_of_one_batch_may_share_a_key(self, bench: Bench) -> None:
        first, kept, replaced, other = await bench.put_all(
            NewMessage("mail", b"first", key="k", delay=1_000),
            NewMessage("mail", b"kept", key="k", delay=2_000),
            NewMessage("mail", b"replaced", key="k", delay=3_000, if_exists="replace"),
            NewMessage("news", b"other", key="k", delay=3_000),
        )
        assert [first.outcome, kept.outcome, replaced.outcome] == ["created", "kept", "replaced"]
        assert first.id == kept.id == replaced.id != other.id
        assert (kept.due, replaced.due) == (bench.now + 1_000, bench.now + 3_000)
        bench.move(3_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"replaced"]


class Successors:
    @needs("keys")
    async def test_keep_and_error_answer_with_a_running_message(self, bench: Bench) -> None:
        held = await bench.running("mail", b"held", key="k")
        for how, outcome in (("keep", "kept"), ("error", "exists")):
            sent = await bench.put("mail", b"other", key="k", if_exists=how)
            assert (sent.id, sent.due, sent.outcome) == (held.id, held.due, outcome)
        # Then there is no other message, and the first still runs
        assert await bench.claim("mail", limit=5) == []
        assert await bench.end(held, "done") == "done"

    @needs("keys")
    async def test_replace_and_later_make_a_successor_of_a_running_message(self, bench: Bench) -> None:
        for topic, how in (("mail", "replace"), ("news", "later")):
            held = await bench.running(topic, b"held", key="k")
            sent = await bench.put(topic, b"successor", delay=1_000, key="k", if_exists=how)
            assert (sent.outcome, sent.due) == ("created", bench.now + 1_000)
            assert sent.id != held.id
            # Then the successor has the key
            assert (await bench.put(topic, b"more", key="k")).id == sent.id
            bench.move(1_000)
            [successor] = await bench.claim(topic, limit=5)
            assert (successor.id, successor.body, successor.key) == (sent.id, b"successor", "k")
            # And both can end
            assert await bench.end(held, "done") == "done"
            assert (await bench.put(topic, b"more", key="k")).id == sent.id
            assert await bench.end(successor, "done") == "done"
            assert (await bench.put(topic, b"new", delay=60_000, key="k")).created

    @needs("keys")
    async def test_what_is_sent_within_a_running_message_is_its_successor(self, bench: Bench) -> None:
        for how, outcome in (("keep", "kept"), ("error", "exists"), ("replace", "replaced"), ("later", "postponed")):
            held = await bench.running(how, b"held", key="k", max_attempts=5)
            # A send under the key of the message that is being handled makes a successor
            sent = await bench.put(how, b"successor", delay=9_000, key="k", if_exists=how, within=held.id)
            assert (sent.outcome, sent.due) == ("created", bench.now + 9_000)
            # And there is only one successor
            again = await bench.put(how, b"successor", delay=9_000, key="k", if_exists=how, within=held.id)
            assert (again.id, again.due, again.outcome) == (sent.id, sent.due, outcome)
            # When the handler then fails, its message comes back without the key
            assert await bench.end(held, "retry", delay=1_000) == "scheduled"
            bench.move(1_000)
            [retried] = await bench.claim(how, limit=5)
            assert (retried.id, retried.body, retried.key) == (held.id, b"held", None)
            assert (await bench.put(how, b"more", delay=8_000, key="k", if_exists=how, within=held.id)).id == sent.id
            assert await bench.end(retried, "done") == "done"
            bench.move(8_000)
            [successor] = await bench.claim(how, limit=5)
            assert (successor.id, successor.key) == (sent.id, "k")
        # When the sender is pending, or the key belongs to another message, the usual rules apply
        held = await bench.running("mail", b"held", key="k")
        other = await bench.running("mail", b"other", key="other")
        assert (await bench.put("mail", b"next", key="other", within=held.id)).id == other.id
        assert await bench.end(held, "release", delay=5_000) == "scheduled"
        kept = await bench.put("mail", b"next", key="k", within=held.id)
        assert (kept.id, kept.outcome) == (held.id, "kept")

    @needs("keys")
    async def test_a_running_message_without_its_key_goes_on_without_one(self, bench: Bench) -> None:
        held = await bench.running("mail", b"held", key="k", max_attempts=5)
        successor = await bench.put("mail", b"successor", delay=2_000, key="k", if_exists="replace")
        if bench.can.lookup:
            assert (await bench.find(id=held.id)).key is None
            assert (await bench.find(topic="mail", key="k")).id == successor.id
        # When it comes back, it does not take the key from its successor
        assert await bench.end(held, "retry", delay=1_000) == "scheduled"
        bench.move(1_000)
        [again] = await bench.claim("mail", limit=5)
        assert (again.id, again.body, again.key) == (held.id, b"held", None)
        kept = await bench.put("mail", b"more", key="k")
        assert (kept.id, kept.outcome) == (successor.id, "kept")
        # Nor when it ends
        assert await bench.end(again, "done") == "done"
        assert (await bench.put("mail", b"more", key="k")).id == successor.id
        bench.move(1_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"successor"]

"""Keys of messages that are running: they can't be changed, but they can be followed."""

from bide.testing.contract.bench import Bench, bodies
from bide.testing.contract.picking import needs


class Successors:
    @needs("keys")
    async def test_keep_and_error_answer_with_a_running_message(self, bench: Bench) -> None:
        held = await bench.running("mail", b"held", key="k")
        for how, outcome in (("keep", "kept"), ("error", "exists")):
            sent = await bench.put("mail", b"other", key="k", if_exists=how)
            assert (sent.id, sent.due, sent.outcome) == (held.id, held.due, outcome)
        # Then there is nothing else, and it runs on
        assert await bench.claim("mail", limit=5) == []
        assert await bench.end(held, "done") == "done"

    @needs("keys")
    async def test_replace_and_later_make_a_successor_of_a_running_message(self, bench: Bench) -> None:
        for topic, how in (("mail", "replace"), ("news", "later")):
            held = await bench.running(topic, b"held", key="k")
            sent = await bench.put(topic, b"successor", delay=1_000, key="k", if_exists=how)
            assert (sent.outcome, sent.due) == ("created", bench.now + 1_000)
            assert sent.id != held.id
            # Then the key is the successor's
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
            # A handler's send under its own message's key means the next one
            sent = await bench.put(how, b"successor", delay=9_000, key="k", if_exists=how, within=held.id)
            assert (sent.outcome, sent.due) == ("created", bench.now + 9_000)
            # And there is one next one
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
        # While the message that sends is pending, or the key is another's, nothing is special
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
        # And when it ends, neither
        assert await bench.end(again, "done") == "done"
        assert (await bench.put("mail", b"more", key="k")).id == successor.id
        bench.move(1_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"successor"]

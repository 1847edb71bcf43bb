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

"""The order in which due messages are handed out; no topic and no priority starves."""

from bide.engines.base import NewMessage
from bide.testing.contract.bench import Bench, bodies, needs


class Order:
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
        await bench.put("mail", b"low", level=2)
        bench.move(1_000)
        await bench.put_all(*(NewMessage("mail", b"high", level=0) for _ in range(100)))
        claimed = [message for _ in range(16) for message in await bench.claim("mail")]
        assert len(claimed) == 16
        assert b"low" in bodies(claimed)

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

"""Pausing a topic, and going on."""

from bide.engines.base import NewMessage
from bide.testing.contract.bench import LEASE, Bench
from bide.testing.contract.picking import needs


class Pausing:
    @needs("pause")
    async def test_what_was_handed_out_before_a_pause_can_still_end(self, bench: Bench) -> None:
        await bench.put_all(*(NewMessage("mail", b"x", max_attempts=5) for _ in range(3)))
        done, retried, lost = await bench.claim("mail", limit=3)
        await bench.engine.pause("mail", True)
        if bench.can.inspect:
            mail, news, together = [await bench.engine.stats(which, now=bench.now) for which in ("mail", "news", None)]
            assert (mail.paused, news.paused, together.paused, together.topics["mail"].paused) == (True, False, True, True)
        assert await bench.end(done, "done") == "done"
        assert await bench.end(retried, "retry", delay=1_000) == "scheduled"
        if bench.can.extend:
            assert await bench.extend(lost, LEASE)
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        # Then what came back stays until the topic goes on
        assert await bench.claim("mail", limit=5) == []
        await bench.engine.pause("mail", False)
        assert {each.id for each in await bench.claim("mail", limit=5)} == {retried.id, lost.id}
        if bench.can.inspect:
            assert not (await bench.engine.stats(now=bench.now)).paused

    @needs("pause", "wake")
    async def test_resuming_wakes_a_sleeper(self, bench: Bench) -> None:
        await bench.engine.pause("mail", True)
        await bench.put("mail")
        assert await bench.claim("mail") == []
        sleeper = await bench.sleeper("mail")
        await bench.engine.pause("mail", False)
        assert await bench.woken(sleeper) == [sleeper]
        assert len(await bench.claim("mail")) == 1

"""What wakes a wait. These tests run in real time, and wait for events only."""

import asyncio

from bide.engines.base import NewMessage
from bide.testing.contract.bench import LEASE, MOMENT, WAKE_TIMEOUT, Bench, needs


class WaitContract:
    async def test_wait_ends_at_its_timeout(self, bench: Bench) -> None:
        sleeper = await bench.sleeper("mail")
        await asyncio.wait_for(bench.engine.wait(["mail"], MOMENT), WAKE_TIMEOUT)
        await asyncio.wait_for(bench.engine.wait(["mail", "news"], 0), WAKE_TIMEOUT)
        # Then a wait with a longer timeout goes on
        assert not sleeper.done()

    @needs("wake")
    async def test_a_message_that_is_due_wakes_a_sleeper(self, bench: Bench) -> None:
        other = await bench.another()
        sleeper = await bench.sleeper("news", "mail")
        await bench.put("mail")
        assert await bench.woken(sleeper) == [sleeper]
        # And also when it is not the first, and comes from another engine
        sleeper = await bench.sleeper("news", "mail")
        await other.put("mail")
        assert await bench.woken(sleeper) == [sleeper]
        # And when a message comes back
        released, _lost = await bench.claim("mail", limit=2)
        sleeper = await bench.sleeper("news", "mail")
        await bench.end(released, "release")
        assert await bench.woken(sleeper) == [sleeper]
        sleeper = await bench.sleeper("news", "mail")
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        assert await bench.woken(sleeper) == [sleeper]

    @needs("wake", "inspect")
    async def test_a_message_due_sooner_than_all_others_wakes_a_sleeper(self, bench: Bench) -> None:
        last = await bench.put("mail", delay=50_000)
        for delay in (40_000, 30_000):
            sleeper = await bench.sleeper("mail")
            await bench.put("mail", delay=delay)
            assert await bench.woken(sleeper) == [sleeper]
        # And also when it is the next only since it was rescheduled
        if bench.can.cancel:
            sleeper = await bench.sleeper("mail")
            await bench.reschedule(last.id, delay=20_000)
            assert await bench.woken(sleeper) == [sleeper]

    @needs("wake")
    async def test_a_message_that_came_before_the_sleeper_is_not_slept_on(self, bench: Bench) -> None:
        await bench.claim("mail")
        await bench.put("mail")
        late = asyncio.create_task(bench.engine.wait(["news", "mail"], 2 * WAKE_TIMEOUT))
        assert await bench.woken(late) == [late]

    @needs("wake")
    async def test_what_a_claim_leaves_behind_wakes_another_sleeper(self, bench: Bench) -> None:
        one, two = await bench.sleeper("mail"), await bench.sleeper("mail")
        await bench.put_all(NewMessage("mail", b"x"), NewMessage("mail", b"x"))
        assert await bench.woken(one, two)
        # When the one that woke claims less than is due
        assert len(await bench.claim("mail", limit=1)) == 1
        await asyncio.wait({one, two}, timeout=WAKE_TIMEOUT)
        assert (one.done(), two.done()) == (True, True)

    @needs("wake")
    async def test_one_message_wakes_one_sleeper(self, bench: Bench) -> None:
        sleepers = [await bench.sleeper("mail") for _ in range(3)]
        stranger = await bench.sleeper("news")
        await bench.put("mail")
        assert len(await bench.woken(*sleepers, stranger)) == 1
        assert not stranger.done()
        # Then the next two messages wake the next two, however soon they come
        await bench.put("mail")
        await bench.put("mail")
        await asyncio.wait(sleepers, timeout=WAKE_TIMEOUT)
        assert all(each.done() for each in sleepers)
        assert not stranger.done()

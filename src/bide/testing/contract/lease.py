"""Leases that are extended."""

from bide.engines.base import Hold
from bide.testing.contract.bench import LEASE, Bench
from bide.testing.contract.picking import needs


class Leases:
    @needs("extend")
    async def test_an_extended_lease_ends_later(self, bench: Bench) -> None:
        extended = await bench.running("mail", b"extended")
        left = await bench.running("mail", b"left")
        bench.move(LEASE - 2_000)
        assert await bench.extend(extended, LEASE)
        if bench.can.lookup:
            assert (await bench.find(id=extended.id)).lease_until == bench.now + LEASE
            assert (await bench.find(id=left.id)).lease_until == bench.now + 2_000
        # Then only the other's ends at the old time
        bench.move(LEASE - 1_000)
        assert (await bench.tend()).returned == 1
        assert [each.id for each in await bench.claim("mail", limit=5, lease=60_000)] == [left.id]
        # And it too ends at last
        bench.move(2_000)
        assert (await bench.tend()).returned == 1
        assert [each.id for each in await bench.claim("mail", limit=5)] == [extended.id]
        # And a lease past its time can be extended while nobody has taken it back
        late = await bench.running("news")
        bench.move(LEASE + 1_000)
        assert await bench.extend(late, LEASE)
        await bench.tend()
        assert await bench.claim("news", limit=5) == []

    @needs("extend", "fencing")
    async def test_an_old_token_extends_nothing(self, bench: Bench) -> None:
        # Given a holder whose lease ended, and another who has the message now
        old = await bench.running("mail", max_attempts=5)
        bench.move(LEASE + 1_000)
        await bench.tend()
        assert not await bench.extend(old, 60_000)
        [new] = await bench.claim("mail", limit=5)
        ended = await bench.running("news")
        await bench.end(ended, "done")
        # Then only the new one can extend, and each is answered for itself
        holds = [Hold(each.topic, each.id, each.token) for each in (old, new, ended)]
        assert await bench.engine.extend(holds, 20_000, now=bench.now) == [False, True, False]
        assert await bench.engine.extend(holds[:1], 90_000, now=bench.now) == [False]
        # And its lease ends when it said
        bench.move(19_000)
        assert (await bench.tend()).returned == 0
        bench.move(2_000)
        assert (await bench.tend()).returned == 1

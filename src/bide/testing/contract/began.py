"""When the first attempt of a message began, which its later deliveries tell."""

from typing import Any

from bide.engines.base import Claimed
from bide.testing.contract.bench import LEASE, Bench, needs
from bide.testing.contract.claim import COMES_BACK


class Began:
    async def test_began_tells_when_the_first_attempt_began(self, bench: Bench) -> None:
        # Given a message that comes back without anybody having begun with it
        sent = await bench.put("mail", max_attempts=9)
        bench.move(3_000)
        message = await _claimed(bench)
        set_aside: dict[str, Any] = {"delay": 2_000, "aside": True}
        for options in ({}, set_aside):
            assert (message.id, message.began) == (sent.id, None)
            await bench.end(message, "release", **options)
            bench.move(2_000)
            message = await _claimed(bench)
        assert message.began is None
        # When an end tells when it began, all later deliveries do, whatever ends them
        began = bench.now
        await bench.end(message, "release", delay=2_000, began=began)
        for verdict, delay in COMES_BACK:
            bench.move(6_000)
            message = await _claimed(bench)
            assert (message.id, message.began) == (sent.id, began)
            await bench.end(message, verdict, delay=delay)
        await _claimed(bench)
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        assert (await _claimed(bench)).began == began

    async def test_began_tells_when_a_lease_that_ended_began(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=9)
        began = bench.now
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        [again] = await bench.claim("mail", limit=5)
        assert again.id == claimed.id
        assert again.began is not None
        assert began <= again.began < bench.now

    @needs("cancel")
    async def test_a_new_time_makes_a_message_forget_when_its_first_attempt_began(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=9)
        await bench.end(claimed, "retry", delay=2_000, began=bench.now)
        assert await bench.reschedule(claimed.id)
        assert (await _claimed(bench)).began is None

    @needs("keys")
    async def test_replacing_makes_a_message_forget_when_its_first_attempt_began(self, bench: Bench) -> None:
        message = await bench.running("mail", key="k", max_attempts=9)
        for how in ("replace", "later"):
            await bench.end(message, "retry", delay=2_000, began=bench.now)
            again = await bench.put("mail", delay=1_000, key="k", if_exists=how, max_attempts=9)
            assert again.id == message.id
            bench.move(4_000)
            message = await _claimed(bench)
            assert message.began is None

    @needs("dead")
    async def test_requeue_makes_a_message_forget_when_its_first_attempt_began(self, bench: Bench) -> None:
        message = await bench.running("mail", max_attempts=9)
        await bench.end(message, "retry", began=bench.now)
        await bench.end(await _claimed(bench), "dead")
        assert (await bench.engine.requeue("mail", now=bench.now)).count == 1
        assert (await _claimed(bench)).began is None


async def _claimed(bench: Bench) -> Claimed:
    """The only message that is due, claimed twice, as after a lost answer."""
    request = f"at {bench.now}, {id(object())}"
    first = await bench.engine.claim(["mail"], 5, LEASE, request=request, now=bench.now)
    again = await bench.engine.claim([], 5, LEASE, request=request, now=bench.now)
    [message] = first.messages
    assert list(again.messages) == [message]
    return message

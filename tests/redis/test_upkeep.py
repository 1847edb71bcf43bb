"""Upkeep is asked for when a claim says that it is needed, and now and then all the same."""

import pytest

from bide import AsyncQueue, Call, Hook
from bide.queue.aio import receive


class Tends(Hook):
    def __init__(self) -> None:
        self.count = 0

    def before(self, call: Call) -> None:
        self.count += call.verb == "tend"


async def test_upkeep_that_is_not_needed_is_not_asked_for(redis_url: str) -> None:
    tends = Tends()
    async with AsyncQueue(redis_url, hooks=[tends]) as queue:
        await queue.receive("t")
        looked = tends.count
        for _ in range(5):
            await queue.receive("t")
        assert tends.count == looked
        # When a lease has ended
        await queue.send("t")
        [delivery] = await queue.receive("t", lease="1ms")
        [again] = await queue.receive("t", wait=10)
        assert (again.id, again.attempt) == (delivery.id, 2)
        assert tends.count > looked
        await again.ack()


async def test_upkeep_is_done_now_and_then_whatever_others_have_found(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs may be another `dead_for`."""
    monkeypatch.setattr(receive, "CAUTION", 0.0)
    tends = Tends()
    async with AsyncQueue(redis_url, hooks=[tends]) as queue:
        for _ in range(5):
            await queue.receive("t")
    assert tends.count >= 5

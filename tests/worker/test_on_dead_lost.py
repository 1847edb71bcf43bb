"""on_dead is called for a message that the engine has buried while its worker stood still, when the worker hears of that."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from bide import AsyncQueue, current, current_batch
from bide.engines.base import Claimed, End
from bide.queue.deliveries import internals
from tests.worker.conftest import LONG, once

LEASE = 2_000  # ms


class Shop:
    """A task that goes on until it is told to stop, and what it and its on_dead have seen."""

    def __init__(self, queue: AsyncQueue, kind: str) -> None:
        self.queue = queue
        self.began = threading.Event()
        self.over = threading.Event()
        self.told: list[Any] = []
        self.claimed: Claimed | None = None
        handlers: dict[str, Callable[..., Any]] = {
            "async": self._handle,
            "sync": self._handle_in_thread,
            "batch": self._handle_batch,
        }
        options: dict[str, Any] = {"batch": 5} if kind == "batch" else {}
        made: Callable[[Any], Any] = queue.task("t", max_attempts=1, on_dead=self._on_dead, **options)
        made(handlers[kind])

    async def bury(self) -> None:
        """By an engine for which the lease is over."""
        engine = await self.queue.session.engine()
        now = (await engine.claim(["none"], 1, LEASE)).now
        assert (await engine.tend(now=now + 2 * LEASE)).buried == 1

    async def release(self) -> None:
        """By somebody else who has its token."""
        assert self.claimed is not None
        engine = await self.queue.session.engine()
        end = End("t", self.claimed.id, self.claimed.token, "release", delay=3_600_000)
        assert await engine.settle([end]) == ["scheduled"]

    async def _handle(self) -> None:
        await self._wait(internals(current()).claimed)

    async def _wait(self, claimed: Claimed) -> None:
        self.claimed = claimed
        self.began.set()
        try:
            await asyncio.sleep(LONG)
        finally:
            self.over.set()

    def _handle_in_thread(self) -> None:
        self.claimed = internals(current()).claimed
        self.began.set()
        while not current().expired:
            threading.Event().wait(0.01)
        self.over.set()

    async def _handle_batch(self, items: list[dict[str, Any]]) -> None:
        await self._wait(internals(current_batch()[0]).claimed)

    def _on_dead(self, delivery: Any, reason: str) -> None:
        self.told.append((delivery.attempt, reason))


@pytest.fixture(params=["async", "sync", "batch"])
def shop(request: pytest.FixtureRequest, queue: AsyncQueue) -> Shop:
    return Shop(queue, request.param)


async def test_on_dead_is_called_when_the_lease_has_ended_in_the_last_attempt(shop: Shop, working: Any) -> None:
    sent = await shop.queue.send("t", {})
    async with working(shop.queue, lease=LEASE / 1000):
        await once(shop.began.is_set)
        await shop.bury()
        await once(lambda: shop.told)
    found = await shop.queue.get(sent)
    assert found is not None
    assert shop.told == [(1, found.last_error)]
    assert shop.over.is_set()


async def test_on_dead_is_not_called_for_what_is_no_dead_letter(shop: Shop, working: Any) -> None:
    await shop.queue.send("t", {})
    async with working(shop.queue, lease=LEASE / 1000):
        await once(shop.began.is_set)
        await shop.release()
        await once(shop.over.is_set)
    assert not shop.told

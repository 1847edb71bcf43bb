# unasync: ../sync/listening.py
"""Deliveries one after the other, as `queue.listen` yields them."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress

from bide.core.formats import plural
from bide.engines.base import SWEEP, Hold
from bide.errors import Unavailable
from bide.logs import Log
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.receiving import CAUTION, AsyncReceiver
from bide.queue.deliveries import Cycles
from bide.wakeable import AsyncSignal

_log = Log("bide.intake")
PATIENCE = 12  # sweeps


class AsyncListening:
    """Deliveries, one after the other; at most `limit` are held, and their leases are renewed.

    Nothing here names a delivery while it is out: one that its user drops is gone at once, and its place is free.
    """

    def __init__(self, receiver: AsyncReceiver, topics: Sequence[str], limit: int, lease_ms: int) -> None:
        self._receiver = receiver
        self._topics = topics
        self._limit = limit
        self._lease_ms = lease_ms
        self._held: set[Hold] = set()
        self._freed = AsyncSignal()
        self._cycles = Cycles()
        self._full = 0  # sweeps since there was room
        self._fresh = receiver.fresh.new_place()

    async def next(self) -> AsyncDelivery:
        """The next one that is still held. A close may take some out meanwhile, and then raises Unavailable."""
        while True:
            with suppress(IndexError):
                while (delivery := self._fresh.popleft()).hold not in self._held:
                    pass
                return delivery
            await self._bring()

    async def _bring(self) -> None:
        receiver, held, freed = self._receiver, self._held, self._freed
        freed.clear()
        receiver.fresh.check()
        receiver.see_to_leases()
        if len(held) < self._limit:
            with receiver.asking() as asked:
                room, wait = self._limit - len(held), SWEEP if held else CAUTION
                await receiver.fill(self._fresh, self._topics, room, self._lease_ms, wait, asked=asked)
                receiver.keep(self._fresh, self._lease_ms, asked.until or 0, held, freed)
            self._full = 0
            return
        await freed.wait(SWEEP)
        self._full += 1
        if len(held) == self._limit:
            self._cycles.collect()
        if self._full == PATIENCE:
            many = plural(self._limit, "message")
            _log.warning("listen(%r) has held %s for a minute without an end: see limit=", self._topics[0], many)

    async def close(self) -> None:
        """Give back what nobody has taken."""
        try:
            await self._receiver.fresh.give_back(self._fresh)
        finally:
            self._receiver.fresh.leave(self._fresh)


async def listen(
    opened: Callable[[], Awaitable[AsyncReceiver]], topics: Sequence[str], limit: int, lease_ms: int
) -> AsyncGenerator[AsyncDelivery, None]:
    """Deliveries, one after the other, until the queue is closed."""
    receiver = await opened()
    listening = AsyncListening(receiver, topics, limit, lease_ms)
    try:
        while True:
            yield await listening.next()
    except Unavailable:
        if not receiver.fresh.closed:
            raise
    finally:
        await listening.close()

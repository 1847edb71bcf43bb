# unasync: ../sync/listening.py
"""Deliveries one after the other, as `queue.listen` yields them."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress

from bide.core.amounts import plural
from bide.engines.base import SWEEP, Hold
from bide.errors import Unavailable
from bide.logs import Log
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.fresh import AsyncPlace
from bide.queue.aio.receiving import CAUTION, AsyncReceiver
from bide.queue.deliveries import Cycles
from bide.wakeable import AsyncSignal

_log = Log("bide.intake")
PATIENCE = 12  # sweeps


async def listen(
    opened: Callable[[], Awaitable[AsyncReceiver]], topics: Sequence[str], limit: int, lease_ms: int
) -> AsyncGenerator[AsyncDelivery, None]:
    """Deliveries, one after the other, until the queue is closed; at most `limit` are held, and their leases are renewed.

    Nothing here names a delivery while it is out: one that its user drops is gone at once, and its place is free.
    """
    receiver = await opened()
    held: set[Hold] = set()
    freed = AsyncSignal()
    cycles = Cycles()
    full = 0
    fresh = receiver.fresh.new_place()
    try:
        while True:
            freed.clear()
            receiver.fresh.check()
            receiver.see_to_leases()
            if len(held) < limit:
                with receiver.asking() as asked:
                    wait = SWEEP if held else CAUTION
                    await receiver.fill(fresh, topics, limit - len(held), lease_ms, wait, asked=asked)
                    receiver.keep(fresh, lease_ms, asked.until or 0, held, freed)
                full = 0
            else:
                await freed.wait(SWEEP)
                full += 1
                if len(held) == limit:
                    cycles.collect()
            if full == PATIENCE:
                _log.warning(
                    "listen(%r) has held %s for a minute without an end: see limit=", topics[0], plural(limit, "message")
                )
            while following := _following(fresh, held):
                yield following.pop()
    except Unavailable:
        if not receiver.fresh.closed:
            raise
    finally:
        try:
            await receiver.fresh.give_back(fresh)
        finally:
            receiver.fresh.leave(fresh)


def _following(fresh: AsyncPlace, held: Collection[Hold]) -> list[AsyncDelivery]:
    """The next one that is still held, if there is one. A close may take some out meanwhile."""
    with suppress(IndexError):
        while (delivery := fresh.popleft()).hold not in held:
            pass
        return [delivery]
    return []

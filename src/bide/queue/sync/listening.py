# Generated from ../aio/listening.py by tools/unasync.py; change that file instead.
"""Deliveries one after the other, as `queue.listen` yields them."""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress

from bide.core.amounts import plural
from bide.engines.base import SWEEP, Hold
from bide.errors import Unavailable
from bide.logs import Log
from bide.queue.deliveries import Cycles
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.fresh import Place
from bide.queue.sync.receiving import CAUTION, Receiver
from bide.wakeable import Signal

_log = Log("bide.intake")
PATIENCE = 12  # sweeps


def listen(opened: Callable[[], Receiver], topics: Sequence[str], limit: int, lease_ms: int) -> Generator[Delivery, None, None]:
    """Deliveries, one after the other, until the queue is closed; at most `limit` are held, and their leases are renewed.

    Nothing here names a delivery while it is out: one that its user drops is gone at once, and its place is free.
    """
    receiver = opened()
    held: set[Hold] = set()
    freed = Signal()
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
                    receiver.fill(fresh, topics, limit - len(held), lease_ms, wait, asked=asked)
                    receiver.keep(fresh, lease_ms, asked.until or 0, held, freed)
                full = 0
            else:
                freed.wait(SWEEP)
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
            receiver.fresh.give_back(fresh)
        finally:
            receiver.fresh.leave(fresh)


def _following(fresh: Place, held: Collection[Hold]) -> list[Delivery]:
    """The next one that is still held, if there is one. A close may take some out meanwhile."""
    with suppress(IndexError):
        while (delivery := fresh.popleft()).hold not in held:
            pass
        return [delivery]
    return []

# Generated from ../aio/listening.py by tools/unasync.py; change that file instead.
"""Deliveries one after the other, as `queue.listen` yields them."""

from collections import deque
from collections.abc import Callable, Generator, Sequence

from bide.engines.base import SWEEP, Hold
from bide.logs import Log
from bide.queue.deliveries import Cycles
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.receiving import CAUTION, Receiver
from bide.wakeable import Signal

_log = Log("bide.intake")
PATIENCE = 12  # sweeps


def listen(opened: Callable[[], Receiver], topics: Sequence[str], limit: int, lease_ms: int) -> Generator[Delivery, None, None]:
    """Deliveries, one after the other, for ever; at most `limit` are held, and their leases are renewed.

    Nothing here names a delivery while it is out: one that its user drops is gone at once, and its place is free.
    """
    receiver = opened()
    fresh: deque[Delivery] = deque()
    receiver.fresh[id(fresh)] = fresh
    held: set[Hold] = set()
    freed = Signal()
    cycles = Cycles()
    full = 0
    try:
        while True:
            freed.clear()
            receiver.see_to_leases()
            if len(held) < limit:
                with receiver.asking() as asked:
                    wait = SWEEP if held else CAUTION
                    fresh.extend(receiver.take(topics, limit - len(held), lease_ms, wait, asked=asked))
                    for place in range(len(fresh)):
                        receiver.keep(fresh[place], lease_ms, asked.until or 0, held, freed)
                full = 0
            else:
                freed.wait(SWEEP)
                full += 1
                if len(held) == limit:
                    cycles.collect()
            if full == PATIENCE:
                _log.warning("listen(%r) has held %d deliveries for a minute, and none ended: see limit=", topics[0], limit)
            while fresh:
                if fresh[0].hold in held:
                    yield fresh.popleft()
                else:
                    fresh.popleft()
    finally:
        del receiver.fresh[id(fresh)]
        receiver.give_back(fresh)

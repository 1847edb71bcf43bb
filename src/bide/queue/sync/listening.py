# Generated from ../aio/listening.py by tools/unasync.py; change that file instead.
"""Deliveries one after the other, as `queue.listen` yields them."""

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress

from bide.core.formats import plural
from bide.engines.base import SWEEP, Hold
from bide.errors import Unavailable
from bide.logs import Log
from bide.queue.deliveries import Cycles
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.receiving import CAUTION, Receiver
from bide.wakeable import Signal

_log = Log("bide.intake")
PATIENCE = 12  # sweeps


class Listening:
    """Deliveries, one after the other; at most `limit` are held, and their leases are renewed.

    Nothing here names a delivery while it is out: one that its user drops is gone at once, and its place is free.
    """

    def __init__(self, receiver: Receiver, topics: Sequence[str], limit: int, lease_ms: int) -> None:
        self._receiver = receiver
        self._topics = topics
        self._limit = limit
        self._lease_ms = lease_ms
        self._held: set[Hold] = set()
        self._freed = Signal()
        self._cycles = Cycles()
        self._full = 0  # sweeps since there was room
        self._fresh = receiver.fresh.new_place()

    def next(self) -> Delivery:
        """The next one that is still held. A close may take some out meanwhile, and then raises Unavailable."""
        while True:
            with suppress(IndexError):
                while (delivery := self._fresh.popleft()).hold not in self._held:
                    pass
                return delivery
            self._bring()

    def _bring(self) -> None:
        receiver, held, freed = self._receiver, self._held, self._freed
        freed.clear()
        receiver.fresh.check()
        receiver.see_to_leases()
        if len(held) < self._limit:
            with receiver.asking() as asked:
                room, wait = self._limit - len(held), SWEEP if held else CAUTION
                receiver.fill(self._fresh, self._topics, room, self._lease_ms, wait, asked=asked)
                receiver.keep(self._fresh, self._lease_ms, asked.until or 0, held, freed)
            self._full = 0
            return
        freed.wait(SWEEP)
        self._full += 1
        if len(held) == self._limit:
            self._cycles.collect()
        if self._full == PATIENCE:
            many = plural(self._limit, "message")
            _log.warning("listen(%r) has held %s for a minute without an end: see limit=", self._topics[0], many)

    def close(self) -> None:
        """Give back what nobody has taken."""
        try:
            self._receiver.fresh.give_back(self._fresh)
        finally:
            self._receiver.fresh.leave(self._fresh)


def listen(opened: Callable[[], Receiver], topics: Sequence[str], limit: int, lease_ms: int) -> Generator[Delivery, None, None]:
    """Deliveries, one after the other, until the queue is closed."""
    receiver = opened()
    listening = Listening(receiver, topics, limit, lease_ms)
    try:
        while True:
            yield listening.next()
    except Unavailable:
        if not receiver.fresh.closed:
            raise
    finally:
        listening.close()

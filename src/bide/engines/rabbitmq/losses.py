"""Deliveries that were lost: which of them this process knows to be no fault of the message, and when the others come again.

The broker counts each delivery that was not acknowledged before its channel was gone. A message that ends its process is
counted like those that were in its hands by chance. So a message that was lost twice is handed out by itself: see `turn`.
"""

import threading
from collections import OrderedDict

from bide.engines.rabbitmq.label import Delivered

MOST = 100_000  # messages that are remembered
APART = 1_500  # ms between two messages that may be the cause: a neighbour that takes a second is done before
SUSPECT = 2  # deliveries in a row that were lost


class Losses:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()  # id: the number of its copy, and how often it was lost
        self._last_turn = 0

    def note(self, delivered: Delivered) -> None:
        """This process lives, and has lost it with its connection."""
        id, copy = delivered.label.id, delivered.label.told
        with self._lock:
            self._known[id] = copy, delivered.known + 1
            self._known.move_to_end(id)
            if len(self._known) > MOST:
                self._known.popitem(last=False)

    def known(self, delivered: Delivered) -> int:
        """How many of the losses that the broker counts were noted here."""
        copy, times = self._known.get(delivered.label.id, (0, 0))
        return min(times, delivered.count) if copy == delivered.label.told else 0

    def turn(self, now: int) -> int:
        """When one more may come that has to be by itself: after those that were told so before."""
        with self._lock:
            self._last_turn = max(now, self._last_turn) + APART
            return self._last_turn

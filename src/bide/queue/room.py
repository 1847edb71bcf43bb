"""How much room a topic has left, for one sender: it counts now and then, and knows what it has sent itself since."""

import threading
import time

OFTEN, SELDOM = 1.0, 5.0  # seconds between two counts: from half full on, and before
SHARE = 20  # a count that takes long is made less often: once in so many times its length


class Room:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counted: int | None = None  # that many were pending
        self._since = 0  # what was sent, or begun to be, since then or while it was counted
        self._stored = 0
        self._next = 0.0  # by time.monotonic(), when to count again

    def is_stale(self) -> bool:
        return self._counted is None or time.monotonic() >= self._next

    def begin(self) -> int:
        """Somebody counts, and others need not: gives what `counted` wants to know."""
        with self._lock:
            self._next = time.monotonic() + OFTEN
            return self._stored

    def counted(self, pending: int, begun: int, seconds: float, most: int) -> None:
        """`begun`: as `begin` said. What was stored by then is counted; what was under way may not be."""
        with self._lock:
            self._counted = pending
            self._since -= begun
            self._stored -= begun
            often = OFTEN if 2 * self.pending >= most else SELDOM
            self._next = time.monotonic() + max(often, SHARE * seconds)

    @property
    def pending(self) -> int:
        return (self._counted or 0) + self._since

    def take(self, least: int, count: int, most: int) -> int:
        """Room for so many, or for fewer, but not for less than `least`; 0 if there is none."""
        with self._lock:
            count = min(count, most - self.pending)
            if count < least:
                return 0
            self._since += count
            return count

    def done(self, taken: int, stored: int) -> None:
        """Of what it was taken for, so much was stored."""
        with self._lock:
            self._since -= taken - stored
            self._stored += stored

"""How much room a topic has left, for one sender: it counts now and then, and knows what it has sent itself since."""

import threading
import time

OFTEN, SELDOM = 1.0, 5.0  # seconds between two counts: from half full on, and before
SHARE = 20  # a count that takes long is made less often: once in so many times its length


class Room:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counted: int | None = None  # that many were pending
        self._begun = 0  # all that was begun to be sent, but for what was not stored
        self._stored = 0  # all of it that is stored
        self._mark = 0  # so much was stored when it was counted
        self._answered = 0.0  # when, by time.monotonic()
        self._next = 0.0  # by time.monotonic(), when to count again
        self._soonest = 0.0  # when to, from half full on

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
            now = time.monotonic()
            if begun < self._mark:  # a slow count: a later one was answered before
                return
            if self._counted is not None and now - seconds < self._answered and pending - begun >= self._counted - self._mark:
                return  # it began before another was answered, and may have seen what was sent since
            self._counted, self._mark, self._answered = pending, begun, now
            self._soonest = now + max(OFTEN, SHARE * seconds)
            self._next = now + max(SELDOM, SHARE * seconds)
            self._fill(most)

    @property
    def pending(self) -> int:
        return (self._counted or 0) + self._begun - self._mark

    def take(self, least: int, count: int, most: int) -> int:
        """Room for so many, or for fewer, but not for less than `least`; 0 if there is none."""
        with self._lock:
            count = min(count, most - self.pending)
            if count < least:
                count = 0
            self._begun += count
            self._fill(most)
            return count

    def _fill(self, most: int) -> None:
        """From half full on it is counted often, however empty it was when it was counted."""
        if 2 * self.pending >= most:
            self._next = min(self._next, self._soonest)

    def done(self, taken: int, stored: int) -> None:
        """Of what it was taken for, so much was stored."""
        with self._lock:
            self._begun -= taken - stored
            self._stored += stored

"""Finds deliveries that nobody can reach any more, when a listener waits for one of them to end."""

import gc
import time

SHARE = 100  # a collection is followed by this many times its own length without one


class Cycles:
    """Deliveries in reference cycles hold their places until the garbage collector runs, and an idle process has none."""

    def __init__(self) -> None:
        self._next = 0.0

    def collect(self) -> None:
        """Run the garbage collector, unless too much time would go into it."""
        began = time.monotonic()
        if began >= self._next:
            gc.collect()
            ended = time.monotonic()
            self._next = ended + (ended - began) * SHARE

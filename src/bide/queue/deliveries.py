"""What deliveries in sync and async have in common."""

import asyncio
import gc
import time

STOPS = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""Not failures of the work: somebody stopped it from outside."""

CUT_SHORT = (asyncio.CancelledError, KeyboardInterrupt)
"""What ends a call in the middle and lets it do something else first."""

ERROR_LENGTH = 500
SHARE = 100  # a garbage collection is followed by this many times its own length without one


def error_text(error: object) -> str | None:
    """What to keep of an error, for people to read."""
    if error is None:
        return None
    try:
        text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # what somebody else's __str__ does
        text = type(error).__name__
    return text.encode("utf-8", "replace").decode()[:ERROR_LENGTH]


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

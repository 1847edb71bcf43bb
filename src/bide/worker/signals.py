"""SIGTERM and Ctrl-C: the first asks the worker to stop, the second ends the process at once."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

ASKING = (signal.SIGTERM, signal.SIGINT)


def end_by(number: int) -> NoReturn:
    """Die of a signal as if nobody had listened: also what a handler has forked off, which inherits who listens."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # process 1 of a container is spared by its own signals


@contextmanager
def stopped_by_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], *, at_once: Callable[[], None] | None = None
) -> Iterator[None]:
    """While this lasts, the first signal has `stop` called in the loop, the second calls `at_once` and ends the process.

    The handlers are plain ones, not the event loop's, so that they are heard while a handler of messages blocks the loop.
    """
    asked = False
    owner = os.getpid()

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if os.getpid() != owner:
            end_by(number)
        if asked:
            if at_once is not None:
                at_once()
            end_by(number)
        asked = True
        with suppress(RuntimeError):  # the loop has been closed: there is nothing to stop any more
            loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, hear) for number in ASKING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: somebody's who is not Python's

"""Signals that a thread or an event loop waits for, and that any thread may set; no wait that is too long, or for itself."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Protocol

from bide.errors import Unavailable


class Wakeable(Protocol):
    """A signal as the waking side sees it: any thread may set it, whether its owner is sync or async."""

    def set(self) -> None: ...


class Signal:
    """For threads."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def wait(self, timeout: float) -> None:
        """Sleep until the signal is set, at most so many seconds."""
        self._event.wait(timeout)


class AsyncSignal:
    """For the event loop it is made in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        if self._event.is_set():
            return
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody is left to wake
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout: float) -> None:
        """Sleep until the signal is set, at most so many seconds."""
        alarm = self._loop.call_later(timeout, self._event.set)
        try:
            await self._event.wait()
        finally:
            alarm.cancel()


AsyncBriefly: Callable[[float], asyncio.Timeout] = asyncio.timeout
"""Around what may take so many seconds, and ends in a TimeoutError then."""


class Briefly:
    """For threads, in which nothing can be ended from outside: it takes as long as it does."""

    def __init__(self, seconds: float) -> None:
        """Takes what AsyncBriefly does."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def refuse_reentry(lock: threading.RLock) -> None:
    """Raise if this thread holds the lock: it would wait for itself for ever. Call it before the `with` that takes the lock."""
    if is_own(lock):
        raise Unavailable(
            "This thread is in the middle of another call of bide, which a signal handler or a destructor has interrupted: "
            "waiting for it would last for ever, so nothing was done. In the handler only set a flag or put the work into a "
            "queue.SimpleQueue, and call bide from the code that looks at it."
        )


def is_own(lock: threading.RLock) -> bool:
    """Whether this thread holds the lock."""
    own: bool = lock._is_owned()  # type: ignore[attr-defined]
    return own

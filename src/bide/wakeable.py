"""Signals that a thread or an event loop waits for, and that any thread may set."""

import asyncio
import contextlib
import threading
from typing import Protocol


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

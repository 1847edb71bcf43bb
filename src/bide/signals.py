"""A flag that a thread or an event loop can sleep on, and that anybody may raise."""

import asyncio
import contextlib
import threading
from typing import Protocol


class Raisable(Protocol):
    """What the waking side needs to know of a signal: any thread may raise it, of either colour."""

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
        """Sleep until the signal is raised, at most so many seconds."""
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
        """Sleep until the signal is raised, at most so many seconds."""
        alarm = self._loop.call_later(timeout, self._event.set)
        try:
            await self._event.wait()
        finally:
            alarm.cancel()

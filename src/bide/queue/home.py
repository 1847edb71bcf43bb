"""Where a queue may be used: one event loop, or one process."""

import asyncio
import os

from bide.errors import WrongLoop


class AsyncHome:
    """The event loop that used an AsyncQueue first."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def moved(self) -> bool:
        """Whether everything must be opened (again) for whoever asks."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return False
        if self._loop is not None:
            raise WrongLoop(
                "This AsyncQueue was first used in another event loop, and its connections belong to that one. "
                "Make an AsyncQueue in each loop, or use `queue.sync` from threads."
            )
        self._loop = loop
        return True


class Home:
    """The process that used a Queue last: a forked child opens everything anew and leaves the parent's alone."""

    def __init__(self) -> None:
        self._pid = 0

    def moved(self) -> bool:
        """Whether everything must be opened (again) for whoever asks."""
        pid = os.getpid()
        if self._pid == pid:
            return False
        self._pid = pid
        return True

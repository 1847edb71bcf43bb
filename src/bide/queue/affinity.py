"""Where a queue may be used: one event loop at a time, or one process."""

import asyncio
import os
import threading

from bide.engines.aio import AsyncEngine
from bide.engines.sync import Engine
from bide.errors import WrongLoop
from bide.queue.heartbeat import Heartbeat
from bide.queue.held_up import lookout


class AsyncAffinity:
    """The event loop that uses an AsyncQueue, until it is closed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def moved(self) -> bool:
        """Whether everything must be opened (again) for whoever asks."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return False
        if self._loop is not None and not self._loop.is_closed():
            still = "runs" if self._loop.is_running() else "is not closed"
            raise WrongLoop(
                f"This AsyncQueue is in use in another event loop, which {still}, and its connections belong to that one. "
                "Make an AsyncQueue in each loop, or use `queue.sync` from threads. In a test with FastAPI's TestClient, move "
                "time in the loop of the client: client.portal.call(queue.testing.advance, '15m')."
            )
        self._loop = loop
        return True

    @staticmethod
    def caller() -> object:
        """Who calls: a task."""
        return asyncio.current_task()

    def leave(self, heartbeat: Heartbeat, engine: AsyncEngine) -> None:
        """What was opened in a loop that is closed: nobody can wait for it any more."""
        heartbeat.close(0)
        engine.abandon()


class Affinity:
    """The process that used a Queue last: a forked child opens everything anew and leaves the parent's alone."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def moved(self) -> bool:
        """Whether everything must be opened (again) for whoever asks. Each call asks first."""
        lookout.call_begins()
        pid = os.getpid()
        if self._pid == pid:
            return False
        self._pid = pid
        return True

    @staticmethod
    def caller() -> object:
        """Who calls: a thread, and what it is interrupted by."""
        return threading.get_ident()

    def leave(self, heartbeat: Heartbeat, engine: Engine) -> None:
        """What was opened before a fork is the parent's."""

"""A queue and event loops: where it may be used, and a warning when a sync call has held up a loop."""

import asyncio
import os
import sys
import threading
import time
from asyncio.events import _get_running_loop as running_loop
from types import FrameType

from bide.engines.aio import AsyncEngine
from bide.engines.sync import Engine
from bide.errors import WrongLoop
from bide.logs import Log
from bide.queue.heartbeat import Heartbeat

_log = Log("bide.queue")
LONG = 0.1  # seconds that a call may take before it is worth a warning
LINGER = 5.0  # seconds that the thread stays when no such call is made


class Lookout:
    """A thread that looks at the calls that event loops make. There is none as long as no loop makes any."""

    def __init__(self) -> None:
        self.warned: bool = False
        self._began: dict[int, float] = {}  # by thread: its latest call, monotonic
        self._thread: threading.Thread | None = None

    def call_begins(self) -> None:
        """This thread begins a call of a sync queue."""
        if self.warned or running_loop() is None:
            return
        self._began[threading.get_ident()] = time.monotonic()
        if self._thread is None or not self._thread.is_alive():  # a forked child has none
            self._thread = threading.Thread(target=self._look_on, name="bide-lookout", daemon=True)
            try:
                self._thread.start()
            except (RuntimeError, MemoryError):
                self._thread = None

    def _look_on(self) -> None:
        while self._began and not self.warned:
            time.sleep(LONG / 2)
            for ident, began in list(self._began.items()):
                taken = time.monotonic() - began
                if taken > LINGER:
                    self._began.pop(ident, None)
                elif taken > LONG and (where := _caller(sys._current_frames().get(ident))):
                    self._warn(where)
                    return

    def _warn(self, where: str) -> None:
        self.warned = True
        _log.warning(
            "A call of a sync Queue in %s has held up the event loop for more than %d ms: nothing else in it could run. In "
            "async code use AsyncQueue, or queue.aio, and await its calls. This is said once.",
            where,
            LONG * 1000,
        )


lookout: Lookout = Lookout()


def _caller(frame: FrameType | None) -> str:
    """Who called a sync queue, if that call is what the thread is doing now; else nothing."""
    inside = False
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if inside and not module.startswith("bide."):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if module == "asyncio.events":  # what is below runs the loop itself
            return ""
        inside = inside or module.startswith("bide.queue.sync.")
        frame = frame.f_back
    return ""


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

    caller: "staticmethod[[], object]" = staticmethod(asyncio.current_task)
    """Who calls: a task."""

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

    caller: "staticmethod[[], object]" = staticmethod(threading.get_ident)
    """Who calls: a thread, and what it is interrupted by."""

    def leave(self, heartbeat: Heartbeat, engine: Engine) -> None:
        """What was opened before a fork is the parent's."""

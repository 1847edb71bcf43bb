"""A pipe to whoever has started this process: when its other end is closed, also by a death, the process has to stop."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from bide.worker.signals import asking, end_by
from bide.worker.worker import Worker


class Lifeline:
    """Listened to from the start: what a process imports may take long, or hang."""

    def __init__(self, file: int, cut: Callable[[], object]) -> None:
        """`cut` is called in a thread when the other end is closed."""
        os.set_inheritable(file, False)
        self.cut: Callable[[], object] = cut  # another one may take its place
        threading.Thread(target=self._wait, args=(file,), name="bide-lifeline", daemon=True).start()

    def _wait(self, file: int) -> None:
        os.read(file, 1)
        self.cut()


async def run_supervised(worker: Worker, lifeline: Lifeline) -> None:
    """Run a worker as a process of a supervisor, which has the signals: until its lifeline is cut."""
    owner = os.getpid()

    def ignore(number: int, frame: FrameType | None) -> None:
        """Do nothing. Programs that handlers start would inherit SIG_IGN, but not this."""
        if os.getpid() != owner:
            end_by(number)

    for number in asking():
        signal.signal(number, ignore)
    loop = asyncio.get_running_loop()
    running = loop.create_task(worker.run(signals=False))

    def stop() -> None:
        worker._asked()
        with contextlib.suppress(RuntimeError):  # the loop has been closed: the worker has ended
            loop.call_soon_threadsafe(running.cancel)

    lifeline.cut = stop
    with contextlib.suppress(asyncio.CancelledError):
        await running

"""A worker process of a supervisor: it stops when its lifeline is cut, and leaves signals to the supervisor."""

import asyncio
import contextlib
import os
import signal
from types import FrameType

from bide.worker.lifeline import Lifeline
from bide.worker.signals import asking, end_by
from bide.worker.worker import Worker


async def run_supervised(worker: Worker, lifeline: Lifeline) -> None:
    """Run a worker until its lifeline is cut."""
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

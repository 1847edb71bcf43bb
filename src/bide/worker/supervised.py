"""A worker process of a supervisor: it stops when its lifeline is cut, and leaves signals to the supervisor."""

import asyncio
import contextlib
import os
import signal
import threading
from types import FrameType

from bide.worker.signals import asking, end_by
from bide.worker.worker import Worker


async def run_supervised(worker: Worker, lifeline: int) -> None:
    """Run a worker until the other end of the pipe `lifeline` is closed."""
    os.set_inheritable(lifeline, False)
    owner = os.getpid()

    def ignore(number: int, frame: FrameType | None) -> None:
        """Do nothing. Programs that handlers start would inherit SIG_IGN, but not this."""
        if os.getpid() != owner:
            end_by(number)

    for number in asking():
        signal.signal(number, ignore)
    loop = asyncio.get_running_loop()
    running = loop.create_task(worker.run(signals=False))

    def wait_for_the_cut() -> None:
        os.read(lifeline, 1)
        worker._asked()
        loop.call_soon_threadsafe(running.cancel)

    threading.Thread(target=wait_for_the_cut, name="bide-lifeline", daemon=True).start()
    with contextlib.suppress(asyncio.CancelledError):
        await running

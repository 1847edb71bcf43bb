"""Hands on what is committed to the queue's outbox, beside a worker."""

import asyncio

from bide.queue.aio.outbox import AsyncOutbox
from bide.worker.ending import Ending


class Relaying:
    """Begins at once. When the worker stops, it sees through what it has claimed: nobody else may take that for a while."""

    def __init__(self, outbox: AsyncOutbox) -> None:
        self._relay = outbox.relay()
        self._running = asyncio.create_task(self._relay.run())

    def stop(self) -> None:
        """Claim nothing more."""
        self._relay.stop()
        if self._relay.waits:
            self._running.cancel()

    async def end(self, ending: Ending) -> None:
        await ending.grace([self._running], ending.left)
        self._running.cancel()

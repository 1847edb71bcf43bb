# unasync: ../sync/connection.py
"""A connection that waits for the server for a limited time, and can be dropped in the middle of a statement."""

import contextlib
from typing import Any

import psycopg
from psycopg import capabilities

from bide.engines.postgres.limited import INTERVAL, Answer, AsyncWaitFor, Work, limited

STOPPING = 1.0  # seconds for telling the server to stop what nobody waits for any more


class AsyncLimited(psycopg.AsyncConnection[Any]):
    limit: float | None = None  # seconds for each statement

    async def wait(self, gen: Work[Answer], *args: Any, **options: Any) -> Answer:
        """As psycopg's, but an interrupted wait ends at once: psycopg would wait for the server once more."""
        if self.limit is None or args or options:  # notifies() has a limit of its own
            return await super().wait(gen, *args, **options)
        answer: Answer = await AsyncWaitFor(limited(gen, self.limit), self.pgconn.socket, INTERVAL)
        return answer

    async def drop(self) -> None:
        """Close it. A statement that it is in the middle of is stopped, or it could wait for a lock for ever."""
        try:
            if self.info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE and capabilities.has_cancel_safe():
                with contextlib.suppress(psycopg.Error, OSError):
                    await self.cancel_safe(timeout=STOPPING)
        finally:
            await self.close()

"""Connections within limits: so many at a time, and each waits for the server for a limited time only.

The limit holds in threads too, where nothing can be ended from outside.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from itertools import islice
from queue import SimpleQueue
from typing import Any

import psycopg
from psycopg import capabilities, waiting

from bide.engines.postgres.statements import Answer, Rows, Statements, Work

INTERVAL = 0.1  # seconds between two looks at the clock, while nothing comes
STOPPING = 1.0  # seconds for telling the server to stop what nobody waits for any more


class Limited(psycopg.Connection[Any]):
    """For threads."""

    limit: float | None = None  # seconds for each statement
    _statements: Statements | None = None

    def wait(self, gen: Work[Answer], *args: Any, **options: Any) -> Answer:
        """As psycopg's, but an interrupted wait ends at once: psycopg would wait for the server once more."""
        if self.limit is None or args or options:  # notifies() has a limit of its own
            return super().wait(gen, *args, **options)
        answer: Answer = waiting.wait(limited(gen, self.limit), self.pgconn.socket, INTERVAL)
        return answer

    def ask(self, sql: str, args: Sequence[Any]) -> Rows:
        """The rows of a statement."""
        if self._statements is None:
            self._statements = Statements(self)
        return self.wait(self._statements.ask(sql, args))

    def drop(self) -> None:
        """Close it. A statement that it is in the middle of is stopped, or it could wait for a lock for ever."""
        try:
            if _is_busy(self.info):
                with contextlib.suppress(psycopg.Error, OSError):
                    self.cancel_safe(timeout=STOPPING)
        finally:
            self.close()


class AsyncLimited(psycopg.AsyncConnection[Any]):
    """For event loops: the same."""

    limit: float | None = None
    _statements: Statements | None = None

    async def wait(self, gen: Work[Answer], *args: Any, **options: Any) -> Answer:
        if self.limit is None or args or options:
            return await super().wait(gen, *args, **options)
        answer: Answer = await waiting.wait_async(limited(gen, self.limit), self.pgconn.socket, INTERVAL)
        return answer

    async def ask(self, sql: str, args: Sequence[Any]) -> Rows:
        """The rows of a statement."""
        if self._statements is None:
            self._statements = Statements(self)
        return await self.wait(self._statements.ask(sql, args))

    async def drop(self) -> None:
        try:
            if _is_busy(self.info):
                with contextlib.suppress(psycopg.Error, OSError):
                    await self.cancel_safe(timeout=STOPPING)
        finally:
            await self.close()


def limited(work: Work[Answer], seconds: float) -> Work[Answer]:
    """The driver's work on a connection; it ends in a TimeoutError if nothing comes after so many seconds.

    It is resumed with what the socket is ready for, and with nothing once in an interval. A process that was stopped for a
    while has not looked at the socket when its interval is over, though the answer may be there. So it looks once more.
    """
    end = time.monotonic() + seconds
    last = False
    try:
        state = next(work)
        while True:
            ready = yield state
            if last and not ready:
                raise TimeoutError(f"no answer in {seconds:g} seconds")
            last = time.monotonic() > end
            state = work.send(ready)
    except StopIteration as done:
        answer: Answer = done.value
        return answer


def _is_busy(info: psycopg.ConnectionInfo) -> bool:
    """Whether it is in the middle of a statement that can be stopped."""
    return info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE and capabilities.has_cancel_safe()


class Room:
    """For threads. A place changes hands in one step of C, in which no signal handler runs."""

    def __init__(self, places: int) -> None:
        self.free: SimpleQueue[int] = SimpleQueue()
        for place in range(places):
            self.free.put_nowait(place)

    def take(self, taken: list[int]) -> None:
        """Wait for a place, and move it into the list. The caller then puts it back into `free`, whatever happens."""
        taken.extend(islice(iter(self.free.get, None), 1))


class AsyncRoom:
    """For the event loop."""

    def __init__(self, places: int) -> None:
        self.free: asyncio.Queue[int] = asyncio.Queue()
        for place in range(places):
            self.free.put_nowait(place)

    async def take(self, taken: list[int]) -> None:
        taken.append(await self.free.get())

"""Runs a verb's work in a transaction: in the caller's thread, or for an event loop in a thread of the database."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from bide.blocking import AsyncApart, seen_through
from bide.engines.sqlite import database
from bide.engines.sqlite.job import Job
from bide.engines.sqlite.join import joined, lent
from bide.engines.sqlite.transaction import Transaction

T = TypeVar("T")


class Executor:
    """For threads: the caller does the work itself, together with the work of other threads that wait."""

    def __init__(self, shared: database.Database) -> None:
        self.database = shared

    @classmethod
    def opened(cls, path: str) -> "Executor":
        return cls(database.acquire(path))

    def write(self, work: Callable[[Transaction], T], *, durable: bool) -> T:
        answer: T = self.database.writer.do(Job(work, durable=durable))
        return answer

    def join(self, connection: object, work: Callable[[Transaction], T]) -> T:
        """In the caller's own transaction."""
        self.database.check()
        return joined(self.database.path, connection, work)

    def read(self, work: Callable[[Transaction], T]) -> T:
        return self.database.read(work)

    def close(self) -> None:
        database.release(self.database)

    abandon = close


class AsyncExecutor:
    """For event loops: another thread does the work."""

    def __init__(self, shared: database.Database) -> None:
        self.database = shared

    @classmethod
    async def opened(cls, path: str) -> "AsyncExecutor":
        return cls(await AsyncApart(lambda: database.acquire(path), database.release).done())

    async def write(self, work: Callable[[Transaction], T], *, durable: bool) -> T:
        answer: T = await asyncio.wrap_future(self.database.writer.submit(work, durable=durable))
        return answer

    async def join(self, connection: object, work: Callable[[Transaction], T]) -> T:
        """In the caller's own transaction, in the thread of its connection: this one, or one of SQLAlchemy's."""
        self.database.check()
        theirs = await lent(connection)
        if theirs is None:
            return joined(self.database.path, connection, work)
        # What is cancelled undoes what it has begun, in several steps: being cancelled again must not cut these short.
        own = asyncio.create_task(theirs.run_sync(lambda connection: joined(self.database.path, connection, work)))
        answer: T = await seen_through(own, lambda _: own.cancelling() or own.cancel())
        return answer

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self.database.readers.do(lambda: self.database.read(work))

    async def close(self) -> None:
        await AsyncApart(lambda: database.release(self.database)).done()

    def abandon(self) -> None:
        """Close without an event loop."""
        database.release(self.database)

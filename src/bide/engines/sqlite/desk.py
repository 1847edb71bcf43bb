"""How a verb gets its turn, in each colour."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from bide.aside import AsyncApart, seen_through
from bide.engines.sqlite import place
from bide.engines.sqlite.borrowed import lent
from bide.engines.sqlite.job import Job
from bide.engines.sqlite.join import joined
from bide.engines.sqlite.turn import Turn

T = TypeVar("T")


class Desk:
    """For threads: the caller does the work itself, together with that of others who wait."""

    def __init__(self, entered: place.Place) -> None:
        self.place = entered

    @classmethod
    def enter(cls, path: str) -> "Desk":
        return cls(place.enter(path))

    def write(self, work: Callable[[Turn], T], *, lasting: bool) -> T:
        answer: T = self.place.writer.do(Job(work, lasting=lasting))
        return answer

    def join(self, connection: object, work: Callable[[Turn], T]) -> T:
        """In the caller's own transaction."""
        self.place.check()
        return joined(self.place.path, connection, work)

    def read(self, work: Callable[[Turn], T]) -> T:
        return self.place.read(work)

    def leave(self) -> None:
        place.leave(self.place)

    abandon = leave


class AsyncDesk:
    """For event loops: a thread does the work."""

    def __init__(self, entered: place.Place) -> None:
        self.place = entered

    @classmethod
    async def enter(cls, path: str) -> "AsyncDesk":
        return cls(await AsyncApart(lambda: place.enter(path), place.leave).done())

    async def write(self, work: Callable[[Turn], T], *, lasting: bool) -> T:
        answer: T = await asyncio.wrap_future(self.place.writer.submit(Job(work, lasting=lasting)))
        return answer

    async def join(self, connection: object, work: Callable[[Turn], T]) -> T:
        """In the caller's own transaction: where its connection is, which is here or in a thread of SQLAlchemy's."""
        self.place.check()
        theirs = await lent(connection)
        if theirs is None:
            return joined(self.place.path, connection, work)
        # What is cancelled undoes what it has begun, in several steps: being cancelled again must not cut these short.
        own = asyncio.create_task(theirs.run_sync(lambda connection: joined(self.place.path, connection, work)))
        answer: T = await seen_through(own, lambda: own.cancelling() or own.cancel())
        return answer

    async def read(self, work: Callable[[Turn], T]) -> T:
        return await self.place.readers.do(lambda: self.place.read(work))

    async def leave(self) -> None:
        await AsyncApart(lambda: place.leave(self.place)).done()

    def abandon(self) -> None:
        """Leave without an event loop."""
        place.leave(self.place)

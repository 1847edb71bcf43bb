"""Asks the parts of something side by side, so that one that does not answer holds up none of the others."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

P = TypeVar("P")
T = TypeVar("T")


class Round(Generic[P, T]):
    """For threads: the caller asks the last part, and a thread each of the others.

    A caller that is interrupted waits for none of them: their threads go on, and end by themselves.
    """

    def __init__(self, parts: Sequence[P], call: Callable[[P], T]) -> None:
        self._parts = parts
        self._call = call

    def answers(self) -> list[T | Exception]:
        """What each part has answered, or its error, in their order."""
        told: SimpleQueue[tuple[int, T | BaseException]] = SimpleQueue()
        last = len(self._parts) - 1
        own = [last] if self._parts else []
        for at in range(last):
            thread = threading.Thread(target=self._tell, args=(at, told), name="bide-round", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError):  # no thread to be had: then one after the other
                own.append(at)
        found: dict[int, T | Exception] = {at: self._ask(at) for at in own}
        while len(found) < len(self._parts):
            at, answer = told.get()
            if isinstance(answer, BaseException) and not isinstance(answer, Exception):
                raise answer
            found[at] = answer
        return [found[at] for at in range(len(self._parts))]

    def _ask(self, at: int) -> T | Exception:
        try:
            return self._call(self._parts[at])
        except Exception as error:
            return error

    def _tell(self, at: int, told: "SimpleQueue[tuple[int, T | BaseException]]") -> None:
        try:
            told.put((at, self._ask(at)))
        except BaseException as error:
            told.put((at, error))


class AsyncRound(Generic[P, T]):
    """For event loops: a task asks each part. A caller that is cancelled cancels them, and goes on when they have ended."""

    def __init__(self, parts: Sequence[P], call: Callable[[P], Awaitable[T]]) -> None:
        self._parts = parts
        self._call = call

    async def answers(self) -> list[T | Exception]:
        """What each part has answered, or its error, in their order."""
        if len(self._parts) <= 1:
            return [await self._ask(part) for part in self._parts]
        loop = asyncio.get_running_loop()
        # a factory of the loop's may begin a task before it gives it
        tasks = [asyncio.Task(self._ask(part), loop=loop) for part in self._parts]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await _ended(tasks)
            raise
        return [task.result() for task in tasks]

    async def _ask(self, part: P) -> T | Exception:
        try:
            return await self._call(part)
        except Exception as error:
            return error


class Aside:
    """For threads: something that nobody waits for."""

    def begin(self, work: Callable[[], object]) -> None:
        """Have it done in a thread, or not at all if none can be started."""
        thread = threading.Thread(target=work, name="bide-aside", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            return

    def close(self) -> None:
        """What is under way ends by itself."""


class AsyncAside:
    """For event loops: something that nobody waits for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def begin(self, work: Callable[[], Awaitable[object]]) -> None:
        """Have it done in a task."""
        task = asyncio.Task(_done(work), loop=asyncio.get_running_loop())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is under way."""
        await _ended(list(self._tasks))


async def _done(work: Callable[[], Awaitable[object]]) -> object:
    return await work()


async def _ended(tasks: "Sequence[asyncio.Task[T]]") -> None:
    """Cancel tasks, and see them to their ends, however often the caller is cancelled meanwhile."""
    for each in tasks:
        each.cancel()
    cancelled = False
    while left := [each for each in tasks if not each.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError:
            cancelled = True
            for each in left:
                each.cancel()
    if cancelled:
        raise asyncio.CancelledError

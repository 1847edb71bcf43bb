"""Asks the parts of something side by side, so that one that does not answer holds up none of the others."""

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

P = TypeVar("P")
T = TypeVar("T")
Told: TypeAlias = "SimpleQueue[tuple[int, T | BaseException]]"
LATE = 4


class Round(Generic[P, T]):
    """For threads. Those that are not waited for any more end by themselves, as when the caller is interrupted."""

    def __init__(self, parts: Sequence[P], call: Callable[[P], T], aside: "Aside | None" = None) -> None:
        """`aside`: which is told of those that are left to themselves, in event loops."""
        self._parts = parts
        self._call = call

    def answers(self) -> list[T | Exception]:
        """What each part has answered, or its error, in their order. The caller asks the last one, threads ask the others."""
        told: Told[T] = SimpleQueue()
        last = len(self._parts) - 1
        own = [at for at in range(last) if not self._begin(at, told)]  # no thread to be had: then one after the other
        own += [last] if self._parts else []
        found: dict[int, T | Exception] = {at: self._ask(at) for at in own}
        while len(found) < len(self._parts):
            at, answer = told.get()
            found[at] = _sound(answer)
        return [found[at] for at in range(len(self._parts))]

    def soon(self, seconds: float) -> list[T | Exception]:
        """The same, but for TimeoutError from those that answer late: after so many seconds, and after `LATE` times as long as
        the first answer took. While there are only errors, none is late.
        """
        told: Told[T] = SimpleQueue()
        found: dict[int, T | Exception] = {}
        began, until = time.monotonic(), math.inf
        for at in range(len(self._parts)):
            if not self._begin(at, told):
                found[at] = self._ask(at)
        while len(found) < len(self._parts):
            left = until - time.monotonic()
            try:
                at, answer = told.get(timeout=None if left == math.inf else max(0.0, left))
            except Empty:
                break
            found[at] = _sound(answer)
            if until == math.inf and not isinstance(answer, Exception):
                until = began + max(seconds, LATE * (time.monotonic() - began))
        return [found.get(at, TimeoutError("no answer yet")) for at in range(len(self._parts))]

    def until(self, enough: Callable[[P, T | Exception], bool], beside: float) -> None:
        """Ask one part after the other until an answer is enough; the next one also when none has come for `beside` seconds."""
        told: Told[T] = SimpleQueue()
        next_one = under_way = 0
        while next_one < len(self._parts) or under_way:
            if next_one < len(self._parts):
                under_way += 1
                if not self._begin(next_one, told):
                    self._tell(next_one, told)
                next_one += 1
            try:
                at, answer = told.get(timeout=beside if next_one < len(self._parts) else None)
            except Empty:
                continue
            under_way -= 1
            if enough(self._parts[at], _sound(answer)):
                return

    def _begin(self, at: int, told: "Told[T]") -> bool:
        """Whether a thread asks the part."""
        thread = threading.Thread(target=self._tell, args=(at, told), name="bide-round", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            return False
        return True

    def _ask(self, at: int) -> T | Exception:
        try:
            return self._call(self._parts[at])
        except Exception as error:
            return error

    def _tell(self, at: int, told: "Told[T]") -> None:
        try:
            told.put((at, self._ask(at)))
        except BaseException as error:
            told.put((at, error))


class AsyncRound(Generic[P, T]):
    """For event loops: a task asks each part. A caller that is cancelled cancels them, and goes on when they have ended."""

    def __init__(self, parts: Sequence[P], call: Callable[[P], Awaitable[T]], aside: "AsyncAside | None" = None) -> None:
        """`aside`: which keeps those that are left to themselves. Without it they are cancelled."""
        self._parts = parts
        self._call = call
        self._aside = aside

    async def answers(self) -> list[T | Exception]:
        """What each part has answered, or its error, in their order."""
        if len(self._parts) <= 1:
            return [await self._ask(part) for part in self._parts]
        tasks = [self._begin(part) for part in self._parts]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await _ended(tasks)
            raise
        return [task.result() for task in tasks]

    async def soon(self, seconds: float) -> list[T | Exception]:
        """The same, but for TimeoutError from those that answer late: after so many seconds, and after `LATE` times as long as
        the first answer took. While there are only errors, none is late.
        """
        tasks = [self._begin(part) for part in self._parts]
        began, until = time.monotonic(), math.inf
        try:
            while left := [each for each in tasks if not each.done()]:
                if until == math.inf and any(each.done() and not isinstance(each.result(), Exception) for each in tasks):
                    until = began + max(seconds, LATE * (time.monotonic() - began))
                wait = until - time.monotonic()
                if wait <= 0:
                    break
                await asyncio.wait(left, timeout=None if wait == math.inf else wait, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _ended(tasks)
            raise
        answers = [task.result() if task.done() else TimeoutError("no answer yet") for task in tasks]
        await self._leave(tasks)
        return answers

    async def until(self, enough: Callable[[P, T | Exception], bool], beside: float) -> None:
        """Ask one part after the other until an answer is enough; the next one also when none has come for `beside` seconds."""
        left = list(self._parts)
        asked: dict[asyncio.Task[T | Exception], P] = {}
        try:
            while left or asked:
                if left:
                    part = left.pop(0)
                    asked[self._begin(part)] = part
                done, _ = await asyncio.wait(asked, timeout=beside if left else None, return_when=asyncio.FIRST_COMPLETED)
                if any(enough(asked.pop(each), each.result()) for each in done):
                    break
        except BaseException:
            await _ended(list(asked))
            raise
        await self._leave(list(asked))

    def _begin(self, part: P) -> "asyncio.Task[T | Exception]":
        # a factory of the loop's may begin a task before it gives it
        return asyncio.Task(self._ask(part), loop=asyncio.get_running_loop())

    async def _leave(self, tasks: "Sequence[asyncio.Task[T | Exception]]") -> None:
        if self._aside is None:
            await _ended(tasks)
            return
        for each in tasks:
            self._aside.keep(each)

    async def _ask(self, part: P) -> T | Exception:
        try:
            return await self._call(part)
        except Exception as error:
            return error


def _sound(answer: T | BaseException) -> T | Exception:
    if isinstance(answer, BaseException) and not isinstance(answer, Exception):
        raise answer
    return answer


class Aside:
    """For threads: something that nobody waits for."""

    def begin(self, work: Callable[[], object]) -> None:
        """Have it done in a thread, or not at all if none can be started."""
        self.attempt(work, 0.0)

    def attempt(self, work: Callable[[], object], seconds: float) -> None:
        """The same, and wait for it so long at most."""
        thread = threading.Thread(target=work, name="bide-aside", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            return
        if seconds:
            thread.join(seconds)

    def close(self) -> None:
        """What is under way ends by itself."""


class AsyncAside:
    """For event loops: something that nobody waits for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Callable[[], Awaitable[object]]) -> None:
        """Have it done in a task."""
        self.keep(asyncio.Task(_done(work), loop=asyncio.get_running_loop()))

    async def attempt(self, work: Callable[[], Awaitable[object]], seconds: float) -> None:
        """The same, and wait for it so long at most."""
        task = asyncio.Task(_done(work), loop=asyncio.get_running_loop())
        self.keep(task)
        await asyncio.wait({task}, timeout=seconds)

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """A task that nobody waits for."""
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

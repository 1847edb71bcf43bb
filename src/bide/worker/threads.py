"""Threads for sync handlers: so many and no more, begun when they are needed."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

_Job: TypeAlias = tuple[contextvars.Context, Callable[[], object], "asyncio.Future[None]"]


class Threads:
    """They are daemons: a handler that never comes back does not keep the process from ending."""

    def __init__(self, most: int, loop: asyncio.AbstractEventLoop) -> None:
        self._most = most
        self._loop = loop
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._begun = 0
        self._busy = 0
        self._ended: deque[tuple[asyncio.Future[None], BaseException | None]] = deque()
        self._telling = threading.Lock()
        self._told = False

    def run(self, work: Callable[[], object]) -> "asyncio.Future[None]":
        """Have a thread do it, in a copy of the caller's context. The caller sees to it that one is free."""
        answer: asyncio.Future[None] = self._loop.create_future()
        self._busy += 1
        if self._begun < min(self._busy, self._most):
            self._begun += 1
            threading.Thread(target=self._work, name=f"bide-handler-{self._begun}", daemon=True).start()
        self._jobs.put((contextvars.copy_context(), work, answer))
        return answer

    def close(self) -> None:
        """Each thread ends when it has done its work; nobody waits for that."""
        for _ in range(self._begun):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            context, work, answer = job
            error: BaseException | None = None
            try:
                if not answer.cancelled():
                    context.run(work)
            except BaseException as raised:  # SystemExit too: it ends an attempt, not the thread
                error = raised
            self._tell(answer, error)
            del job, context, work, answer, error  # or they would live until the next job

    def _tell(self, answer: "asyncio.Future[None]", error: BaseException | None) -> None:
        """Wake the loop once for all that ends before it has looked."""
        self._ended.append((answer, error))
        with self._telling:
            if self._told:
                return
            self._told = True
        try:
            self._loop.call_soon_threadsafe(self._look)
        except RuntimeError:  # the loop has been closed: the worker ended without waiting for this one
            return

    def _look(self) -> None:
        with self._telling:
            self._told = False
        while self._ended:
            answer, error = self._ended.popleft()
            self._busy -= 1
            if answer.done():
                continue
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(_bearable(error))


def _bearable(error: BaseException) -> BaseException:
    """What a coroutine can't raise, or what would end the event loop, as an error that says so."""
    if not isinstance(error, StopIteration | KeyboardInterrupt | GeneratorExit):
        return error
    said = RuntimeError(f"{type(error).__name__}: {error}")
    said.__cause__ = error
    return said

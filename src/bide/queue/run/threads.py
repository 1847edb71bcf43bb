"""Threads for sync handlers: so many and no more, begun when they are needed. And the end of what a handler has forked off."""

import asyncio
import contextlib
import contextvars
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn, TypeAlias

from bide.logs import Log
from bide.raised import bearable

_log = Log("bide.worker")
AGAIN = 1.0  # seconds until the next try, when the machine has no thread to give

_Job: TypeAlias = tuple[contextvars.Context, Callable[[], object], "asyncio.Future[None]"]


class Threads:
    """They are daemons: a handler that never comes back does not keep the process from ending."""

    def __init__(self, most: int, loop: asyncio.AbstractEventLoop, changed: Callable[[bool], None] = lambda able: None) -> None:
        self._most = most
        self._loop = loop
        self._changed = changed
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._begun = 0
        self._busy = 0
        self._ended: deque[tuple[asyncio.Future[None], BaseException | None]] = deque()
        self._telling = threading.Lock()
        self._told = False
        self._again: asyncio.TimerHandle | None = None
        self._failing = False
        self._owner = os.getpid()

    def ready(self) -> bool:
        """Whether there is a thread at all. If none can be started, `changed` is told so now, and told when one could be."""
        if not self._begun and not self._begin():
            self._changed(False)
        return bool(self._begun)

    def run(self, work: Callable[[], object]) -> "asyncio.Future[None]":
        """Have a thread do it, in a copy of the caller's context. The caller sees to it that one is free.

        When another thread can't be started, those that are there do it in turn; one has to be: see `ready`.
        """
        answer: asyncio.Future[None] = self._loop.create_future()
        self._busy += 1
        if self._begun < min(self._busy, self._most):
            self._begin()
        self._jobs.put((contextvars.copy_context(), work, answer))
        return answer

    def close(self) -> None:
        """Each thread ends when it has done its work; nobody waits for that."""
        if self._again is not None:
            self._again.cancel()
        for _ in range(self._begun):
            self._jobs.put(None)

    def _begin(self) -> bool:
        """Start a thread. One that does not start is not counted, and tried again in a while."""
        name = f"bide-handler-{self._begun + 1}"
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            if self._again is None:
                self._again = self._loop.call_later(AGAIN, self._try_again)
            if not self._failing:
                self._failing = True
                _log.error(
                    "A thread for sync handlers can't be started, which is tried again and again: %d of %d are there. %s",
                    self._begun,
                    self._most,
                    error,
                )
            return False
        self._begun += 1
        return True

    def _try_again(self) -> None:
        self._again = None
        while self._begun < max(1, min(self._busy, self._most)):
            if not self._begin():
                return
        self._failing = False
        self._changed(True)
        _log.warning("Threads for sync handlers can be started again: %d are there.", self._begun)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            context, work, answer = job
            error: BaseException | None = None
            try:
                if not answer.cancelled():
                    context.run(work)
            except BaseException as raised:  # SystemExit too: it ends an attempt, not the thread
                error = raised
            if os.getpid() != self._owner:
                end_fork(error)
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
                answer.set_exception(bearable(error))


def end_fork(error: BaseException | None) -> NoReturn:
    """End a process that a handler has forked off: it is the handler's child, and no second worker.

    It has come to the handler's end, by this error or without one. Nothing of the worker that it copied is run or closed.
    """
    code = _exit_code(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    """As the interpreter has it."""
    if error is None:
        return 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return (error.code or 0) & 0xFF
    with contextlib.suppress(Exception):
        if isinstance(error, SystemExit):
            sys.stderr.write(f"{error.code}\n")
        else:
            traceback.print_exception(error)
    return 1

"""Ends in time: of a worker, part by part, and of a process, although its event loop is blocked or its logs hang."""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from bide.logs import Log

_log = Log("bide.worker")
LAST_WORDS = 0.4  # seconds: what cancelled handlers get to end in, and then at least the last ends on their way
OVERTIME = 0.85  # seconds after the grace, for all that is left to do then
LEAST = 0.05  # seconds that each part of it gets, also when others have used them up
SILENCE = 3.0  # seconds, or less if the grace is, that a part of the engine gets which does not answer while others do
CLOSING = 2 * LEAST  # seconds of it that are kept for what comes after the last end: heartbeat and engine are closed
AGAIN = 0.1  # seconds until a loop that goes is asked again
LONGEST = OVERTIME + LAST_WORDS  # seconds after the grace that it is asked at all: handlers may block it in many small pieces
FRAMES = 10  # of the blocked loop, that the log shows


class StopWaits:
    """The awaits of a stop: each has a limit, and being cancelled in one of them does not skip those that follow.

    Being cancelled is remembered: it ends the grace, and is passed on when all is done.
    """

    def __init__(self, until: float) -> None:
        """`until`, by the loop's time, is when the grace is over."""
        self._loop = asyncio.get_running_loop()
        self._until = until
        self.silence: float = self._loop.time() + SILENCE  # when what is silent is given up
        self.cancelled: bool = False

    @property
    def left(self) -> float:
        """Seconds of the grace."""
        return max(0.0, self._until - self._loop.time())

    @property
    def is_silence_over(self) -> bool:
        """Whether what is silent has had its time."""
        return self._loop.time() >= self.silence

    @property
    def overtime(self) -> float:
        """Seconds until all should be done; less than none when that is late."""
        return self._until + OVERTIME - self._loop.time()

    async def grace(self, tasks: Iterable["asyncio.Future[Any]"], seconds: float) -> None:
        """Wait for these for so long at most, or for as long as the grace lasts."""
        waiting = [each for each in tasks if not each.done()]
        if waiting:
            try:
                await asyncio.wait(waiting, timeout=min(self.left, seconds))
            except asyncio.CancelledError:
                self.cancelled = True
                self._until = self._loop.time()

    async def go_round(self) -> None:
        """Let the loop do what is to be done at once."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled = True

    async def wait(self, tasks: Iterable["asyncio.Future[Any]"], seconds: float = LAST_WORDS) -> None:
        """Wait for these for so long at most, or for less if little is left."""
        until = self._loop.time() + min(seconds, max(LEAST, self.overtime))
        while waiting := [each for each in tasks if not each.done()]:
            try:
                await asyncio.wait(waiting, timeout=max(0.0, until - self._loop.time()))
            except asyncio.CancelledError:
                self.cancelled = True
            if self._loop.time() >= until:
                return

    async def see_through(self, part: Coroutine[Any, Any, Any]) -> bool:
        """Do a part of the stop, within its limit; whether it came to an end. One that fails does not keep the rest back."""
        task = self._loop.create_task(part)
        await self.wait([task])
        if not task.done():
            return False
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("A part of the worker's end has failed: %s", error, exc_info=error)
        return True


class Deadline:
    """For a process that is bide's to end: when the grace is over and its loop is blocked or too busy, it is not waited for.

    Its thread is there from the start. A signal handler can't start one, since it may have interrupted just that.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, grace: float, give_back: Callable[[], object]) -> None:
        """`give_back` is called in a thread, and what it has not done by then is given up."""
        self._loop = loop
        self._in_loop = threading.get_ident()
        self._grace = grace
        self._give_back = give_back
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bide-deadline", daemon=True)

    def __enter__(self) -> Self:
        with contextlib.suppress(RuntimeError, MemoryError):  # no thread to be had: then a blocked loop is waited for
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._asked.put(False)
        if self._thread.ident is not None:
            self._thread.join(2 * LAST_WORDS)

    def begin(self) -> None:
        """The worker was asked to stop. It takes no lock: a signal handler calls it."""
        self._asked.put(True)

    def _run(self) -> None:
        if not self._asked.get() or self._over.wait(self._grace):
            return
        until = time.monotonic() + LONGEST
        while self._answers() and time.monotonic() < until:
            if self._over.wait(AGAIN):
                return
        give_time(self._end)
        if not self._over.is_set():
            os._exit(0)

    def _answers(self) -> bool:
        """Whether the loop goes round."""
        answered = threading.Event()
        with contextlib.suppress(RuntimeError):  # it has been closed
            self._loop.call_soon_threadsafe(answered.set)
        return answered.wait(LAST_WORDS) or self._over.is_set()

    def _end(self) -> None:
        """What may not come to an end itself: the engine may not answer, and others may hold the locks of logs."""
        blocked = TimeoutError("the event loop is blocked here").with_traceback(_traceback(self._in_loop))
        try:
            self._give_back()
        finally:
            _log.error("The event loop is blocked: the process ends without waiting for it.", exc_info=blocked)
            flush()


def end_process(code: int, say: Callable[[], object] = lambda: None, seconds: float = LAST_WORDS) -> NoReturn:
    """End the process at once, whatever its threads do. What it has to say gets so many seconds."""

    def last_words() -> None:
        try:
            say()
        finally:
            flush()

    try:
        give_time(last_words, seconds)
    finally:
        os._exit(code)


def flush() -> None:
    """Write what logs and streams have buffered. It may hang: call it by `give_time`."""
    for reference in reversed(logging._handlerList):  # type: ignore[attr-defined]  # those that Python flushes when it exits
        handler: logging.Handler | None = reference()
        if handler is not None:
            with contextlib.suppress(Exception):
                handler.acquire()
                try:
                    handler.flush()
                finally:
                    handler.release()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def give_time(part: Callable[[], object], seconds: float = LAST_WORDS) -> bool:
    """Do this in a thread. False: it goes on after so many seconds. If no thread can be started, it is left undone."""
    thread = threading.Thread(target=part, name="bide-last-words", daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return True
    thread.join(seconds)
    return not thread.is_alive()


def _traceback(thread: int) -> TracebackType | None:
    """Where a thread is now."""
    found: TracebackType | None = None
    frame: FrameType | None = sys._current_frames().get(thread)
    for _ in range(FRAMES):
        if frame is None:
            break
        found = TracebackType(found, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return found

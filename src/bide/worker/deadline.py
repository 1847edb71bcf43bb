"""Ends the process of a worker or a supervisor in time, although its event loop is blocked or its logs hang."""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import NoReturn, Self

from bide.logs import Log
from bide.worker.ending import LAST_WORDS, OVERTIME

_log = Log("bide.worker")
AGAIN = 0.1  # seconds until a loop that goes is asked again
LONGEST = OVERTIME + LAST_WORDS  # seconds after the grace that it is asked at all: handlers may block it in many small pieces
FRAMES = 10  # of the blocked loop, that the log shows


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

"""For event loops: threads of our own for what may block, since the loop's executor may be full of the application's work."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from bide.raised import error_text, readable

T = TypeVar("T")
LINGER = 5.0  # seconds that the thread of a queue of work stays with nothing to do


class Apart(Generic[T]):
    """Something that may block, for threads: the caller does it."""

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object] = lambda done: None) -> None:
        self._work = work

    def done(self) -> T:
        """Do it."""
        return self._work()


class AsyncApart(Generic[T]):
    """Something that may block, for event loops: a thread does it. A caller that is cancelled does not cut it short.

    `undo` is called in that thread with what came of it, if the caller was cancelled and has not got it.
    """

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object] = lambda done: None) -> None:
        self._work = work
        self._undo = undo
        self._lock = threading.Lock()
        self._given_up = False
        self._made: list[T] = []

    async def done(self) -> T:
        """Do it. Where no thread can be started it is done here: a loop that stands still for a while is better than none."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        try:
            threading.Thread(target=self._run, args=(loop, answer), name="bide-apart", daemon=True).start()
        except (RuntimeError, MemoryError):
            return self._work()
        try:
            return await answer
        except BaseException:  # cancelled, or dropped by a loop that was closed
            with self._lock:
                self._given_up, made = True, self._made
            for each in made:  # it was on its way here
                self._undo_in_thread(each)
            raise

    def _run(self, loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[T]") -> None:
        try:
            made = self._work()
        except BaseException as error:
            self._tell(loop, answer, answer.set_exception, _tellable(error))
            return
        with self._lock:
            given_up = self._given_up
            self._made = [made]
        if given_up:
            self._undo(made)
        else:
            self._tell(loop, answer, answer.set_result, made)

    def _undo_in_thread(self, made: T) -> None:
        try:
            threading.Thread(target=self._undo, args=(made,), name="bide-apart", daemon=True).start()
        except (RuntimeError, MemoryError):
            self._undo(made)

    @staticmethod
    def _tell(loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[T]", how: Callable[[Any], None], what: Any) -> None:
        def tell() -> None:
            if not answer.done():
                how(what)

        with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(tell)


def _tellable(error: BaseException) -> BaseException:
    """A future can't raise a StopIteration, and looks at what it raises: it is told of in another error."""
    error = readable(error)
    if not isinstance(error, StopIteration):
        return error
    told = RuntimeError(error_text(error))
    told.__cause__ = error
    return told


async def seen_through(doing: "asyncio.Future[T]", cancelled: Callable[["asyncio.Future[T]"], object]) -> T:
    """What comes of it. A caller that is cancelled, however often, waits for its end, and is cancelled then; `cancelled` is
    called with it each time.
    """
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        if not doing.done():
            cancelled(doing)
        while not doing.done():
            try:
                await asyncio.wait({doing})
            except asyncio.CancelledError:
                cancelled(doing)
        if not doing.cancelled():
            doing.exception()  # or Python complains that nobody has asked
        raise
    finally:
        del doing  # it holds the error, whose traceback holds this frame


class SerialThread:
    """Does one thing after the other in a thread, which is begun when there is something and ends a while later."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()  # None: it was closed
        self._thread: threading.Thread | None = None

    async def do(self, work: Callable[[], T]) -> T:
        """Have it done in its turn. What is cancelled before that is not done; without a thread it is done here."""
        answer: Future[T] = Future()
        with self._lock:
            self._jobs.put((work, answer))
            there = self._thread is not None or self._begin()
        if not there:
            self._work_off()
        return await asyncio.wrap_future(answer)

    def close(self) -> None:
        """Have the thread end when it has done what it was asked, without waiting for that. It takes no lock."""
        self._jobs.put(None)

    def _begin(self) -> bool:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            return False
        self._thread = thread
        return True

    def _work_off(self) -> None:
        with suppress(Empty):
            while True:
                if (job := self._jobs.get_nowait()) is not None:
                    _do(*job)

    def _run(self) -> None:
        while True:
            with suppress(Empty):
                if (job := self._jobs.get(timeout=LINGER)) is not None:
                    _do(*job)
                    del job  # or it would live until the next one
                    continue
            with self._lock:
                if self._jobs.empty():
                    self._thread = None
                    return


def _do(work: Callable[[], Any], answer: "Future[Any]") -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        done = work()
    except BaseException as error:
        answer.set_exception(error)
    else:
        answer.set_result(done)

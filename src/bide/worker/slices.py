"""Handlers begin here, one after the other and some at a time: in between, the event loop goes round.

Most handlers of plain tasks have ended by the time they would first wait for something. These are called while a spare task of
the loop is the current one, each in a context of its own. As soon as a handler waits, or anybody else may know the task, it is
not spare any more.
"""

import asyncio
import math
import time
from asyncio import tasks
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextvars import Context, copy_context
from sys import getrefcount
from typing import Any, Protocol, TypeAlias
from weakref import getweakrefcount

from bide.engines.base import MAX_BATCH
from bide.queue.run.message import Handling

LONGEST = 0.005  # seconds that a slice should take, unless a single handler takes longer
FIRST = 16  # handlers in tasks of their own, before it is known how long they take
FEW = 4  # handlers that are not worth a spare task
AGAIN = 1_000  # handlers of a topic that get tasks of their own, after one that has waited for something

Going: TypeAlias = Coroutine[Any, Any, None]
Left: TypeAlias = Awaitable[None] | BaseException
"""What there is to do yet for a handler that has begun: to wait for the rest of it, or to see to what it has raised."""
Begin: TypeAlias = Callable[["asyncio.Task[None]"], tuple[Handling, Going] | None]
"""Gives the next handler, to be called in this task, if there is one."""
Ended: TypeAlias = Callable[[Handling, BaseException | None], bool]
"""Is told that a handler has returned, or has raised; whether nothing is left to do."""


class Calls(Protocol):
    """Who calls handlers, and sees to what becomes of them."""

    def quick(self, handling: Handling) -> Going | None:
        """The handler of a plain task, unless there is anything else to do than to call it."""

    def over(self, handling: Handling, error: BaseException | None) -> bool:
        """That has returned, or has raised: whether nothing is left to do."""

    def handle(self, handling: Handling, left: Left | None = None) -> Going:
        """Do all that there is to do for a message, or what is left of that."""


class Slices:
    """A slice is as large as handlers have been quick."""

    def __init__(self, calls: Calls, slow: Iterable[str], loop: asyncio.AbstractEventLoop) -> None:
        """`slow`: topics whose handlers always need a task of their own."""
        self._calls = calls
        self._slow: dict[str, float] = dict.fromkeys(slow, math.inf)  # and for how many more messages that is so
        self._loop = loop
        self._left: deque[Handling] = deque()
        self._size = FIRST
        self._spare: Spare | None = None
        self._going = False
        self._began = 0.0

    def put(self, handlings: Iterable[Handling]) -> None:
        self._left.extend(handlings)
        if self._left and not self._going:
            self._going = True
            self._next()

    def _next(self) -> None:
        if self._spare is None and len(self._left) >= FEW and self._left[0].topic not in self._slow:
            self._spare = Spare(self._handle, self._loop)
            self._loop.call_soon(self._go)  # after its first step
        else:
            self._go()

    def _go(self) -> None:
        """The loop calls what is put here one after the other, so nothing else is in the time that a slice takes."""
        self._began, alone = time.monotonic(), 0
        try:
            while self._left and alone < self._size:
                if self._spare is not None:
                    if not self._spare.call(self._quick, self._calls.over):
                        self._spare = None
                        break
                    if not self._left or self._is_over():
                        break
                self._alone(self._left.popleft())
                alone += 1
        finally:
            self._loop.call_soon(self._ends, alone)

    def _is_over(self) -> bool:
        return time.monotonic() - self._began >= LONGEST

    def _quick(self, task: "asyncio.Task[None]") -> tuple[Handling, Going] | None:
        """The next one that needs no task of its own, while there is time."""
        left = self._left
        if not left or left[0].topic in self._slow or time.monotonic() - self._began >= LONGEST:
            return None
        going = self._calls.quick(left[0])
        if going is None:
            return None
        handling = left.popleft()
        handling.runner = task
        return handling, going

    def _alone(self, handling: Handling) -> None:
        """With a task of its own."""
        if (more := self._slow.get(handling.topic)) is not None:
            if more > 1:
                self._slow[handling.topic] = more - 1
            else:
                del self._slow[handling.topic]
        handling.runner = asyncio.Task(self._calls.handle(handling), loop=self._loop)

    def _handle(self, handling: Handling, left: Left) -> Going:
        """What is left of one that needs a task after all."""
        if not isinstance(left, BaseException):
            self._slow[handling.topic] = AGAIN
        return self._calls.handle(handling, left)

    def _ends(self, alone: int) -> None:
        """Each handler of the slice has ended, or waits for something."""
        took = time.monotonic() - self._began
        if alone and took > LONGEST:
            self._size = max(1, int(alone * LONGEST / took))
        elif took < LONGEST / 2 and alone == self._size:
            self._size = min(MAX_BATCH, 2 * alone)
        if self._left:
            self._next()
            return
        self._going = False
        if self._spare is not None:
            self._spare.drop()
            self._spare = None


class _Own(asyncio.Task[None]):
    """It notes when somebody makes it his own."""

    used: bool = False

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__("used", True)
        super().__setattr__(name, value)

    def set_name(self, value: object) -> None:
        self.used = True
        super().set_name(value)

    def add_done_callback(self, *args: Any, **options: Any) -> None:
        self.used = True
        super().add_done_callback(*args, **options)


class Spare:
    """It can be used in the next turn of the loop, and not before."""

    def __init__(self, goes_on: Callable[[Handling, Left], Going], loop: asyncio.AbstractEventLoop) -> None:
        """`goes_on` sees to what is left of a handler, in the task."""
        self._goes_on = goes_on
        self._loop = loop
        self._wanted: asyncio.Future[None] = loop.create_future()
        self._for: tuple[Handling, Left] | None = None
        self._task = _Own(self._run(), loop=loop)

    def call(self, begin: Begin, ended: Ended) -> bool:
        """Call handlers, as long as there is one and the task is spare. Whether it still is."""
        return copy_context().run(self._call, begin, ended)

    def _call(self, begin: Begin, ended: Ended) -> bool:
        task, wanted = self._task, self._wanted
        tasks._enter_task(self._loop, task)
        try:
            references, weak = getrefcount(task), getweakrefcount(task)
            while (begun := begin(task)) is not None:
                handling, going = begun
                context = copy_context()
                left: Left | None = None
                try:
                    waits_for = context.run(going.send, None)
                except StopIteration:
                    if not ended(handling, None):
                        left = _nothing()
                except BaseException as error:
                    if not ended(handling, error):
                        left = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
                else:
                    left = _Rest(going, context, waits_for)
                if left is not None:
                    self._for = handling, left
                    break
                del begun, going, context
                if getrefcount(task) != references or getweakrefcount(task) != weak or task.used or wanted.done():
                    break  # somebody knows it, or has cancelled it
            else:
                return True
        finally:
            tasks._leave_task(self._loop, task)
        self.drop()
        return False

    def drop(self) -> None:
        """It is not needed any more, or by one handler only."""
        if not self._wanted.done():
            self._wanted.set_result(None)

    async def _run(self) -> None:
        stopped: BaseException | None = None
        try:
            await self._wanted
        except asyncio.CancelledError as error:
            if self._for is None:
                raise
            stopped = error
        if self._for is not None:
            (handling, left), self._for = self._for, None
            if isinstance(left, _Rest):
                left.stopped = stopped
            await self._goes_on(handling, left)


async def _nothing() -> None:
    """It has returned."""


class _Rest(Awaitable[None]):
    """The rest of a handler, each step in its context."""

    def __init__(self, going: Going, context: Context, waits_for: Any) -> None:
        self._going = going
        self._context = context
        self._waits_for = waits_for
        self.stopped: BaseException | None = None  # its task was cancelled before it has waited for that

    def __await__(self) -> Generator[Any, Any, None]:
        going, context, waits_for, stopped = self._going, self._context, self._waits_for, self.stopped
        if stopped is not None and isinstance(waits_for, asyncio.Future) and waits_for.cancel(*stopped.args):
            stopped = None  # it comes by way of that
        if getattr(waits_for, "_asyncio_future_blocking", None) is not None:
            waits_for._asyncio_future_blocking = True  # another may wait for it since then, which takes that back
        step: Callable[[Any], Any] = going.send
        got: Any = stopped
        try:
            if stopped is not None:
                waits_for = context.run(going.throw, stopped)
            while True:
                try:
                    step, got = going.send, (yield waits_for)
                except BaseException as error:
                    step, got = going.throw, error
                waits_for = context.run(step, got)
        except StopIteration:
            return
        finally:
            self.stopped = stopped = got = None  # an error leads back to this frame

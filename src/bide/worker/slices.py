"""Handlers begin here, one after the other and some at a time: in between, the event loop goes round.

Most handlers of plain tasks have ended by the time they would first wait for something. These are called while a spare task of
the loop is the current one, each in a context of its own. As soon as a handler waits, or anybody else may know the task, it is
not spare any more.
"""

import asyncio
import math
import sys
import time
from asyncio import tasks
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Iterator
from contextvars import Context, copy_context
from operator import attrgetter
from types import coroutine
from typing import Any, Protocol, TypeAlias
from weakref import getweakrefcount

from bide.engines.base import MAX_BATCH
from bide.queue.run.message import Handling, Taken
from bide.worker.slots import Slots

LONGEST = 0.005  # seconds that a slice should take, unless a single handler takes longer
FIRST = 16  # handlers in tasks of their own, before it is known how long they take
FEW = 4  # handlers that are not worth a spare task
AGAIN = 1_000  # handlers of a topic that get tasks of their own, after one that has needed one
SOON = 0.05  # seconds in which what is claimed should begin
LATE = 0.25  # seconds: what was claimed ahead and would begin even later, others may have
SHORTEST = 1e-6  # seconds that a handler takes at least, whatever the clock says
QUICK = 100  # handlers in a row that have waited for nothing: so the next ones are likely to end at once, too

_topic = attrgetter("topic")

Going: TypeAlias = Coroutine[Any, Any, None]
Left: TypeAlias = Awaitable[None] | BaseException
"""What there is to do yet for a handler that has begun: to wait for the rest of it, or to see to what it has raised."""
Begun: TypeAlias = Callable[["asyncio.Task[None]"], Iterator[tuple[Handling, Going]]]
"""Gives the handlers that are to be called in this task."""
Ended: TypeAlias = Callable[[Handling, BaseException | None], bool]
"""Is told that a handler has returned, or has raised; whether nothing is left to do."""


class HandlerCalls(Protocol):
    """Who calls handlers, and sees to what becomes of them."""

    @property
    def quick(self) -> Callable[[Handling], Going | None]:
        """Gives the handler of a plain task, unless there is anything else to do than to call it."""

    @property
    def stopped(self) -> Callable[[], bool]:
        """Whether nothing is to begin any more."""

    def over(self, handling: Handling, error: BaseException | None) -> bool:
        """That has returned, or has raised: whether nothing is left to do."""

    def handle(self, handling: Handling, left: Left | None = None) -> Going:
        """Do all that there is to do for a message, or what is left of that."""

    def begins(self, taken: Taken) -> None:
        """The first handler is called of a claim that has waited for others."""

    def gather(self, mean: float | None = None) -> None:
        """What is over by now is told, all at once. `mean`: seconds that each of its handlers has taken, about."""

    def was_long(self, handling: Handling) -> None:
        """The slice was too long, by its last handler, which has returned: those before it were quick."""

    def give_back(self, handling: Handling) -> None:
        """It has not begun, and another worker may have it."""

    def room_changed(self) -> None:
        """Some have begun: there is room for more."""


class Slices:
    """A slice is as large as handlers have been quick."""

    def __init__(self, calls: HandlerCalls, slots: Slots, slow: Iterable[str], loop: asyncio.AbstractEventLoop) -> None:
        """`slow`: topics whose handlers always need a task of their own."""
        self._calls = calls
        self._slots = slots
        self._slow: dict[str, float] = dict.fromkeys(slow, math.inf)  # and for how many more messages that is so
        self._loop = loop
        self._left: deque[Handling] = deque()
        self._size = FIRST
        self._spare: Spare | None = None
        self._going = False
        self.began: float = 0.0  # of the slice, and about of the handler that has ended it
        self._last: Handling | None = None  # that was called in the spare task
        self._since = 0.0  # the end of the slice before, or what came first
        self._called = 0.0  # seconds that the slice has taken, but for tasks of their own
        self._each = SOON / FIRST  # seconds from one handler to the next lately, with all else that the loop does
        self._own = LONGEST / FIRST  # seconds of these that a slice has taken
        self._careful = 0  # messages before which nothing is claimed ahead
        self._slow_before = False  # the last slice was too slow for what is left
        self._in_a_row = 0  # handlers that have waited for nothing

    @property
    def ahead(self) -> bool:
        """Whether the next messages may be claimed before handlers have been called for what is here."""
        return self._in_a_row >= QUICK and not self._slow and not self._careful

    def take_care(self) -> None:
        """A message has come that has been tried before, or never will be again: a kill should meet few of its kind."""
        self._careful = AGAIN

    @property
    def going(self) -> bool:
        """Whether there is something to do before what is put in now."""
        return self._going

    def room(self) -> int:
        """How many more messages are likely to begin soon: those of one slice at least, however long the loop is elsewhere."""
        soon = max(int(SOON / self._each), int(LONGEST / self._own))
        return max(0 if self._left else 1, soon - len(self._left))

    def put(self, handlings: Iterable[Handling]) -> None:
        self._left.extend(handlings)
        if self._left and not self._going:
            self._going, self._since = True, time.monotonic()
            self._next()

    def _next(self) -> None:
        if self._spare is None and len(self._left) >= FEW and self._left[0].topic not in self._slow:
            self._spare = Spare(self._handle, self._loop)
            self._loop.call_soon(self._go)  # after its first step
        else:
            self._go()

    def _go(self) -> None:
        """One slice."""
        self.began = time.monotonic()
        count, alone = len(self._left), 0
        mean: float | None = None
        most = min(self._size, count - self._slots.beyond)  # for which there are places
        places = self._slots.may_begin(map(_topic, self._left))
        full = [topic for topic, room in places.items() if room <= 0]
        try:
            if most <= 0 or full:  # something waits in all of them, or in all that a topic may have
                count -= self._give_back(full if most > 0 else None)
                self._in_a_row = 0
            elif called := self._call_quick():
                mean = (time.monotonic() - self.began) / called
            else:
                self._loop.call_soon(self._begins)
                while alone < most and places.get(topic := self._left[0].topic, most) > 0:
                    if places:
                        places[topic] -= 1
                    self._alone(self._left.popleft())
                    alone += 1
        finally:
            self._calls.gather(mean)
            self._called = time.monotonic() - self.began
            last, self._last = self._last, None
            if self._called > LONGEST and last is not None and last.told and last.made is None:
                self._calls.was_long(last)
            self._loop.call_soon(self._ends, alone, count - len(self._left))

    def _give_back(self, topics: Collection[str] | None) -> int:
        """What is left of these topics, or all; how much that was."""
        given, kept = list(self._left), list[Handling]()
        if topics is not None:
            given, kept = [each for each in given if each.topic in topics], [each for each in given if each.topic not in topics]
        self._left = deque(kept)
        for each in reversed(given):
            self._calls.give_back(each)
        return len(given)

    def _call_quick(self) -> int:
        """Call those that come first and need no task of their own, while there is time. How many that were."""
        if self._spare is None:
            return 0
        topic, count = self._left[0].topic, len(self._left)
        still = self._spare.call(self._quick, self._calls.over)
        called = count - len(self._left)
        if not still:
            self._spare = None
            if called < FEW:
                self._slow.setdefault(topic, AGAIN)
        return called

    def _begins(self) -> None:
        """The loop calls what is put there one after the other, so nothing else is in the time until they have begun."""
        self.began = time.monotonic()

    def _quick(self, task: "asyncio.Task[None]") -> Iterator[tuple[Handling, Going]]:
        """They are called in this task."""
        left, slow, until = self._left, self._slow, self.began + LONGEST
        quick, stopped, now = self._calls.quick, self._calls.stopped, time.monotonic
        while left and left[0].topic not in slow and (at := now()) < until and not stopped():
            going = quick(left[0])
            if going is None:
                return
            self._last = handling = left.popleft()
            handling.runner = task
            if handling.taken.at_work is not None:
                handling.at_work = at
            if handling.taken.waits:
                self._calls.begins(handling.taken)
            yield handling, going

    def _alone(self, handling: Handling) -> None:
        """With a task of its own."""
        if (more := self._slow.get(handling.topic)) is not None:
            if more > 1:
                self._slow[handling.topic] = more - 1
            else:
                del self._slow[handling.topic]
        if handling.taken.waits:
            self._calls.begins(handling.taken)
        handling.runner = asyncio.Task(self._calls.handle(handling), loop=self._loop)

    def _handle(self, handling: Handling, left: Left) -> Going:
        """What is left of one that needs a task after all."""
        if type(left) is Unfinished and left.waits:
            self._slow[handling.topic] = AGAIN
        return self._calls.handle(handling, left)

    def _ends(self, alone: int, count: int) -> None:
        """Each handler of the slice has ended, or waits for something. `count`: of all; `alone`: with tasks of their own."""
        took = time.monotonic() - self.began if alone else 0.0
        if took > LONGEST:
            self._size = max(1, int(alone * LONGEST / took))
        elif took < LONGEST / 2 and alone == self._size:
            self._size = min(MAX_BATCH, 2 * alone)
        self._in_a_row = 0 if alone else self._in_a_row + count
        self._careful = max(0, self._careful - count)
        if count:
            before, self._since = self._since, time.monotonic()
            each = max(SHORTEST, (self._since - before) / count)
            self._each = (self._each + each) / 2
            self._own = (self._own + max(SHORTEST, (self._called + took) / count)) / 2
            self._share(each)
            self._calls.room_changed()
        if self._left:
            self._next()
            return
        self._going = False
        if self._spare is not None:
            self._spare.drop()
            self._spare = None

    def _share(self, each: float) -> None:
        """Handlers have become slow, twice in a row: what was claimed while they were quick may keep others busy."""
        soon = int(LATE / each) + 1
        slow, self._slow_before = self._slow_before, len(self._left) > soon
        if slow and self._slow_before and self._slots.beyond:
            while len(self._left) > soon:
                self._calls.give_back(self._left.pop())


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
        """`goes_on` sees to what is left of a handler, in the task and in the handler's context."""
        self._goes_on = goes_on
        self._loop = loop
        self._wanted: asyncio.Future[None] = loop.create_future()
        self._for: tuple[Handling, Context, Left] | None = None
        self._task = _Own(self._run(), loop=loop)

    def call(self, begun: Begun, ended: Ended) -> bool:
        """Call handlers, as long as there is one and the task is spare. Whether it still is."""
        if self._wanted.done() or self._task.done() or self._task.cancelling():  # somebody has cancelled it
            return False
        return copy_context().run(self._call, begun, ended)

    def _call(self, begun: Begun, ended: Ended) -> bool:
        task, wanted = self._task, self._wanted
        tasks._enter_task(self._loop, task)
        try:
            handlers = begun(task)
            references, weak = sys.getrefcount(task), getweakrefcount(task)
            for handling, going in handlers:
                context = copy_context()
                left: Left | None = None
                try:
                    waits_for = context.run(going.send, None)
                except StopIteration:
                    if not ended(handling, None):
                        left = Unfinished(None)
                except BaseException as error:
                    if not ended(handling, error):
                        left = _from_handler(error)
                else:
                    left = Unfinished(going, waits_for)
                if left is not None:
                    self._for = handling, context, left
                    break
                del going, context
                if sys.getrefcount(task) != references or getweakrefcount(task) != weak or task.used or wanted.done():
                    break  # somebody knows it, or has cancelled it
            else:
                return True
        finally:
            left = None  # what was raised may lead back to this frame
            tasks._leave_task(self._loop, task)
        self.drop()
        return False

    def drop(self) -> None:
        """It is not needed any more, or by one handler only."""
        if not self._wanted.done():
            self._wanted.set_result(None)

    async def _run(self) -> None:
        try:
            await self._wanted
        except asyncio.CancelledError as error:
            if self._for is None:
                raise
            left = self._for[2]
            if type(left) is Unfinished:
                left.stopped = error
            del left
        if self._for is not None:
            (handling, context, left), self._for = self._for, None
            going = self._goes_on(handling, left)
            del left
            await _within(context, going)


def _from_handler(error: BaseException) -> BaseException:
    """Without the frame of the caller, whatever its class has made of its attributes."""
    traceback = sys.exc_info()[2]
    return BaseException.with_traceback(error, traceback and traceback.tb_next)


@coroutine
def _within(context: Context, going: Going) -> Generator[Any, Any, None]:
    """Each step of a coroutine in this context."""
    step: Callable[[Any], Any] = going.send
    got: Any = None
    try:
        while True:
            waits_for = context.run(step, got)
            try:
                step, got = going.send, (yield waits_for)
            except BaseException as error:
                step, got = going.throw, error
    except StopIteration:
        return
    finally:
        step, got = going.send, None  # an error leads back to this frame


class Unfinished:
    """The rest of a handler that waits for something, if there is any."""

    def __init__(self, going: Going | None, waits_for: Any = None) -> None:
        self._going = going
        self._waits_for = waits_for
        self.waits: bool = going is not None
        self._blocking = getattr(waits_for, "_asyncio_future_blocking", None)
        self.stopped: BaseException | None = None  # its task was cancelled before it has waited for that

    def __await__(self) -> Generator[Any, Any, None]:
        going, waits_for, got = self._going, self._waits_for, self.stopped
        self.stopped = self._waits_for = None
        if going is None:
            return
        if got is not None and isinstance(waits_for, asyncio.Future) and waits_for.cancel(*got.args):
            got = None  # it comes by way of that
        if self._blocking:
            waits_for._asyncio_future_blocking = True  # another may wait for it since then, which takes that back
        try:
            while True:
                if got is None:
                    try:
                        yield waits_for
                    except BaseException as error:
                        got = error
                waits_for, got = (going.send(None) if got is None else going.throw(got)), None
        except StopIteration:
            return
        finally:
            got = None  # an error leads back to this frame

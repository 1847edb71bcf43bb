"""Many callers, few calls. In an event loop what gathers while a call is under way goes into the next one, with no
added wait; a thread makes its calls itself.

Each part of the engine has a line of its own, so that one that does not answer holds up none of the others.
"""

import abc
import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from bide.engines.base import ANY_PART, MAX_BATCH
from bide.errors import BadMessage, OutcomeUnknown, Unavailable, Unsupported

E = TypeVar("E")
T = TypeVar("T")
R = TypeVar("R")
PATIENCE = 0.2  # seconds for a call that any part may answer, before the next one begins beside it
CLOSING = 5.0  # seconds that a close sees to what waits for a part of the engine which may not answer
LOOK = 0.1  # seconds between two looks at a call to one part of several, and longer where answers usually take longer:
SLOW = 2  # times that. A call that two looks have found is stalled: what needs only other parts goes on without it
SLOWEST = 1.0  # seconds that an answer counts for, which may have come after the part was away
SHARE = 8  # the usual time is an average, to which each answer adds one part in so many
BESIDE = 8  # calls at most that may be left behind like this


class Batching(Generic[T, R]):
    def __init__(self, call: Callable[[Sequence[T]], Sequence[R]], part_of: Callable[[T], Hashable]) -> None:
        """`part_of` is for event loops."""
        self._call = call

    def add(self, item: T) -> R:
        return self._call([item])[0]

    def close(self, until: float) -> None:
        """Nothing is ever on its way here."""


class Line(Generic[E]):
    """What waits for one part of the engine. What gathers while a call is under way goes into the next one."""

    def __init__(self, part: Hashable, collector: "Collector[E]") -> None:
        self.part: Hashable = part
        self._collector = collector
        self._singly = 0  # so many go into calls of their own
        self.waiting: list[E] = []
        self.under_way: list[E] = []
        self.caller: asyncio.Future[None] | None = None  # its task, or until a sender that came alone has its answer
        self.stalled: bool = False  # its part has not answered for a while
        self._looks = 0  # since its part answered
        self._repeats = False  # its last call was for nothing
        self._alarm: asyncio.TimerHandle | None = None

    def begin(self) -> "asyncio.Future[None]":
        if self.caller is None:  # a factory of the loop's may begin a task before it gives it
            apart = contextvars.Context()  # what goes out together is of many: nobody's spans and variables are for all of it
            self.caller = asyncio.Task(self._work(), loop=asyncio.get_running_loop(), context=apart)
        return self.caller

    async def _work(self) -> None:
        try:
            while self.waiting:
                size = 1 if self._singly else MAX_BATCH
                self._singly = max(0, self._singly - 1)
                self.under_way, self.waiting = self.waiting[:size], self.waiting[size:]
                self._repeats, began = False, time.monotonic()
                if self._alarm is None and self.part is not None:
                    self._watch()
                await self._collector.one_call(self, self.under_way)
                self.under_way = []
                if not self._repeats:
                    self._collector.usual += (min(time.monotonic() - began, SLOWEST) - self._collector.usual) / SHARE
                    self._goes_on()
        finally:
            self.caller = None
            self._goes_on()
            self._collector.over(self)

    def _watch(self) -> None:
        self._alarm = asyncio.get_running_loop().call_later(LOOK + SLOW * self._collector.usual, self._look)

    def _look(self) -> None:
        """The first look may be late, when a handler has blocked the loop: then the answer may be there unread."""
        self._watch()
        self._looks += 1
        self.stalled = self._looks > 1
        if self.stalled:
            self._collector.stalls(self)

    def _goes_on(self) -> None:
        self.stalled, self._looks = False, 0
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def bring_again(self, batch: list[E], *, singly: bool = False) -> None:
        """Have a batch go first into the next calls; one by one if one of it may be why its call broke down."""
        self.under_way, self._repeats = [], True
        self.waiting[:0] = batch
        if singly:
            self._singly = len(batch)

    def bring_last(self, batch: list[E]) -> None:
        """Have a batch go again when all that waits has had its call."""
        self.under_way, self._repeats = [], True
        self.waiting += batch


class Collector(abc.ABC, Generic[E]):
    """A line for each part of the engine, made when there is something for it."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, Line[E]] = {}
        self.usual: float = 0.0  # seconds until a part answers

    @property
    def lines(self) -> list[Line[E]]:
        return list(self._lines.values())

    def put(self, entry: E) -> None:
        self.put_in(self.part_of(entry), entry)

    def put_all(self, entries: Sequence[E]) -> None:
        """The same for several at once."""
        if self.part_of(entries[0]) is not None:
            for entry in entries:
                self.put(entry)
            return
        self.put(entries[0])
        self._lines[None].waiting.extend(entries[1:])

    def put_in(self, part: Hashable, entry: E) -> None:
        line = self._lines.get(part)
        if line is None:
            line = self._lines[part] = Line(part, self)
        line.waiting.append(entry)
        if line.caller is None:
            line.begin()

    def part_of(self, entry: E) -> Hashable:
        """Which part of the engine it concerns; the same for all where there is only one."""
        return None

    def over(self, line: Line[E]) -> None:
        """A line has nothing left, or its caller was stopped."""
        if line.waiting:
            self.stopped(line)
        if not line.waiting and line.part is not None:
            self._lines.pop(line.part, None)

    @property
    def busy(self) -> bool:
        """Whether something is on its way."""
        return any(line.caller is not None for line in self.lines)

    async def emptied(self) -> None:
        """Wait until nothing is on its way."""
        while callers := [line.caller for line in self.lines if line.caller is not None and not line.caller.done()]:
            await asyncio.wait(callers)

    def drop(self) -> None:
        """Give up what is left."""
        for line in self.lines:
            if line.caller is not None:
                line.caller.cancel()

    @abc.abstractmethod
    async def one_call(self, line: Line[E], batch: list[E]) -> None: ...

    def stalls(self, line: Line[E]) -> None:
        """A part of several has not answered for a while. This is called again and again until it does."""

    def stopped(self, line: Line[E]) -> None:
        """The loop was stopped before all of a line were called for."""


class AsyncBatching(Collector[tuple[T, "asyncio.Future[R]"]], Generic[T, R]):
    def __init__(self, call: Callable[[Sequence[T]], Awaitable[Sequence[R]]], part_of: Callable[[T], Hashable]) -> None:
        super().__init__()
        self._call = call
        self._part_of = part_of
        self._closed = False
        self._beside: set[asyncio.Task[None]] = set()

    def add(self, item: T) -> Awaitable[R]:
        """The answer for one item, to be awaited at once. A caller that is cancelled before its call began takes its item back.

        A caller that has come alone, to an engine of one part, makes the call itself.
        """
        part = self._part_of(item)
        line = self._lines.get(part)
        if part is None and (line is None or line.caller is None) and not self._closed:
            return self._alone(item)
        return self._begin(part, item)

    def begin(self, item: T) -> "asyncio.Future[R]":
        """The same, for a caller that does not wait."""
        return self._begin(self._part_of(item), item)

    def _begin(self, part: Hashable, item: T) -> "asyncio.Future[R]":
        if self._closed:
            raise Unavailable("The queue is closed: make a new one.")
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.put_in(part, (item, answer))
        return answer

    async def _alone(self, item: T) -> R:
        line = self._lines.get(None)
        if line is None:
            line = self._lines[None] = Line(None, self)
        if self._closed or line.caller is not None:  # since it was added
            return await self._begin(None, item)
        loop = asyncio.get_running_loop()
        line.caller = alone = loop.create_future()
        try:
            await asyncio.sleep(0)  # those who are about to come do so now
            if not line.waiting:
                [own] = await self._call([item])
                return own
            answer: asyncio.Future[R] = loop.create_future()
            line.waiting.insert(0, (item, answer))
        except OutcomeUnknown as error:
            if not error.answers or error.answers[0] is None:
                raise _own(error, 0) from error.__cause__
            [own] = error.answers
            return own
        except GeneratorExit:  # the loop has gone
            self.stopped(line)
            raise
        finally:
            line.caller = None
            if not alone.done():
                alone.set_result(None)
            if line.waiting:
                line.begin()
        return await answer

    def part_of(self, entry: "tuple[T, asyncio.Future[R]]") -> Hashable:
        return self._part_of(entry[0])

    async def close(self, until: float) -> None:
        """Take no more, and see what has gathered through to its answers. What waits for one part of several, which may not
        answer, is given up at `until`, monotonic.
        """
        self._closed = True
        while left := self._for_parts():
            await asyncio.wait(left, timeout=max(0.0, until - time.monotonic()))
            if time.monotonic() >= until:
                for each in left:
                    each.cancel()
                if left := self._for_parts():
                    await asyncio.wait(left)
        await self.emptied()

    def _for_parts(self) -> "list[asyncio.Future[None]]":
        """The calls that wait for one part of several."""
        return [line.caller for line in self.lines if line.caller is not None and line.part is not None] + list(self._beside)

    def drop(self) -> None:
        super().drop()
        for each in self._beside:
            each.cancel()

    def stopped(self, line: "Line[tuple[T, asyncio.Future[R]]]") -> None:
        for _, answer in line.waiting:
            _fail(answer, OutcomeUnknown("The event loop was stopped before this was sent."))
        line.waiting.clear()

    async def one_call(self, line: "Line[tuple[T, asyncio.Future[R]]]", batch: "list[tuple[T, asyncio.Future[R]]]") -> None:
        if line.part != ANY_PART:
            await self._ask(batch)
            return
        asking = asyncio.Task(self._ask(batch), loop=asyncio.get_running_loop())
        self._beside.add(asking)
        asking.add_done_callback(self._beside.discard)
        try:
            await asyncio.wait({asking}, timeout=PATIENCE)
            if len(self._beside) > BESIDE:  # no part answers
                await asyncio.wait(self._beside, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            asking.cancel()
            raise

    async def _ask(self, batch: "list[tuple[T, asyncio.Future[R]]]") -> None:
        items: list[T] = []
        futures: list[asyncio.Future[R]] = []
        for item, future in batch:
            if not future.cancelled():
                items.append(item)
                futures.append(future)
        if not items:
            return
        try:
            answers = await self._call(items)
        except (BadMessage, Unsupported) as error:  # one of them, and nothing was done: the others can be
            if len(items) == 1:
                _fail(futures[0], error)
            else:
                await self._one_by_one(list(zip(items, futures, strict=True)))
        except OutcomeUnknown as error:
            _tell_unknown(futures, error)
        except Exception as error:
            for future in futures:
                _fail(future, error)
        except BaseException:  # cancelled, or interrupted by Ctrl-C in a loop that may be run again
            for future in futures:
                _fail(future, OutcomeUnknown("The event loop was stopped while this was on its way: it may have happened."))
            raise
        else:
            for future, answer in zip(futures, answers, strict=True):
                _answer(future, answer)

    async def _one_by_one(self, batch: "list[tuple[T, asyncio.Future[R]]]") -> None:
        try:
            for each in batch:
                await self._ask([each])
        except BaseException:
            for _, future in batch:
                _fail(future, OutcomeUnknown("The event loop was stopped before this was sent."))
            raise


def joined(parts: Iterable[Hashable]) -> Hashable:
    """Several parts that one call concerns."""
    found = frozenset(parts)
    return None if None in found else found


def _tell_unknown(futures: "list[asyncio.Future[R]]", error: OutcomeUnknown) -> None:
    """Each caller is told the operation of its own message."""
    for i, future in enumerate(futures):
        if i < len(error.answers) and error.answers[i] is not None:
            _answer(future, error.answers[i])
        else:
            _fail(future, _own(error, i))


def _own(error: OutcomeUnknown, i: int) -> OutcomeUnknown:
    """That of one of a batch."""
    return type(error)(str(error), error.operations[i]) if i < len(error.operations) else error


def _answer(future: "asyncio.Future[R]", answer: R) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: "asyncio.Future[R]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)

"""Many callers, few calls. In an event loop what gathers while a call is under way goes into the next one, with no
added wait; a thread makes its calls itself.
"""

import abc
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from bide.engines.base import MAX_BATCH
from bide.errors import OutcomeUnknown, Unavailable, Unsupported

E = TypeVar("E")
T = TypeVar("T")
R = TypeVar("R")


class Batching(Generic[T, R]):
    def __init__(self, call: Callable[[Sequence[T]], Sequence[R]]) -> None:
        self._call = call

    def add(self, item: T) -> R:
        return self._call([item])[0]

    def close(self) -> None:
        """Nothing is ever on its way here."""


class Collector(abc.ABC, Generic[E]):
    """What gathers while a call is under way goes into the next one."""

    def __init__(self) -> None:
        self._singly = 0  # so many go into calls of their own
        self.waiting: list[E] = []
        self.under_way: list[E] = []
        self.caller: asyncio.Task[None] | None = None

    def put(self, entry: E) -> None:
        self.waiting.append(entry)
        if self.caller is None:
            self.begin()

    def begin(self) -> "asyncio.Task[None]":
        if self.caller is None:  # a factory of the loop's may begin a task before it gives it
            self.caller = asyncio.Task(self._work(), loop=asyncio.get_running_loop())
        return self.caller

    async def _work(self) -> None:
        try:
            while self.waiting:
                size = 1 if self._singly else MAX_BATCH
                self._singly = max(0, self._singly - 1)
                self.under_way, self.waiting = self.waiting[:size], self.waiting[size:]
                await self.one_call(self.under_way)
                self.under_way = []
        finally:
            self.caller = None
            if self.waiting:
                self.stopped()

    async def emptied(self) -> None:
        """Wait until nothing is on its way."""
        while self.caller is not None:
            await asyncio.shield(self.caller)

    def drop(self) -> None:
        """Give up what is left."""
        if self.caller is not None:
            self.caller.cancel()

    @abc.abstractmethod
    async def one_call(self, batch: list[E]) -> None: ...

    def bring_again(self, batch: list[E], *, singly: bool = False) -> None:
        """Have a batch go first into the next calls; one by one if one of it may be why its call broke down."""
        self.under_way = []
        self.waiting[:0] = batch
        if singly:
            self._singly = len(batch)

    def bring_last(self, batch: list[E]) -> None:
        """Have a batch go again when all that waits has had its call."""
        self.under_way = []
        self.waiting += batch

    def stopped(self) -> None:
        """The loop was stopped before all were called for."""


class AsyncBatching(Collector[tuple[T, "asyncio.Future[R]"]], Generic[T, R]):
    def __init__(self, call: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        super().__init__()
        self._call = call
        self._closed = False
        self._apart: set[asyncio.Task[None]] = set()

    def add(self, item: T) -> "asyncio.Future[R]":
        """The answer for one item. A caller that is cancelled before its call began takes its item back."""
        if self._closed:
            raise Unavailable("The queue is closed: make a new one.")
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.put((item, answer))
        return answer

    async def close(self) -> None:
        """Take no more, and see what has gathered through to its answers."""
        self._closed = True
        await self.emptied()
        while self._apart:
            await asyncio.wait(self._apart)

    def stopped(self) -> None:
        for _, answer in self.waiting:
            _fail(answer, OutcomeUnknown("The event loop was stopped before this was sent."))
        self.waiting.clear()

    async def one_call(self, batch: list[tuple[T, "asyncio.Future[R]"]]) -> None:
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
        except Unsupported as error:  # one of them, before the engine was called: the others can be done
            if len(items) == 1:
                _fail(futures[0], error)
            else:
                await self._one_by_one(list(zip(items, futures, strict=True)))
        except OutcomeUnknown as error:
            self._unknown(items, futures, error)
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

    def _unknown(self, items: list[T], futures: "list[asyncio.Future[R]]", error: OutcomeUnknown) -> None:
        """Each caller is told the operation of its own message."""
        for i, future in enumerate(futures):
            own = type(error)(str(error), error.operations[i]) if i < len(error.operations) else error
            if i < len(error.answers) and error.answers[i] is not None:
                _answer(future, error.answers[i])
            elif i not in error.untried:
                _fail(future, own)
        if error.untried:  # a part of the engine does not answer: others don't wait for what waits for that
            rest = asyncio.get_running_loop().create_task(self.one_call([(items[i], futures[i]) for i in error.untried]))
            self._apart.add(rest)
            rest.add_done_callback(self._apart.discard)

    async def _one_by_one(self, batch: list[tuple[T, "asyncio.Future[R]"]]) -> None:
        try:
            for each in batch:
                await self.one_call([each])
        except BaseException:
            for _, future in batch:
                _fail(future, OutcomeUnknown("The event loop was stopped before this was sent."))
            raise


def _answer(future: "asyncio.Future[R]", answer: R) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: "asyncio.Future[R]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)

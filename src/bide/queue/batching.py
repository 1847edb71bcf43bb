"""Many callers, few calls. In an event loop what gathers while a call is under way goes into the next one, with no
added wait; a thread makes its calls itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from bide.engines.base import MAX_BATCH
from bide.errors import OutcomeUnknown, Unavailable

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


class Batches(Generic[E]):
    """What gathers while a call is under way goes into the next one."""

    def __init__(self) -> None:
        self._size = MAX_BATCH  # of the next call
        self._waiting: list[E] = []
        self._under_way: list[E] = []
        self._caller: asyncio.Task[None] | None = None

    def _add(self, entry: E) -> None:
        self._waiting.append(entry)
        if self._caller is None:
            self._begin()

    def _begin(self) -> "asyncio.Task[None]":
        self._caller = self._caller or asyncio.get_running_loop().create_task(self._work())
        return self._caller

    async def _work(self) -> None:
        try:
            while self._waiting:
                self._under_way, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
                await self._one_call(self._under_way)
                self._under_way = []
        finally:
            self._caller = None
            self._stopped()

    async def _one_call(self, batch: list[E]) -> None:
        raise NotImplementedError

    def _stopped(self) -> None:
        """The last call has ended, or the loop has stopped them."""


class AsyncBatching(Batches[tuple[T, "asyncio.Future[R]"]], Generic[T, R]):
    def __init__(self, call: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        super().__init__()
        self._call = call
        self._closed = False

    def add(self, item: T) -> "asyncio.Future[R]":
        """The answer for one item. A caller that is cancelled before its call began takes its item back."""
        if self._closed:
            raise Unavailable("The queue is closed: make a new one.")
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._add((item, answer))
        return answer

    async def close(self) -> None:
        """Take no more, and see what has gathered through to its answers."""
        self._closed = True
        if self._caller is not None:
            await asyncio.shield(self._caller)

    def _stopped(self) -> None:
        for _, answer in self._waiting:
            _fail(answer, OutcomeUnknown("The event loop was stopped before this was sent."))
        self._waiting.clear()

    async def _one_call(self, batch: list[tuple[T, "asyncio.Future[R]"]]) -> None:
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
        except asyncio.CancelledError:
            for future in futures:
                _fail(future, OutcomeUnknown("The event loop was stopped while this was on its way: it may have happened."))
            raise
        except OutcomeUnknown as error:  # each caller is told the operation of its own message
            for i, future in enumerate(futures):
                own = OutcomeUnknown(str(error), error.operations[i]) if i < len(error.operations) else error
                _fail(future, own)
        except Exception as error:
            for future in futures:
                _fail(future, error)
        else:
            for future, answer in zip(futures, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


def _fail(future: "asyncio.Future[R]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)

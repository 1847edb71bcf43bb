# unasync: ../sync/results.py
"""Kept results of an open engine, what a send of a task with keep= returns, and messages that wait for others."""

import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeAlias, TypeVar, overload

from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Move, Ref, Stored
from bide.engines.results import Arrival, Dependent, Expected, Follow, Result
from bide.errors import EngineError, Unavailable
from bide.logs import Log
from bide.queue.batching import AsyncBatching
from bide.queue.envelope import check_known
from bide.queue.results import never_kept, not_kept, pause, pending, undone
from bide.queue.setup import Setup
from bide.types import Duration, Sent
from bide.wakeable import AsyncSignal, Wakeable

_log = Log("bide.queue")


class AsyncOpenResults:
    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._expects: AsyncBatching[Expected, None] = AsyncBatching(self._expect, lambda each: engine.part_of(Ref(each.id)))
        self._reads: AsyncBatching[str, Result | None] = AsyncBatching(engine.results.read, lambda id: engine.part_of(Ref(id)))
        self._gets: AsyncBatching[Ref, Stored | None] = AsyncBatching(engine.get, engine.part_of)
        self._asleep: set[Wakeable] = set()  # those that wait for results
        self._ended = False

    def end_waits(self) -> None:
        """Whoever waits for a result is told that the queue is closed."""
        self._ended = True
        for each in list(self._asleep):
            each.set()

    async def close(self, until: float) -> None:
        self.end_waits()
        for batching in (self._expects, self._reads, self._gets):
            await batching.close(until)

    async def expect(self, expected: Sequence[Expected], connection: object | None) -> None:
        """Remember that these were sent. They were: if this fails, only less can be told of them."""
        if connection is not None:
            for first in range(0, len(expected), MAX_BATCH):
                await self._engine.results.expect(expected[first : first + MAX_BATCH], connection=connection)
            return
        try:
            if len(expected) == 1:
                await self._expects.add(expected[0])
            else:
                for first in range(0, len(expected), MAX_BATCH):
                    await self._engine.results.expect(expected[first : first + MAX_BATCH])
        except EngineError as error:
            _log.warning("It could not be noted that results are to be kept: %s", error)

    async def _expect(self, expected: Sequence[Expected]) -> Sequence[None]:
        await self._engine.results.expect(expected)
        return [None] * len(expected)

    async def wait(self, id: str, timeout: float | None, setup: Setup, stored_as: str | None = None) -> bytes:
        """What the task of a message returned, as it was kept. It looks ever less often. Raises NoResult."""
        began = time.monotonic()
        while True:
            known, stored = await self._look(id, stored_as or id)
            if known is not None and known.done:
                if known.value is None:
                    raise not_kept(id)
                return known.value
            if (error := undone(id, stored, known)) is not None:
                raise error
            assert stored is not None, "what is neither done nor stored has no result"
            if setup.tasks.keeps_nothing(stored.topic):
                raise never_kept(stored.topic)
            waited = time.monotonic() - began
            if timeout is not None and waited >= timeout:
                raise pending(id, stored)
            seconds = pause(waited, stored, setup.now_ms())
            await self._sleep(seconds if timeout is None else min(seconds, timeout - waited))

    async def _sleep(self, seconds: float) -> None:
        signal = AsyncSignal()
        self._asleep.add(signal)
        try:
            if not self._ended:
                await signal.wait(seconds)
        finally:
            self._asleep.discard(signal)
        if self._ended:
            raise Unavailable("The queue is closed: make a new one.")

    async def _look(self, id: str, stored_as: str) -> tuple[Result | None, Stored | None]:
        """A value is kept before its message ends: so where there is no message, the second look at its result is right."""
        known = await self._reads.add(id)
        if known is not None and known.done:
            return known, None
        stored = await self._gets.add(Ref(stored_as))
        return (known, stored) if stored is not None else (await self._reads.add(id), None)


R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Ask: TypeAlias = Callable[[str, Duration | None], Awaitable[Any]]


class AsyncTaskSent(Sent, Generic[R_co], frozen=True, dict=True, gc=True):
    """What a send of a task with `keep=` returns: a Sent, and its equal, that knows its queue. Pickled, it is a Sent."""

    @overload
    async def result(self: "AsyncTaskSent[Coroutine[Any, Any, T]]", *, timeout: Duration | None = None) -> T: ...
    @overload
    async def result(self: "AsyncTaskSent[T]", *, timeout: Duration | None = None) -> T: ...
    async def result(self, *, timeout: Duration | None = None) -> Any:
        """Return what the task returned, once the message is done. Wait at most for `timeout`; 0 looks once.

        Raises the same errors as `queue.result`.
        """
        ask: Ask | None = vars(self).get("ask")
        if ask is None:  # a copy with other values
            return super().result(timeout=timeout)
        return await ask(self.id, timeout)

    def _plain(self) -> Sent:
        return Sent(self.id, self.topic, self.due, self.outcome)

    def __eq__(self, other: object) -> bool:
        return self._plain() == (other._plain() if isinstance(other, AsyncTaskSent) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._plain())

    def __copy__(self) -> Self:
        return self

    def __reduce__(self) -> Any:
        return self._plain().__reduce__()


def askable(sent: Iterable[Sent], keeps: Mapping[str, int], ask: Ask) -> list[Sent]:
    """What was sent; where its task keeps results, as what can be asked for them."""
    return [_of(each, ask) if each.topic in keeps else each for each in sent]


def _of(sent: Sent, ask: Ask) -> AsyncTaskSent[Any]:
    made: AsyncTaskSent[Any] = AsyncTaskSent(sent.id, sent.topic, sent.due, sent.outcome)
    vars(made)["ask"] = ask
    return made


class AsyncDependents:
    """Each step may be repeated. If whoever calls dies in between, the message is delivered at its deadline."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def check(self, on: Sequence[str]) -> None:
        """Refuse to wait for what nobody would tell of."""
        check_known(on, await self._engine.results.read(on))

    async def wait(self, sent: Sent, on: Sequence[str]) -> None:
        """Have a message called that was sent. What was done meanwhile is told by `follow`, and the rest by who does it."""
        results = self._engine.results
        await results.expect([Dependent(sent.id, tuple(on), sent.due)])
        told = await results.follow([Follow(sent.id, each, sent.due) for each in on])
        await self.arrive([Arrival(sent.id, each) for each, done in zip(on, told, strict=True) if done])

    async def left(self, on: Sequence[str], connection: object) -> list[str]:
        """Of these, those that are not done before the caller's transaction has ended."""
        told = await self._engine.results.follow([Follow("", each, 0) for each in on], connection=connection)
        check_known(on, told)
        return [each for each, done in zip(on, told, strict=True) if not done]

    async def join(self, sent: Sent, left: Sequence[str], connection: object) -> None:
        """Have a message called that was sent in the caller's transaction."""
        await self._engine.results.expect([Dependent(sent.id, tuple(left), sent.due)], connection=connection)

    async def arrive(self, arrivals: Sequence[Arrival]) -> None:
        """Call those that have nothing left to wait for. They are forgotten when they were called, and not before."""
        for first in range(0, len(arrivals), MAX_BATCH):
            some = arrivals[first : first + MAX_BATCH]
            told = await self._engine.results.arrive(some)
            ready = list(dict.fromkeys(each.dependent for each, is_ready in zip(some, told, strict=True) if is_ready))
            if ready:
                await self._engine.reschedule([Move(Ref(each)) for each in ready])
                await self._engine.results.arrive([Arrival(each, None) for each in ready])

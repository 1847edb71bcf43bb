# unasync: ../sync/keeping.py
"""Kept results of an open engine. What many callers ask at once goes into one call."""

import time
from collections.abc import Sequence

from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Ref, Stored
from bide.engines.results import Expected, Result
from bide.errors import EngineError, Unavailable
from bide.logs import Log
from bide.queue.batching import AsyncBatching
from bide.queue.results import never_kept, not_kept, pause, pending, undone
from bide.queue.setup import Setup
from bide.wakeable import AsyncSignal, Wakeable

_log = Log("bide.queue")


class AsyncKeeping:
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

    async def tidy(self) -> None:
        """Remove all that is over."""
        while await self._engine.results.tidy():
            pass

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

# Generated from ../aio/keeping.py by tools/unasync.py; change that file instead.
"""Kept results of an open engine. What many callers ask at once goes into one call."""

import time
from collections.abc import Sequence

from bide.engines.base import MAX_BATCH, Ref, Stored
from bide.engines.results import Expected, Result
from bide.engines.sync import Engine
from bide.errors import EngineError, Unavailable
from bide.logs import Log
from bide.queue.batching import Batching
from bide.queue.results import never_kept, not_kept, pause, pending, undone
from bide.queue.setup import Setup
from bide.wakeable import Signal, Wakeable

_log = Log("bide.queue")


class Keeping:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._expects: Batching[Expected, None] = Batching(self._expect, lambda each: engine.part_of(Ref(each.id)))
        self._reads: Batching[str, Result | None] = Batching(engine.results.read, lambda id: engine.part_of(Ref(id)))
        self._gets: Batching[Ref, Stored | None] = Batching(engine.get, engine.part_of)
        self._asleep: set[Wakeable] = set()  # those that wait for results
        self._ended = False

    def end_waits(self) -> None:
        """Whoever waits for a result is told that the queue is closed."""
        self._ended = True
        for each in list(self._asleep):
            each.set()

    def close(self, until: float) -> None:
        self.end_waits()
        for batching in (self._expects, self._reads, self._gets):
            batching.close(until)

    def expect(self, expected: Sequence[Expected], connection: object | None) -> None:
        """Remember that these were sent. They were: if this fails, only less can be told of them."""
        if connection is not None:
            for first in range(0, len(expected), MAX_BATCH):
                self._engine.results.expect(expected[first : first + MAX_BATCH], connection=connection)
            return
        try:
            if len(expected) == 1:
                self._expects.add(expected[0])
            else:
                for first in range(0, len(expected), MAX_BATCH):
                    self._engine.results.expect(expected[first : first + MAX_BATCH])
        except EngineError as error:
            _log.warning("It could not be noted that results are to be kept: %s", error)

    def _expect(self, expected: Sequence[Expected]) -> Sequence[None]:
        self._engine.results.expect(expected)
        return [None] * len(expected)

    def tidy(self) -> None:
        """Remove all that is over."""
        while self._engine.results.tidy():
            pass

    def wait(self, id: str, timeout: float | None, setup: Setup, stored_as: str | None = None) -> bytes:
        """What the task of a message returned, as it was kept. It looks ever less often. Raises NoResult."""
        began = time.monotonic()
        while True:
            known, stored = self._look(id, stored_as or id)
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
            self._sleep(seconds if timeout is None else min(seconds, timeout - waited))

    def _sleep(self, seconds: float) -> None:
        signal = Signal()
        self._asleep.add(signal)
        try:
            if not self._ended:
                signal.wait(seconds)
        finally:
            self._asleep.discard(signal)
        if self._ended:
            raise Unavailable("The queue is closed: make a new one.")

    def _look(self, id: str, stored_as: str) -> tuple[Result | None, Stored | None]:
        """A value is kept before its message ends: so where there is no message, the second look at its result is right."""
        known = self._reads.add(id)
        if known is not None and known.done:
            return known, None
        stored = self._gets.add(Ref(stored_as))
        return (known, stored) if stored is not None else (self._reads.add(id), None)

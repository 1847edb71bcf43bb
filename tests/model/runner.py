"""Runs an engine and the model side by side: calls each verb of the engine, and shows its answer to the model.

With several colours there are as many clients of the same messages; `use` says which one makes the next calls.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from bide.engines.aio import AsyncEngine
from bide.engines.base import (
    MAX_BATCH,
    Capabilities,
    Claimed,
    End,
    Hold,
    Move,
    NewMessage,
    Ref,
    Seen,
    Stored,
    Swept,
    Tended,
    Window,
)
from bide.engines.registry import Guarded, Source
from bide.errors import BideError
from bide.testing.contract import Recoloured
from bide.types import State
from tests.model.expected import Divergence, Expected, insist
from tests.model.model import Model

T = TypeVar("T")

BEGIN = 4_000_000_000_000  # an instant that no clock has reached: engine time never goes back
ROUNDS = 1_000  # an engine that asks for more calls than this has a bug
LOOKS_AGAIN = 10_000  # ms, as parts/layout.lua has it: see Model; the other engines know at once
STATES: tuple[State, ...] = ("scheduled", "ready", "leased", "dead")


class MakeSource(Protocol):
    """Makes a source without messages, which keeps `dead_max` dead letters of a topic, for `dead_for` milliseconds."""

    def __call__(self, *, dead_for: int, dead_max: int) -> Source: ...


class Runner:
    """Raises Divergence as soon as the engine's answer is not what the model allows."""

    def __init__(self, make_source: MakeSource, *colours: str, dead_for: int, dead_max: int) -> None:
        made = make_source(dead_for=dead_for, dead_max=dead_max)
        looks_again = LOOKS_AGAIN if "redis" in made.shown.partition("://")[0] else 0
        self.source: Source = Guarded(made)
        self.colours: Sequence[str] = colours
        self.can: Capabilities = self.source.capabilities
        self.model: Model = Model(self.can, dead_for=dead_for, dead_max=dead_max, looks_again=looks_again)
        self.expected: Expected = self.model.expected
        self.clock: int = BEGIN
        self._loop = asyncio.new_event_loop()
        self._client = 0
        self._told: list[set[int | None]] = [set() for _ in colours]  # when each client was told to come back
        self._engines = [self._opened(colour) for colour in colours]

    @property
    def _engine(self) -> AsyncEngine:
        return self._engines[self._client]

    def use(self, client: int) -> None:
        self._client = client

    def end(self) -> None:
        for engine in self._engines:
            self._do(engine.close())
        self._do(self._loop.shutdown_default_executor())
        self._loop.close()

    def reopen(self, *, overlap: bool) -> None:
        """Go on with another engine of the same source."""
        before, colour = self._engine, self.colours[self._client]
        self._told[self._client].clear()
        if not overlap:
            self._do(before.close())
        self._engines[self._client] = self._opened(colour)
        if overlap:
            self._do(before.close())

    def put(self, batch: Sequence[NewMessage]) -> None:
        self.model.put(batch, self.clock, self._do(self._engine.put(batch, now=self.clock)))

    def claim(self, topics: Sequence[str], limit: int, lease: int, request: str | None = None) -> Sequence[Claimed]:
        answer = self._do(self._engine.claim(topics, limit, lease, request=request, now=self.clock))
        others = {due for client, dues in enumerate(self._told) if client != self._client for due in dues}
        self.model.claim(topics, limit, lease, request, self.clock, answer, others)
        self._told[self._client].add(answer.next_due)
        return answer.messages

    def settle(self, ends: Sequence[End]) -> None:
        ends = [each for each in ends if self.can.fencing or self.model.held(each)]
        self.model.settle(ends, self.clock, self._do(self._engine.settle(ends, now=self.clock)))

    def extend(self, holds: Sequence[Hold], lease: int) -> None:
        holds = [each for each in holds if self.can.fencing or self.model.held(each)]
        self.model.extend(holds, lease, self.clock, self._do(self._engine.extend(holds, lease, now=self.clock)))

    def cancel(self, refs: Sequence[Ref]) -> None:
        self.model.cancel(refs, self.clock, self._do(self._engine.cancel(refs, now=self.clock)))

    def cancel_seen(self, refs: Sequence[Ref], seen: Sequence[Seen]) -> None:
        most = self._engine.capabilities.together
        refs, seen = refs[:most], seen[:most]
        self.model.cancel_seen(refs, seen, self.clock, self._do(self._engine.cancel(refs, seen=seen, now=self.clock)))

    def reschedule(self, moves: Sequence[Move]) -> None:
        self.model.reschedule(moves, self.clock, self._do(self._engine.reschedule(moves, now=self.clock)))

    def tend(self, budget: int = 1_000, ended_by: int | None = None) -> None:
        """Until nothing is left to do."""
        pages: list[Tended] = []
        while (not pages or pages[-1].more) and len(pages) < ROUNDS:
            pages.append(self._do(self._engine.tend(budget, ended_by=ended_by, now=self.clock)))
        topics = {each.topic for each in self.expected.messages.values()}
        left = [each.id for topic in topics for each in self._scan(topic, "dead")] if self.can.inspect else None
        self.model.tend(budget, self.clock, pages, left, ended_by)

    def requeue(self, topic: str, ids: Sequence[str] | None, delay: int, over: int, limit: int) -> None:
        self._settle_dead()
        answer = self._do(self._engine.requeue(topic, ids, delay=delay, over=over, limit=limit, now=self.clock))
        self.model.requeue(topic, ids, (delay, over), limit, self.clock, answer, self._scan(topic, None))

    def purge(self, topic: str, state: State, limit: int = 1_000) -> None:
        """Until nothing is left."""
        if state in ("scheduled", "ready") and self.model.vague(topic, self.clock):
            return
        self._settle_dead()
        pages: list[Swept] = []
        while (not pages or pages[-1].more) and len(pages) < ROUNDS:
            pages.append(self._do(self._engine.purge(topic, state, limit=limit, now=self.clock)))
        self.model.purge(topic, state, limit, self.clock, pages)

    def purge_named(self, topic: str, ids: Sequence[str], limit: int) -> None:
        self._settle_dead()
        answer = self._do(self._engine.purge(topic, "dead", ids, limit=limit, now=self.clock))
        self.model.purge_named(topic, ids, limit, self.clock, answer, self._scan(topic, "dead"))

    def pause(self, topic: str, paused: bool) -> None:
        self._do(self._engine.pause(topic, paused))
        self.model.pause(topic, paused)

    def put_refused(self, error: type[BideError], batch: Sequence[NewMessage]) -> None:
        self._refused(error, self._engine.put(batch, now=self.clock))

    def reschedule_refused(self, error: type[BideError], moves: Sequence[Move]) -> None:
        self._refused(error, self._engine.reschedule(moves, now=self.clock))

    def purge_refused(self, error: type[BideError], topic: str, state: State, ids: Sequence[str] | None = None) -> None:
        self._refused(error, self._engine.purge(topic, state, ids, now=self.clock))

    def glance(self, topics: Sequence[str], keys: Sequence[str]) -> None:
        """Look without a tend before, and only at what is certain then."""
        if not self.model.leaving.overfull(self.clock):
            self._get(topics, keys)
            if self.can.inspect and not self.model.leaving.fading(self.clock):
                self.model.stats(None, None, self.clock, self._do(self._engine.stats(now=self.clock)))

    def look(self, topics: Sequence[str], keys: Sequence[str], window: Window, page: int = MAX_BATCH) -> None:
        """Tend, then look at everything."""
        self.tend()
        self._get(topics, keys)
        if not self.can.inspect:
            return
        for one in (None, *topics):
            self.model.stats(one, window, self.clock, self._do(self._engine.stats(one, window=window, now=self.clock)))
        for topic in topics:
            for state in (None, *STATES):
                self.model.scan(topic, state, self.clock, self._scan(topic, state, page))

    def drain(self, topics: Sequence[str]) -> None:
        """Move the time until every message has been claimed and has ended."""
        for topic in topics if self.can.pause else ():
            self.pause(topic, False)
        while set(self.expected.living()) - set(self.expected.dead()):
            self.clock = max(self.clock, *self.model.moments())
            self.tend()
            self.settle([End(each.topic, each.id, each.token, "done") for each in self.claim(topics, 100, 1)])
        for topic in topics if self.can.inspect else ():
            self.purge(topic, "dead")

    def _opened(self, colour: str) -> AsyncEngine:
        engine = self.source.aio() if colour == "async" else Recoloured(self.source.sync())
        self._do(engine.open())
        return engine

    def _do(self, call: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(call)

    def _refused(self, error: type[BideError], call: Coroutine[Any, Any, object]) -> None:
        try:
            answer = self._do(call)
        except error:
            return
        raise Divergence(f"{answer} came where {error.__name__} was due.")

    def _settle_dead(self) -> None:
        """An engine may drop dead letters before tend is called. After tend, their number is certain."""
        if self.model.leaving.overfull(self.clock):
            self.tend()

    def _get(self, topics: Sequence[str], keys: Sequence[str]) -> None:
        if self.can.lookup:
            ids = [*self.expected.living(), *list(self.expected.messages)[-5:]]
            refs = [
                *(Ref(each) for each in ids),
                *(Ref(topic=topic, key=key) for topic in topics for key in keys if self.can.keys),
            ]
            self.model.get(refs, self.clock, self._do(self._engine.get(refs, now=self.clock)))

    def _scan(self, topic: str, state: State | None, page: int = MAX_BATCH) -> list[Stored]:
        """All pages."""
        found: list[Stored] = []
        after: str | None = None
        for _ in range(ROUNDS):
            answer = self._do(self._engine.scan(topic, state, page, after, now=self.clock))
            insist(len(answer.messages) <= page, f"scan: a page of {len(answer.messages)}, asked were {page}.")
            found += answer.messages
            after = answer.after
            if after is None:
                return found
        raise Divergence(f"scan: {topic} {state} has no last page.")

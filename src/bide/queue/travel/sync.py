# Generated from aio.py by tools/unasync.py; change that file instead.
"""Moves a queue's ManualClock from one due time to the next, with the upkeep that real time would have brought."""

from typing import TYPE_CHECKING

from bide.clock import ManualClock
from bide.core.when import duration_ms
from bide.engines.sync import Engine
from bide.errors import ConfigError
from bide.queue.travel import Handled
from bide.types import Duration

if TYPE_CHECKING:
    from bide.queue.sync import Verbs


class Travel:
    def __init__(self, queue: "Verbs") -> None:
        self._queue = queue

    def advance(self, by: Duration) -> list[Handled]:
        """Let so much time pass, stopping wherever a message falls due; what fell due, in that order.

        Receivers that sleep are woken at each stop. Leases that end on the way come back, and what expires expires.
        """
        clock = self._queue._setup.clock
        if not isinstance(clock, ManualClock):
            raise ConfigError("Time travel needs a clock that can be moved: Queue('memory://', clock=ManualClock()).")
        engine = self._queue._engine()
        until = clock.now_ms + duration_ms(by)
        handled: list[Handled] = []
        while True:
            due = engine.stats().next_due
            clock.set_ms(until if due is None else min(due, until))
            _tend_all(engine)
            if due is None or due > until:
                return handled
            handled += _fell_due(engine, due)


def _tend_all(engine: Engine) -> None:
    while engine.tend().more:
        pass


def _fell_due(engine: Engine, due: int) -> list[Handled]:
    """The messages that are ready since this very instant."""
    found = []
    for topic in engine.stats().topics:
        after = None
        while True:
            page = engine.scan(topic, "ready", 1_000, after)
            found += [Handled(topic, stored.id, "ready") for stored in page.messages if stored.due == due]
            after = page.after
            if after is None:
                break
    return found

# Generated from aio.py by tools/unasync.py; change that file instead.
"""Moves a queue's ManualClock from one due time to the next, with the upkeep and the work that real time would have brought."""

import logging
from typing import TYPE_CHECKING

from bide.clock import ManualClock
from bide.core.when import duration_ms
from bide.engines.sync import Engine
from bide.errors import ConfigError
from bide.queue.deliveries import error_text
from bide.queue.deliveries.sync import Delivery
from bide.queue.tasks.arguments import Unfit
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.outcome import Outcome, outcome
from bide.queue.travel import Handled
from bide.queue.travel.calling import Calling
from bide.queue.travel.memory import InMemory
from bide.types import Duration

if TYPE_CHECKING:
    from bide.queue.twins import Queue

_log = logging.getLogger("bide.testing")
_DAY = 86_400_000
MOST_AT_ONCE = 100_000
_SAID = {"done": "done", "retry": "retry", "release": "snoozed", "dead": "dead"}


class Travel(InMemory):
    """`queue.testing`: time travel, and the application's own queue in memory."""

    def __init__(self, queue: "Queue") -> None:
        super().__init__(queue)
        self._queue = queue
        self._calling = Calling(queue)

    def advance(self, by: Duration) -> list[Handled]:
        """Let so much time pass, stopping wherever a message falls due; what was handled or fell due, in that order.

        Messages that have a task are handled, one after the other, with its retries and their waits; what is due
        already comes first, so `advance(0)` handles just that. While a handler runs the clock stands still, so timeouts
        never come. Receivers that sleep are woken at each stop. Leases that end on the way come back, and what expires
        expires.
        """
        clock = self._queue._setup.clock
        if not isinstance(clock, ManualClock):
            raise ConfigError(
                "Time travel needs a clock that can be moved: use the fixture, `with queue.testing.in_memory():`, "
                "or Queue('memory://', clock=ManualClock())."
            )
        engine = self._queue._engine()
        until = clock.now_ms + duration_ms(by)
        handled = self._handle_ready()
        while True:
            due = engine.stats().next_due
            clock.set_ms(until if due is None else min(due, until))
            _tend_all(engine)
            if due is not None and due <= until:
                handled += self._fell_due(engine, due)
            handled += self._handle_ready()
            if due is None or due > until:
                return handled

    def close(self) -> None:
        """Let go of what handlers were called with."""
        self._calling.close()

    def _handle_ready(self) -> list[Handled]:
        """Handle what is due and has a task, until nothing is left; handlers may send more."""
        tasks = self._queue._setup.tasks
        handled: list[Handled] = []
        if not list(tasks):
            return handled
        intake = self._queue._taking()
        while True:
            claim = intake.claim(list(tasks), 1, _DAY)
            for delivery in intake.open(claim):
                task = tasks.get(delivery.topic)
                assert task is not None
                handled.append(self._handle(task, delivery))
            if not claim.messages:
                return handled
            if len(handled) >= MOST_AT_ONCE:
                raise ConfigError(
                    f"{len(handled):,} messages were handled without time passing, so this may never end. "
                    f"Does {handled[-1].topic} snooze for no time, or send itself without a delay?"
                )

    def _handle(self, task: Definition, delivery: Delivery) -> Handled:
        try:
            arguments = task.arguments.read(delivery.body)
        except Unfit as unfit:
            return self._end(delivery, Outcome("dead", 0, error_text(str(unfit))), unfit)
        try:
            self._calling.check(task)
        except ConfigError:
            delivery.release()
            raise
        error = self._calling.call(task, arguments, delivery)
        became = outcome(error, task, delivery.attempt, delivery.waited_ms)
        if became.verdict in ("retry", "dead"):
            _log.error("Message %s of %s failed in attempt %d", delivery.id, delivery.topic, delivery.attempt, exc_info=error)
        return self._end(delivery, became, error)

    def _end(self, delivery: Delivery, became: Outcome, error: BaseException | None) -> Handled:
        if delivery.ended:
            return Handled(delivery.topic, delivery.id, "ended", error)
        engine = self._queue._engine()
        [answer] = engine.settle([delivery.end(*became)])
        delivery.mark_ended()
        said = answer if answer in ("dead", "expired") else _SAID[became.verdict]
        return Handled(delivery.topic, delivery.id, said, error)

    def _fell_due(self, engine: Engine, due: int) -> list[Handled]:
        """The messages that are ready since this very instant, and that no task is for."""
        found = []
        for topic in engine.stats().topics:
            after = None
            while self._queue._setup.tasks.get(topic) is None:
                page = engine.scan(topic, "ready", 1_000, after)
                found += [Handled(topic, stored.id, "ready") for stored in page.messages if stored.due == due]
                after = page.after
                if after is None:
                    break
        return found


def _tend_all(engine: Engine) -> None:
    while engine.tend().more:
        pass

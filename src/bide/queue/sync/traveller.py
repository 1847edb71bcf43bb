# Generated from ../aio/traveller.py by tools/unasync.py; change that file instead.
"""What becomes of messages with a task while time travels: their gates, the call of their handler, and their ends."""

import contextlib
import math
from collections.abc import Mapping, Sequence

from bide.engines.sync import Engine
from bide.errors import BideError, Unavailable
from bide.logs import Log
from bide.queue.deliveries import Raised
from bide.queue.run import StepName, first_step, passage_of
from bide.queue.run.message import Handling, batches_of
from bide.queue.run.passage import Passage
from bide.queue.run.sync.keep import KeepStep
from bide.queue.run.sync.limits import LimitsStep, leave
from bide.queue.run.sync.overdue import OverdueStep
from bide.queue.run.sync.schedule import ScheduleStep
from bide.queue.setup import Setup
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.planner import Planner
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.outcome import DONE, Outcome, spent, unread
from bide.queue.travel import Handled
from bide.queue.travel.invoke import Invoke

_log = Log("bide.testing")
DAY = 86_400_000
_SAID = {"done": "done", "retry": "retry", "release": "snoozed", "dead": "dead"}


class Traveller:
    def __init__(self, engine: Engine, setup: Setup, invoke: Invoke, overdue: OverdueStep) -> None:
        self._engine = engine
        self._invoke = invoke
        self._limits = LimitsStep(engine, DAY)
        self._keep_step = KeepStep(engine, setup.envelope)
        self._steps: Mapping[StepName, ScheduleStep | OverdueStep] = {
            "schedule": ScheduleStep(engine, setup, Planner(engine, setup, alone=True)),
            "overdue": overdue,
        }

    def handle(self, task: Definition, taken: Sequence[Delivery]) -> list[Handled]:
        """Messages whose handling is broken off are given back, and may be handled again at once."""
        handlings = [self._invoke.handling(task, delivery) for delivery in taken]
        try:
            if task.batch is not None:
                return self._in_batches(handlings)
            return [self._handled(handling) for handling in handlings]
        except BaseException:
            for handling, delivery in zip(handlings, taken, strict=True):
                if not handling.ended:
                    with contextlib.suppress(BideError):
                        delivery.release()
            raise

    def _handled(self, handling: Handling) -> Handled:
        if (held_back := self._held_back(handling)) is not None:
            return held_back
        self._invoke.check(handling.task)
        with contextlib.suppress(Unread):  # the call of its handler says so
            handling.read()
        try:
            passage = passage_of(handling)
        except Unread as error:
            return self._ended(handling, unread(error, handling.claimed, handling.now, by_chance=False), error)
        if passage is None:
            return self._call(handling)[0]
        try:
            if (waits := self._waits(passage, handling)) is not None:
                return waits
            return self._call(handling)[0]
        finally:
            leave(self._engine, passage.held)

    def _held_back(self, handling: Handling) -> Handled | None:
        """What becomes of a message that has had its attempts, or that a step leaves out or puts off; for others, None."""
        delivery = handling.delivery
        if (over := spent(delivery.attempt, delivery.max_attempts)) is not None:
            return self._end(handling, over, None)
        step = first_step(handling.task, handling.claimed, handling.now)
        if step is None:
            return None
        [became] = self._steps[step].decide([handling])
        if became is None:
            return None
        return self._settle(handling, became, None)._replace(outcome="left out" if became is DONE else "waits")

    def _waits(self, passage: Passage, handling: Handling) -> Handled | None:
        """What becomes of a message that may not pass the limits of its task; for others, None."""
        delivery = handling.delivery
        if self._limits.through([passage], lambda: handling.now):
            raise Unavailable(f"The engine has not answered whether a message of {delivery.topic} may pass its limits.")
        refused = passage.refused
        if refused is None:
            return None
        if passage.again:
            refused = refused._replace(delay=math.ceil(passage.again * 1000), aside=True)
        held_back = self._end(handling, refused, None)
        return held_back if refused.verdict == "dead" else held_back._replace(outcome="waits")

    def _in_batches(self, handlings: Sequence[Handling]) -> list[Handled]:
        """In one call of the handler, but for those on their last attempt: as a worker does."""
        handled: list[Handled] = []
        members: list[Handling] = []
        for handling in handlings:
            refused = self._refused(handling)
            if refused is None:
                members.append(handling)
            else:
                handled.append(refused)
        for batch in batches_of(members):
            handled += self._call(batch)
        return handled

    def _refused(self, handling: Handling) -> Handled | None:
        """What becomes of a message that joins no batch; for others, None."""
        if (held_back := self._held_back(handling)) is not None:
            return held_back
        try:
            handling.read()
        except Unread:
            return self._call(handling)[0]
        passage = passage_of(handling)
        return None if passage is None else self._waits(passage, handling)

    def _call(self, called: Handling) -> list[Handled]:
        """The handler of a message, or of a batch."""
        self._invoke.check(called.task)
        ends = self._invoke.call(called)
        error = ends[0][1]
        together = len(ends) > 1 and error is not None and all(each is error for _, each in ends)
        if together:
            _log.error("%s failed", called, exc_info=error)
        members = [each for each, _ in called.each(None)]
        return [self._ended(each, *end, told=together) for each, end in zip(members, ends, strict=True)]

    def _ended(self, handling: Handling, became: Outcome, error: BaseException | None, *, told: bool = False) -> Handled:
        delivery = handling.delivery
        if became is DONE and handling.task.keep is not None:
            self._keep(handling, handling.task.keep)
        elif isinstance(error, Unread):
            _log.error("Message %s of %s does not fit: %s", delivery.id, delivery.topic, error)
        elif became.verdict in ("retry", "dead") and not told:
            _log.error("Message %s of %s failed in attempt %d", delivery.id, delivery.topic, delivery.attempt, exc_info=error)
        end = self._end(handling, became, error)
        return end._replace(outcome="waits") if isinstance(error, Unread) and became.verdict == "release" else end

    def _keep(self, handling: Handling, lasts: int) -> None:
        """Keep what its handler returned, and call those that have waited for it."""
        kept = self._keep_step.kept(handling, lasts)
        if kept is not None:
            [arrivals] = self._keep_step.fulfil([kept])
            self._keep_step.arrive(arrivals)

    def _end(self, handling: Handling, became: Outcome, error: BaseException | None) -> Handled:
        """A task is told that its message becomes a dead letter, and why, whatever the reason; before the engine is told."""
        if became.buries(handling.delivery.attempt, handling.delivery.max_attempts) and not handling.ended:
            self._invoke.tell_dead(handling, became)
        return self._settle(handling, became, error)

    def _settle(self, handling: Handling, became: Outcome, error: BaseException | None) -> Handled:
        delivery = handling.delivery
        if handling.ended:
            return Handled(delivery.topic, delivery.id, "ended", error)
        inside = delivery._internals
        [answer] = self._engine.settle([inside.end(*became, raised=None if error is None else Raised(error))])
        inside.mark_ended()
        said = answer if answer in ("dead", "expired", "lost") else _SAID[became.verdict]
        return Handled(delivery.topic, delivery.id, said, error)

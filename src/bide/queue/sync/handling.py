# Generated from ../aio/handling.py by tools/unasync.py; change that file instead.
"""What becomes of messages with a task while time travels: their gates, the call of their handler, and their ends."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bide.core.amounts import plural
from bide.engines.base import Ref
from bide.engines.results import Kept
from bide.engines.sync import Engine
from bide.errors import BideError, Unavailable
from bide.logs import Log
from bide.queue.attempts import Raised
from bide.queue.deliveries import Together, returned_of
from bide.queue.results import encoded
from bide.queue.run import StepName, first_step
from bide.queue.run.sync.limits import LimitsStep
from bide.queue.run.sync.overdue import OverdueStep
from bide.queue.run.sync.schedule import ScheduleStep
from bide.queue.setup import Setup
from bide.queue.sync.calling import leave
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.depending import Dependents
from bide.queue.sync.keeping import Keeping
from bide.queue.sync.planning import Planner
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.failed import failures
from bide.queue.tasks.items import called_alone
from bide.queue.tasks.outcome import DONE, Outcome, outcome, spent, unread
from bide.queue.tasks.passing import Passage
from bide.queue.travel import Handled
from bide.queue.travel.invoke import Invoke

_log = Log("bide.testing")
DAY = 86_400_000
_SAID = {"done": "done", "retry": "retry", "release": "snoozed", "dead": "dead"}


class Going(NamedTuple):
    """A message under way."""

    task: Definition
    delivery: Delivery


class Handling:
    def __init__(self, engine: Engine, setup: Setup, invoke: Invoke, overdue: OverdueStep) -> None:
        self._engine = engine
        self._setup = setup
        self._invoke = invoke
        self._limits = LimitsStep(engine, DAY)
        self._steps: Mapping[StepName, ScheduleStep | OverdueStep] = {
            "schedule": ScheduleStep(engine, setup, Planner(engine, setup, alone=True)),
            "overdue": overdue,
        }

    def handle(self, task: Definition, taken: Sequence[Delivery]) -> list[Handled]:
        """Messages whose handling is broken off are given back, and may be handled again at once."""
        for delivery in taken:
            delivery.most = task.attempts(delivery.claimed)
        try:
            if task.batch is not None:
                return self._in_batches(task, taken)
            return [self._handled(task, delivery) for delivery in taken]
        except BaseException:
            for delivery in taken:
                if not delivery.ended:
                    with contextlib.suppress(BideError):
                        delivery.release()
            raise

    def _handled(self, task: Definition, delivery: Delivery) -> Handled:
        if (held_back := self._held_back(task, delivery)) is not None:
            return held_back
        passage = None
        try:
            arguments = task.arguments.of_message(delivery.body)
            passage = self._passage(task, delivery, arguments)
        except Unread as error:
            return self._unread(task, delivery, error)
        self._invoke.check(task)
        if passage is None:
            return self._call(task, delivery, arguments)
        try:
            if (waits := self._waits(passage, task, delivery)) is not None:
                return waits
            return self._call(task, delivery, arguments)
        finally:
            leave(self._engine, passage.held)

    def _held_back(self, task: Definition, delivery: Delivery) -> Handled | None:
        """What becomes of a message that has had its attempts, or that a step leaves out or puts off; for others, None."""
        if (over := spent(delivery.attempt, delivery.max_attempts)) is not None:
            return self._end(task, delivery, over, None)
        step = first_step(task, delivery.claimed, delivery.now)
        if step is None:
            return None
        [became] = self._steps[step].decide([Going(task, delivery)])
        if became is None:
            return None
        return self._settle(delivery, became, None)._replace(outcome="left out" if became is DONE else "waits")

    def _passage(self, task: Definition, delivery: Delivery, arguments: dict[str, Any]) -> Passage | None:
        """Raises Unread."""
        if task.limits is None:
            return None
        return Passage(task.limits, delivery.claimed, task.arguments.with_defaults(arguments))

    def _waits(self, passage: Passage, task: Definition, delivery: Delivery) -> Handled | None:
        """What becomes of a message that may not pass the limits of its task; for others, None."""
        if self._limits.through([passage], lambda: delivery.now):
            raise Unavailable(f"The engine has not answered whether a message of {delivery.topic} may pass its limits.")
        refused = passage.refused
        if refused is None:
            return None
        if passage.again:
            refused = refused._replace(delay=math.ceil(passage.again * 1000), aside=True)
        held_back = self._end(task, delivery, refused, None)
        return held_back if refused.verdict == "dead" else held_back._replace(outcome="waits")

    def _in_batches(self, task: Definition, taken: Sequence[Delivery]) -> list[Handled]:
        """In one call of the handler, but for those on their last attempt: as a worker does."""
        handled: list[Handled] = []
        together: list[Delivery] = []
        alone: list[list[Delivery]] = []
        for delivery in taken:
            refused = self._refused(task, delivery)
            if refused is not None:
                handled.append(refused)
            elif called_alone(delivery.attempt, delivery.max_attempts):
                alone.append([delivery])
            else:
                together.append(delivery)
        for batch in ([together] if together else []) + alone:
            handled += self._call_batch(task, batch)
        return handled

    def _refused(self, task: Definition, delivery: Delivery) -> Handled | None:
        """What becomes of a message that joins no batch; for others, None."""
        if (held_back := self._held_back(task, delivery)) is not None:
            return held_back
        try:
            delivery.arguments = arguments = task.arguments.of_message(delivery.body)
        except Unread as error:
            return self._unread(task, delivery, error)
        passage = self._passage(task, delivery, arguments)
        return None if passage is None else self._waits(passage, task, delivery)

    def _call_batch(self, task: Definition, batch: Sequence[Delivery]) -> list[Handled]:
        self._invoke.check(task)
        failed: list[dict[int, BaseException]] = [{}]
        [name] = task.arguments.named
        items = [each.arguments[name] for each in batch if each.arguments]

        def answered(answer: Any) -> None:
            failed[:] = [failures(answer, items, task.name)]

        error = self._invoke.call(task.telling(answered), {name: list(items)}, Together(batch))
        if error is not None:
            _log.error("A batch of %s of %s failed", plural(len(batch), "message"), batch[0].topic, exc_info=error)
            return [self._ended(task, each, error, told=True) for each in batch]
        return [self._ended(task, each, failed[0].get(place)) for place, each in enumerate(batch)]

    def _call(self, task: Definition, delivery: Delivery, arguments: dict[str, Any]) -> Handled:
        raised = self._invoke.call(task, arguments, delivery)
        if task.keep is not None and raised is None:
            self._keep(delivery, task.name, task.keep)
        return self._ended(task, delivery, raised)

    def _keep(self, delivery: Delivery, name: str, lasts: int) -> None:
        """Keep what its handler returned, unless that has ended the delivery by itself, and not because its work is done."""
        if not delivery.ended or (self._engine.get([Ref(delivery.id)]))[0] is None:
            value = encoded(self._setup.envelope, returned_of(delivery), name, delivery.id)
            kept = Kept(delivery.id, lasts, value, delivery.claimed.token)
            Keeping(self._engine, Dependents(self._engine)).fulfil([kept])

    def _unread(self, task: Definition, delivery: Delivery, unfit: Unread) -> Handled:
        """Of one that can't be read, as the middleware sees it, too."""
        raised: BaseException | None = unfit
        if self._setup.middleware:
            self._invoke.check(task)
            raised = self._invoke.call(task, unfit, delivery)
        if raised is not unfit:
            return self._ended(task, delivery, raised)
        _log.error("Message %s of %s does not fit: %s", delivery.id, delivery.topic, unfit)
        became = unread(unfit, delivery.claimed, delivery.now, by_chance=False)
        told = self._end(task, delivery, became, unfit)
        return told if became.verdict == "dead" else told._replace(outcome="waits")

    def _ended(self, task: Definition, delivery: Delivery, raised: BaseException | None, *, told: bool = False) -> Handled:
        became = outcome(raised, task, delivery.attempt, delivery.tried_ms, by_chance=False)
        if became.verdict in ("retry", "dead") and not told:
            _log.error("Message %s of %s failed in attempt %d", delivery.id, delivery.topic, delivery.attempt, exc_info=raised)
        return self._end(task, delivery, became, raised)

    def _end(self, task: Definition, delivery: Delivery, became: Outcome, error: BaseException | None) -> Handled:
        """A task is told that its message becomes a dead letter, and why, whatever the reason; before the engine is told."""
        buries = became.buries(delivery.attempt, delivery.max_attempts) and not delivery.ended
        failed = self._invoke.tell_dead(task, delivery, became.error or "") if buries else None
        if failed is not None:
            _log.error("The on_dead of %s failed for message %s", task.name, delivery.id, exc_info=failed)
        return self._settle(delivery, became, error)

    def _settle(self, delivery: Delivery, became: Outcome, error: BaseException | None) -> Handled:
        if delivery.ended:
            return Handled(delivery.topic, delivery.id, "ended", error)
        [answer] = self._engine.settle([delivery.end(*became, raised=None if error is None else Raised(error))])
        delivery.mark_ended()
        said = answer if answer in ("dead", "expired", "lost") else _SAID[became.verdict]
        return Handled(delivery.topic, delivery.id, said, error)

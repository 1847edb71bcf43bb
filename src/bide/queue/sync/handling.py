# Generated from ../aio/handling.py by tools/unasync.py; change that file instead.
"""What becomes of messages with a task while time travels: their gates, the call of their handler, and their ends."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

from bide.core.amounts import plural
from bide.engines.base import Ref
from bide.engines.results import Kept
from bide.engines.sync import Engine
from bide.errors import BideError
from bide.logs import Log
from bide.queue.attempts import Raised
from bide.queue.deliveries import PLANNED, Together, returned_of
from bide.queue.results import encoded
from bide.queue.setup import Setup
from bide.queue.sync.calling import leave
from bide.queue.sync.catching_up import CatchingUp
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


class Handling:
    def __init__(self, engine: Engine, setup: Setup, invoke: Invoke, catching_up: CatchingUp) -> None:
        self._engine = engine
        self._setup = setup
        self._invoke = invoke
        self._catching_up = catching_up

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
        if (over := spent(delivery.attempt, delivery.max_attempts)) is not None:
            return self._end(task, delivery, over, None)
        if PLANNED in delivery.headers:
            [call] = Planner(self._engine, self._setup, alone=True).follow([delivery.claimed], delivery.now)
            if not call:
                return self._settle(delivery, DONE, None)._replace(outcome="left out")
        if (late := self._overdue(task, delivery)) is not None:
            return late
        passage = None
        try:
            arguments = task.arguments.of_message(delivery.body)
            if task.limits is not None:
                passage = Passage(task.limits, delivery.claimed, task.arguments.with_defaults(arguments))
        except Unread as error:
            return self._unread(task, delivery, error)
        self._invoke.check(task)
        if passage is None:
            return self._call(task, delivery, arguments)
        try:
            refused = self._pass(passage, delivery.now)
            if refused is not None:
                held_back = self._end(task, delivery, refused, None)
                return held_back if refused.verdict == "dead" else held_back._replace(outcome="waits")
            return self._call(task, delivery, arguments)
        finally:
            leave(self._engine, passage.held)

    def _in_batches(self, task: Definition, taken: Sequence[Delivery]) -> list[Handled]:
        """In one call of the handler, but for those on their last attempt: as a worker does."""
        handled: list[Handled] = []
        together: list[Delivery] = []
        alone: list[list[Delivery]] = []
        for delivery in taken:
            held_back = self._held_back(task, delivery)
            if held_back is not None:
                handled.append(held_back)
            elif called_alone(delivery.attempt, delivery.max_attempts):
                alone.append([delivery])
            else:
                together.append(delivery)
        for batch in ([together] if together else []) + alone:
            handled += self._call_batch(task, batch)
        return handled

    def _held_back(self, task: Definition, delivery: Delivery) -> Handled | None:
        """What becomes of a message that can't be read, or may not pass; for others, None."""
        if (over := spent(delivery.attempt, delivery.max_attempts)) is not None:
            return self._end(task, delivery, over, None)
        if (late := self._overdue(task, delivery)) is not None:
            return late
        try:
            delivery.arguments = task.arguments.of_message(delivery.body)
        except Unread as error:
            return self._unread(task, delivery, error)
        if task.limits is None:
            return None
        refused = self._pass(Passage(task.limits, delivery.claimed, delivery.arguments), delivery.now)
        return None if refused is None else self._end(task, delivery, refused, None)._replace(outcome="waits")

    def _overdue(self, task: Definition, delivery: Delivery) -> Handled | None:
        """What becomes of a message that is too late for its task; for others, None."""
        if task.overdue is None or not task.overdue.takes(delivery.claimed, delivery.now):
            return None
        [became] = self._catching_up.decide(task, [delivery.claimed], delivery.now)
        if became is None:
            return None
        return self._settle(delivery, became, None)._replace(outcome="left out" if became is DONE else "waits")

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

    def _pass(self, passage: Passage, now: int) -> Outcome | None:
        """Through the gates of its task; what becomes of a message that may not pass."""
        while (step := passage.step) is not None:
            if step.window:
                passage.spent((self._engine.gates.spend([passage.spend(step)]))[0])
            else:
                passage.entered((self._engine.gates.enter([passage.entry(step, DAY)]))[0], now)
        refused = passage.refused
        if refused is None or not passage.again:
            return refused
        return refused._replace(delay=math.ceil(passage.again * 1000), aside=True)

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

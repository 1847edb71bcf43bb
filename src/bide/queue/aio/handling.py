# unasync: ../sync/handling.py
"""What becomes of messages with a task while time travels: their gates, the call of their handler, and their ends."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bide.core.amounts import plural
from bide.engines.aio import AsyncEngine
from bide.engines.base import Ref
from bide.engines.results import Kept
from bide.errors import BideError, Unavailable
from bide.logs import Log
from bide.queue.aio.calling import leave
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.depending import AsyncDependents
from bide.queue.aio.keeping import AsyncKeeping
from bide.queue.aio.planning import AsyncPlanner
from bide.queue.attempts import Raised
from bide.queue.deliveries import Together, returned_of
from bide.queue.results import encoded
from bide.queue.run import StepName, first_step
from bide.queue.run.aio.limits import AsyncLimitsStep
from bide.queue.run.aio.overdue import AsyncOverdueStep
from bide.queue.run.aio.schedule import AsyncScheduleStep
from bide.queue.setup import Setup
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.failed import failures
from bide.queue.tasks.items import called_alone
from bide.queue.tasks.outcome import DONE, Outcome, outcome, spent, unread
from bide.queue.tasks.passing import Passage
from bide.queue.travel import Handled
from bide.queue.travel.invoke import AsyncInvoke

_log = Log("bide.testing")
DAY = 86_400_000
_SAID = {"done": "done", "retry": "retry", "release": "snoozed", "dead": "dead"}


class AsyncGoing(NamedTuple):
    """A message under way."""

    task: Definition
    delivery: AsyncDelivery


class AsyncHandling:
    def __init__(self, engine: AsyncEngine, setup: Setup, invoke: AsyncInvoke, overdue: AsyncOverdueStep) -> None:
        self._engine = engine
        self._setup = setup
        self._invoke = invoke
        self._limits = AsyncLimitsStep(engine, DAY)
        self._steps: Mapping[StepName, AsyncScheduleStep | AsyncOverdueStep] = {
            "schedule": AsyncScheduleStep(engine, setup, AsyncPlanner(engine, setup, alone=True)),
            "overdue": overdue,
        }

    async def handle(self, task: Definition, taken: Sequence[AsyncDelivery]) -> list[Handled]:
        """Messages whose handling is broken off are given back, and may be handled again at once."""
        for delivery in taken:
            delivery.most = task.attempts(delivery.claimed)
        try:
            if task.batch is not None:
                return await self._in_batches(task, taken)
            return [await self._handled(task, delivery) for delivery in taken]
        except BaseException:
            for delivery in taken:
                if not delivery.ended:
                    with contextlib.suppress(BideError):
                        await delivery.release()
            raise

    async def _handled(self, task: Definition, delivery: AsyncDelivery) -> Handled:
        if (held_back := await self._held_back(task, delivery)) is not None:
            return held_back
        passage = None
        try:
            arguments = task.arguments.of_message(delivery.body)
            passage = self._passage(task, delivery, arguments)
        except Unread as error:
            return await self._unread(task, delivery, error)
        await self._invoke.check(task)
        if passage is None:
            return await self._call(task, delivery, arguments)
        try:
            if (waits := await self._waits(passage, task, delivery)) is not None:
                return waits
            return await self._call(task, delivery, arguments)
        finally:
            await leave(self._engine, passage.held)

    async def _held_back(self, task: Definition, delivery: AsyncDelivery) -> Handled | None:
        """What becomes of a message that has had its attempts, or that a step leaves out or puts off; for others, None."""
        if (over := spent(delivery.attempt, delivery.max_attempts)) is not None:
            return await self._end(task, delivery, over, None)
        step = first_step(task, delivery.claimed, delivery.now)
        if step is None:
            return None
        [became] = await self._steps[step].decide([AsyncGoing(task, delivery)])
        if became is None:
            return None
        return (await self._settle(delivery, became, None))._replace(outcome="left out" if became is DONE else "waits")

    def _passage(self, task: Definition, delivery: AsyncDelivery, arguments: dict[str, Any]) -> Passage | None:
        """Raises Unread."""
        if task.limits is None:
            return None
        return Passage(task.limits, delivery.claimed, task.arguments.with_defaults(arguments))

    async def _waits(self, passage: Passage, task: Definition, delivery: AsyncDelivery) -> Handled | None:
        """What becomes of a message that may not pass the limits of its task; for others, None."""
        if await self._limits.through([passage], lambda: delivery.now):
            raise Unavailable(f"The engine has not answered whether a message of {delivery.topic} may pass its limits.")
        refused = passage.refused
        if refused is None:
            return None
        if passage.again:
            refused = refused._replace(delay=math.ceil(passage.again * 1000), aside=True)
        held_back = await self._end(task, delivery, refused, None)
        return held_back if refused.verdict == "dead" else held_back._replace(outcome="waits")

    async def _in_batches(self, task: Definition, taken: Sequence[AsyncDelivery]) -> list[Handled]:
        """In one call of the handler, but for those on their last attempt: as a worker does."""
        handled: list[Handled] = []
        together: list[AsyncDelivery] = []
        alone: list[list[AsyncDelivery]] = []
        for delivery in taken:
            refused = await self._refused(task, delivery)
            if refused is not None:
                handled.append(refused)
            elif called_alone(delivery.attempt, delivery.max_attempts):
                alone.append([delivery])
            else:
                together.append(delivery)
        for batch in ([together] if together else []) + alone:
            handled += await self._call_batch(task, batch)
        return handled

    async def _refused(self, task: Definition, delivery: AsyncDelivery) -> Handled | None:
        """What becomes of a message that joins no batch; for others, None."""
        if (held_back := await self._held_back(task, delivery)) is not None:
            return held_back
        try:
            delivery.arguments = arguments = task.arguments.of_message(delivery.body)
        except Unread as error:
            return await self._unread(task, delivery, error)
        passage = self._passage(task, delivery, arguments)
        return None if passage is None else await self._waits(passage, task, delivery)

    async def _call_batch(self, task: Definition, batch: Sequence[AsyncDelivery]) -> list[Handled]:
        await self._invoke.check(task)
        failed: list[dict[int, BaseException]] = [{}]
        [name] = task.arguments.named
        items = [each.arguments[name] for each in batch if each.arguments]

        def answered(answer: Any) -> None:
            failed[:] = [failures(answer, items, task.name)]

        error = await self._invoke.call(task.telling(answered), {name: list(items)}, Together(batch))
        if error is not None:
            _log.error("A batch of %s of %s failed", plural(len(batch), "message"), batch[0].topic, exc_info=error)
            return [await self._ended(task, each, error, told=True) for each in batch]
        return [await self._ended(task, each, failed[0].get(place)) for place, each in enumerate(batch)]

    async def _call(self, task: Definition, delivery: AsyncDelivery, arguments: dict[str, Any]) -> Handled:
        raised = await self._invoke.call(task, arguments, delivery)
        if task.keep is not None and raised is None:
            await self._keep(delivery, task.name, task.keep)
        return await self._ended(task, delivery, raised)

    async def _keep(self, delivery: AsyncDelivery, name: str, lasts: int) -> None:
        """Keep what its handler returned, unless that has ended the delivery by itself, and not because its work is done."""
        if not delivery.ended or (await self._engine.get([Ref(delivery.id)]))[0] is None:
            value = encoded(self._setup.envelope, returned_of(delivery), name, delivery.id)
            kept = Kept(delivery.id, lasts, value, delivery.claimed.token)
            await AsyncKeeping(self._engine, AsyncDependents(self._engine)).fulfil([kept])

    async def _unread(self, task: Definition, delivery: AsyncDelivery, unfit: Unread) -> Handled:
        """Of one that can't be read, as the middleware sees it, too."""
        raised: BaseException | None = unfit
        if self._setup.middleware:
            await self._invoke.check(task)
            raised = await self._invoke.call(task, unfit, delivery)
        if raised is not unfit:
            return await self._ended(task, delivery, raised)
        _log.error("Message %s of %s does not fit: %s", delivery.id, delivery.topic, unfit)
        became = unread(unfit, delivery.claimed, delivery.now, by_chance=False)
        told = await self._end(task, delivery, became, unfit)
        return told if became.verdict == "dead" else told._replace(outcome="waits")

    async def _ended(
        self, task: Definition, delivery: AsyncDelivery, raised: BaseException | None, *, told: bool = False
    ) -> Handled:
        became = outcome(raised, task, delivery.attempt, delivery.tried_ms, by_chance=False)
        if became.verdict in ("retry", "dead") and not told:
            _log.error("Message %s of %s failed in attempt %d", delivery.id, delivery.topic, delivery.attempt, exc_info=raised)
        return await self._end(task, delivery, became, raised)

    async def _end(self, task: Definition, delivery: AsyncDelivery, became: Outcome, error: BaseException | None) -> Handled:
        """A task is told that its message becomes a dead letter, and why, whatever the reason; before the engine is told."""
        buries = became.buries(delivery.attempt, delivery.max_attempts) and not delivery.ended
        failed = await self._invoke.tell_dead(task, delivery, became.error or "") if buries else None
        if failed is not None:
            _log.error("The on_dead of %s failed for message %s", task.name, delivery.id, exc_info=failed)
        return await self._settle(delivery, became, error)

    async def _settle(self, delivery: AsyncDelivery, became: Outcome, error: BaseException | None) -> Handled:
        if delivery.ended:
            return Handled(delivery.topic, delivery.id, "ended", error)
        [answer] = await self._engine.settle([delivery.end(*became, raised=None if error is None else Raised(error))])
        delivery.mark_ended()
        said = answer if answer in ("dead", "expired", "lost") else _SAID[became.verdict]
        return Handled(delivery.topic, delivery.id, said, error)

# unasync: ../sync/traveller.py
"""What becomes of messages with a task while time travels: their gates, the call of their handler, and their ends."""

import contextlib
import math
from collections.abc import Mapping, Sequence

from bide.engines.aio import AsyncEngine
from bide.errors import BideError, Unavailable
from bide.logs import Log
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.planner import AsyncPlanner
from bide.queue.deliveries import Raised
from bide.queue.run import StepName, first_step, passage_of
from bide.queue.run.aio.keep import AsyncKeepStep
from bide.queue.run.aio.limits import AsyncLimitsStep, leave
from bide.queue.run.aio.overdue import AsyncOverdueStep
from bide.queue.run.aio.schedule import AsyncScheduleStep
from bide.queue.run.message import Handling, batches_of
from bide.queue.run.passage import Passage
from bide.queue.setup import Setup
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.outcome import DONE, Outcome, spent, unread
from bide.queue.travel import Handled
from bide.queue.travel.invoke import AsyncInvoke

_log = Log("bide.testing")
DAY = 86_400_000
_SAID = {"done": "done", "retry": "retry", "release": "snoozed", "dead": "dead"}


class AsyncTraveller:
    def __init__(self, engine: AsyncEngine, setup: Setup, invoke: AsyncInvoke, overdue: AsyncOverdueStep) -> None:
        self._engine = engine
        self._invoke = invoke
        self._limits = AsyncLimitsStep(engine, DAY)
        self._keep_step = AsyncKeepStep(engine, setup.envelope)
        self._steps: Mapping[StepName, AsyncScheduleStep | AsyncOverdueStep] = {
            "schedule": AsyncScheduleStep(engine, setup, AsyncPlanner(engine, setup, alone=True)),
            "overdue": overdue,
        }

    async def handle(self, task: Definition, taken: Sequence[AsyncDelivery]) -> list[Handled]:
        """Messages whose handling is broken off are given back, and may be handled again at once."""
        handlings = [self._invoke.handling(task, delivery) for delivery in taken]
        try:
            if task.batch is not None:
                return await self._in_batches(handlings)
            return [await self._handled(handling) for handling in handlings]
        except BaseException:
            for handling, delivery in zip(handlings, taken, strict=True):
                if not handling.ended:
                    with contextlib.suppress(BideError):
                        await delivery.release()
            raise

    async def _handled(self, handling: Handling) -> Handled:
        if (held_back := await self._held_back(handling)) is not None:
            return held_back
        await self._invoke.check(handling.task)
        with contextlib.suppress(Unread):  # the call of its handler says so
            handling.read()
        try:
            passage = passage_of(handling)
        except Unread as error:
            return await self._ended(handling, unread(error, handling.claimed, handling.now, by_chance=False), error)
        if passage is None:
            return (await self._call(handling))[0]
        try:
            if (waits := await self._waits(passage, handling)) is not None:
                return waits
            return (await self._call(handling))[0]
        finally:
            await leave(self._engine, passage.held)

    async def _held_back(self, handling: Handling) -> Handled | None:
        """What becomes of a message that has had its attempts, or that a step leaves out or puts off; for others, None."""
        delivery = handling.delivery
        if (over := spent(delivery.attempt, delivery.max_attempts)) is not None:
            return await self._end(handling, over, None)
        step = first_step(handling.task, handling.claimed, handling.now)
        if step is None:
            return None
        [became] = await self._steps[step].decide([handling])
        if became is None:
            return None
        return (await self._settle(handling, became, None))._replace(outcome="left out" if became is DONE else "waits")

    async def _waits(self, passage: Passage, handling: Handling) -> Handled | None:
        """What becomes of a message that may not pass the limits of its task; for others, None."""
        delivery = handling.delivery
        if await self._limits.through([passage], lambda: handling.now):
            raise Unavailable(f"The engine has not answered whether a message of {delivery.topic} may pass its limits.")
        refused = passage.refused
        if refused is None:
            return None
        if passage.again:
            refused = refused._replace(delay=math.ceil(passage.again * 1000), aside=True)
        held_back = await self._end(handling, refused, None)
        return held_back if refused.verdict == "dead" else held_back._replace(outcome="waits")

    async def _in_batches(self, handlings: Sequence[Handling]) -> list[Handled]:
        """In one call of the handler, but for those on their last attempt: as a worker does."""
        handled: list[Handled] = []
        members: list[Handling] = []
        for handling in handlings:
            refused = await self._refused(handling)
            if refused is None:
                members.append(handling)
            else:
                handled.append(refused)
        for batch in batches_of(members):
            handled += await self._call(batch)
        return handled

    async def _refused(self, handling: Handling) -> Handled | None:
        """What becomes of a message that joins no batch; for others, None."""
        if (held_back := await self._held_back(handling)) is not None:
            return held_back
        try:
            handling.read()
        except Unread:
            return (await self._call(handling))[0]
        passage = passage_of(handling)
        return None if passage is None else await self._waits(passage, handling)

    async def _call(self, called: Handling) -> list[Handled]:
        """The handler of a message, or of a batch."""
        await self._invoke.check(called.task)
        ends = await self._invoke.call(called)
        error = ends[0][1]
        together = len(ends) > 1 and error is not None and all(each is error for _, each in ends)
        if together:
            _log.error("%s failed", called, exc_info=error)
        members = [each for each, _ in called.each(None)]
        return [await self._ended(each, *end, told=together) for each, end in zip(members, ends, strict=True)]

    async def _ended(self, handling: Handling, became: Outcome, error: BaseException | None, *, told: bool = False) -> Handled:
        delivery = handling.delivery
        if became is DONE and handling.task.keep is not None:
            await self._keep(handling, handling.task.keep)
        elif isinstance(error, Unread):
            _log.error("Message %s of %s does not fit: %s", delivery.id, delivery.topic, error)
        elif became.verdict in ("retry", "dead") and not told:
            _log.error("Message %s of %s failed in attempt %d", delivery.id, delivery.topic, delivery.attempt, exc_info=error)
        end = await self._end(handling, became, error)
        return end._replace(outcome="waits") if isinstance(error, Unread) and became.verdict == "release" else end

    async def _keep(self, handling: Handling, lasts: int) -> None:
        """Keep what its handler returned, and call those that have waited for it."""
        kept = await self._keep_step.kept(handling, lasts)
        if kept is not None:
            [arrivals] = await self._keep_step.fulfil([kept])
            await self._keep_step.arrive(arrivals)

    async def _end(self, handling: Handling, became: Outcome, error: BaseException | None) -> Handled:
        """A task is told that its message becomes a dead letter, and why, whatever the reason; before the engine is told."""
        if became.buries(handling.delivery.attempt, handling.delivery.max_attempts) and not handling.ended:
            await self._invoke.tell_dead(handling, became)
        return await self._settle(handling, became, error)

    async def _settle(self, handling: Handling, became: Outcome, error: BaseException | None) -> Handled:
        delivery = handling.delivery
        if handling.ended:
            return Handled(delivery.topic, delivery.id, "ended", error)
        inside = delivery._internals
        [answer] = await self._engine.settle([inside.end(*became, raised=None if error is None else Raised(error))])
        inside.mark_ended()
        said = answer if answer in ("dead", "expired", "lost") else _SAID[became.verdict]
        return Handled(delivery.topic, delivery.id, said, error)

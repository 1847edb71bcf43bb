# unasync: ../sync/handling.py
"""What becomes of messages with a task while time travels: their gates, the call of their handler, and their ends."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

from bide.core.amounts import plural
from bide.engines.aio import AsyncEngine
from bide.engines.base import Ref
from bide.engines.results import Kept
from bide.errors import BideError
from bide.logs import Log
from bide.queue.aio.calling import leave
from bide.queue.aio.catching_up import AsyncCatchingUp
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.depending import AsyncDependents
from bide.queue.aio.keeping import AsyncKeeping
from bide.queue.aio.planning import AsyncPlanner
from bide.queue.attempts import Raised
from bide.queue.deliveries import PLANNED, Together, returned_of
from bide.queue.results import encoded
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


class AsyncHandling:
    def __init__(self, engine: AsyncEngine, setup: Setup, invoke: AsyncInvoke, catching_up: AsyncCatchingUp) -> None:
        self._engine = engine
        self._setup = setup
        self._invoke = invoke
        self._catching_up = catching_up

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
        if (over := spent(delivery.attempt, delivery.max_attempts)) is not None:
            return await self._end(task, delivery, over, None)
        if PLANNED in delivery.headers:
            [call] = await AsyncPlanner(self._engine, self._setup, alone=True).follow([delivery.claimed], delivery.now)
            if not call:
                return (await self._settle(delivery, DONE, None))._replace(outcome="left out")
        if (late := await self._overdue(task, delivery)) is not None:
            return late
        passage = None
        try:
            arguments = task.arguments.of_message(delivery.body)
            if task.limits is not None:
                passage = Passage(task.limits, delivery.claimed, task.arguments.with_defaults(arguments))
        except Unread as error:
            return await self._unread(task, delivery, error)
        await self._invoke.check(task)
        if passage is None:
            return await self._call(task, delivery, arguments)
        try:
            refused = await self._pass(passage, delivery.now)
            if refused is not None:
                held_back = await self._end(task, delivery, refused, None)
                return held_back if refused.verdict == "dead" else held_back._replace(outcome="waits")
            return await self._call(task, delivery, arguments)
        finally:
            await leave(self._engine, passage.held)

    async def _in_batches(self, task: Definition, taken: Sequence[AsyncDelivery]) -> list[Handled]:
        """In one call of the handler, but for those on their last attempt: as a worker does."""
        handled: list[Handled] = []
        together: list[AsyncDelivery] = []
        alone: list[list[AsyncDelivery]] = []
        for delivery in taken:
            held_back = await self._held_back(task, delivery)
            if held_back is not None:
                handled.append(held_back)
            elif called_alone(delivery.attempt, delivery.max_attempts):
                alone.append([delivery])
            else:
                together.append(delivery)
        for batch in ([together] if together else []) + alone:
            handled += await self._call_batch(task, batch)
        return handled

    async def _held_back(self, task: Definition, delivery: AsyncDelivery) -> Handled | None:
        """What becomes of a message that can't be read, or may not pass; for others, None."""
        if (over := spent(delivery.attempt, delivery.max_attempts)) is not None:
            return await self._end(task, delivery, over, None)
        if (late := await self._overdue(task, delivery)) is not None:
            return late
        try:
            delivery.arguments = task.arguments.of_message(delivery.body)
        except Unread as error:
            return await self._unread(task, delivery, error)
        if task.limits is None:
            return None
        refused = await self._pass(Passage(task.limits, delivery.claimed, delivery.arguments), delivery.now)
        return None if refused is None else (await self._end(task, delivery, refused, None))._replace(outcome="waits")

    async def _overdue(self, task: Definition, delivery: AsyncDelivery) -> Handled | None:
        """What becomes of a message that is too late for its task; for others, None."""
        if task.overdue is None or not task.overdue.takes(delivery.claimed, delivery.now):
            return None
        [became] = await self._catching_up.decide(task, [delivery.claimed], delivery.now)
        if became is None:
            return None
        return (await self._settle(delivery, became, None))._replace(outcome="left out" if became is DONE else "waits")

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

    async def _pass(self, passage: Passage, now: int) -> Outcome | None:
        """Through the gates of its task; what becomes of a message that may not pass."""
        while (step := passage.step) is not None:
            if step.window:
                passage.spent((await self._engine.gates.spend([passage.spend(step)]))[0])
            else:
                passage.entered((await self._engine.gates.enter([passage.entry(step, DAY)]))[0], now)
        refused = passage.refused
        if refused is None or not passage.again:
            return refused
        return refused._replace(delay=math.ceil(passage.again * 1000), aside=True)

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

# unasync: sync.py
"""Moves a queue's ManualClock from one due time to the next, with the upkeep and the work that real time would have brought."""

from typing import TYPE_CHECKING

from bide.clock import ManualClock
from bide.core.when import duration_ms
from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Stored
from bide.errors import ConfigError
from bide.logs import Log
from bide.queue.deliveries import error_text
from bide.queue.deliveries.aio import AsyncDelivery
from bide.queue.tasks.arguments import Unfit
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.outcome import Outcome, outcome
from bide.queue.travel import Handled
from bide.queue.travel.calling import AsyncCalling
from bide.queue.travel.movable import Movable
from bide.types import Duration, State

if TYPE_CHECKING:
    from bide.queue.twins import AsyncQueue

_log = Log("bide.testing")
_DAY = 86_400_000
MOST_AT_ONCE = 100_000
_SAID = {"done": "done", "retry": "retry", "release": "snoozed", "dead": "dead"}


class AsyncTravel(Movable):
    """`queue.testing`: time travel, and another place for the application's own queue."""

    def __init__(self, queue: "AsyncQueue") -> None:
        super().__init__(queue)
        self._queue = queue
        self._calling = AsyncCalling(queue)
        self._waiting: dict[str, str] = {}  # what was ready at the last look, and has no task

    async def advance(self, by: Duration) -> list[Handled]:
        """Let so much time pass, stopping wherever a message falls due; what was handled or fell due, in that order.

        Messages that have a task are handled, one after the other, with its retries and their waits, which are not
        spread here: 1 s, 2 s, 4 s. What falls due together is handled in the order in which it was sent, and what is due
        already comes first, so `advance(0)` handles just that. While a handler runs the clock stands still, so timeouts
        never come. Receivers that sleep are woken at each stop. Leases that end on the way come back, and what expires
        expires.
        """
        clock = self._queue._setup.clock
        if not isinstance(clock, ManualClock):
            raise ConfigError(
                "Time travel needs a clock that can be moved: use the fixture, `with queue.testing.in_memory():`, "
                "or AsyncQueue('memory://', clock=ManualClock())."
            )
        engine = await self._queue._engine()
        until = clock.now_ms + duration_ms(by)
        await _tend_all(engine)
        self._waiting = await self._without_task(engine)
        handled = await self._handle_ready(engine)
        while (stop := await _next_stop(engine)) is not None and stop <= until:
            clock.set_ms(max(stop, clock.now_ms))
            await _tend_all(engine)
            handled += await self._handle_ready(engine)
        clock.set_ms(until)
        await _tend_all(engine)
        return handled

    def close(self) -> None:
        """Let go of what handlers were called with."""
        self._calling.close()

    async def _handle_ready(self, engine: AsyncEngine) -> list[Handled]:
        """What is due now: told where no task is for it, handled where one is, until nothing is left."""
        handled = await self._fell_due(engine)
        intake = await self._queue._taking()
        found = True
        while found:
            found = False
            for topic, task in await self._turns(engine):
                claim = await intake.claim([topic], 1, _DAY)  # which of the topic's messages it is, the engine says
                found = found or bool(claim.messages) or claim.more
                handled += [await self._handle(engine, task, delivery) for delivery in await intake.open(claim)]
                if len(handled) >= MOST_AT_ONCE:
                    raise ConfigError(
                        f"{len(handled):,} messages were handled without time passing, so this may never end. "
                        f"Does {handled[-1].topic} snooze for no time, or send itself without a delay?"
                    )
        return handled + await self._fell_due(engine)

    async def _turns(self, engine: AsyncEngine) -> list[tuple[str, Definition]]:
        """Whose turn it is, once for each message that is ready and has a task: by due time, then in the order of sending."""
        tasks, found = self._queue._setup.tasks, []
        for topic, counts in (await engine.stats()).topics.items():
            task = tasks.get(topic)
            if task is not None and counts.ready and not counts.paused:
                found += [(each.due, each.id, topic, task) for each in await _all_in(engine, topic, "ready")]
        return [(topic, task) for _, _, topic, task in sorted(found, key=lambda each: each[:2])]

    async def _handle(self, engine: AsyncEngine, task: Definition, delivery: AsyncDelivery) -> Handled:
        try:
            arguments = task.arguments.read(delivery.body)
        except Unfit as unfit:
            _log.error("Message %s of %s is buried: %s", delivery.id, delivery.topic, unfit)
            return await _end(engine, delivery, Outcome("dead", 0, error_text(str(unfit))), unfit)
        try:
            await self._calling.check(task)
        except ConfigError:
            await delivery.release()
            raise
        error = await self._calling.call(task, arguments, delivery)
        became = outcome(error, task, delivery.attempt, delivery.waited_ms, by_chance=False)
        if became.verdict in ("retry", "dead"):
            _log.error("Message %s of %s failed in attempt %d", delivery.id, delivery.topic, delivery.attempt, exc_info=error)
        return await _end(engine, delivery, became, error)

    async def _fell_due(self, engine: AsyncEngine) -> list[Handled]:
        """What has become ready since the last look, and has no task."""
        before, self._waiting = self._waiting, await self._without_task(engine)
        return [Handled(topic, id, "ready") for id, topic in self._waiting.items() if id not in before]

    async def _without_task(self, engine: AsyncEngine) -> dict[str, str]:
        """The ids of messages that are ready and have no task, in due order, each with its topic."""
        tasks = self._queue._setup.tasks
        topics = [topic for topic in (await engine.stats()).topics if tasks.get(topic) is None]
        found = [each for topic in topics for each in await _all_in(engine, topic, "ready")]
        return {each.id: each.topic for each in sorted(found, key=lambda each: (each.due, each.id))}


async def _next_stop(engine: AsyncEngine) -> int | None:
    """When something falls due next, or a lease ends."""
    stats = await engine.stats()
    stops = [] if stats.next_due is None else [stats.next_due]
    for topic, counts in stats.topics.items():
        if counts.leased:
            stops += [each.lease_until for each in await _all_in(engine, topic, "leased") if each.lease_until is not None]
    return min(stops, default=None)


async def _all_in(engine: AsyncEngine, topic: str, state: State) -> list[Stored]:
    page = await engine.scan(topic, state, MAX_BATCH)
    found = list(page.messages)
    while page.after is not None:
        page = await engine.scan(topic, state, MAX_BATCH, page.after)
        found += page.messages
    return found


async def _tend_all(engine: AsyncEngine) -> None:
    while (await engine.tend()).more:
        pass


async def _end(engine: AsyncEngine, delivery: AsyncDelivery, became: Outcome, error: BaseException | None) -> Handled:
    if delivery.ended:
        return Handled(delivery.topic, delivery.id, "ended", error)
    [answer] = await engine.settle([delivery.end(*became)])
    delivery.mark_ended()
    said = answer if answer in ("dead", "expired", "lost") else _SAID[became.verdict]
    return Handled(delivery.topic, delivery.id, said, error)

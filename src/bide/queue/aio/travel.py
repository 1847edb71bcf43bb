# unasync: ../sync/travel.py
"""Moves a queue's ManualClock from one due time to the next, with the upkeep and the work that real time would have brought."""

import contextlib

from bide.clock import ManualClock
from bide.core.when import duration_ms
from bide.engines.aio import AsyncEngine
from bide.errors import BideError, ConfigError
from bide.logs import Log
from bide.queue.aio.ahead import AsyncAhead, all_in
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.session import AsyncOpened
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.outcome import Outcome, outcome, unread
from bide.queue.travel.following import FollowingClock
from bide.queue.travel.handled import Handled, raise_all
from bide.queue.travel.invoke import AsyncInvoke
from bide.queue.travel.relocate import Relocatable
from bide.types import Duration

_log = Log("bide.testing")
_DAY = 86_400_000
MOST_AT_ONCE = 100_000
_SAID = {"done": "done", "retry": "retry", "release": "snoozed", "dead": "dead"}


class AsyncTravel(Relocatable):
    """`queue.testing`: time travel, and another store for your application's queue during a test."""

    def __init__(self, invoke: AsyncInvoke) -> None:
        super().__init__(invoke)
        self._session = invoke.session
        self._invoke = invoke

    async def advance(self, by: Duration, *, raise_errors: bool = True) -> list[Handled]:
        """Move the clock, and stop at each due time. Returns the messages that were handled or fell due, in order.

        Messages with a task are handled, one after the other, with their retries. Delays between attempts have no jitter here:
        1 s, 2 s, 4 s. Messages that are due at the same time are handled in the order in which they were sent. Messages that
        are due already come first, so `advance(0)` handles exactly these. Waiting receivers are woken at each stop. Leases end
        and messages expire as in real time.

        Errors that handlers raise are raised at the end, except Bury, Retry and Snooze: one error as it is, several as an
        ExceptionGroup. With raise_errors=False they are only in the list. A handler that takes longer than its task's timeout,
        in real time or by the clock that it moves, fails as in a worker.
        """
        clock = self._setup.clock
        if not isinstance(clock, ManualClock):
            raise ConfigError(
                "Time travel needs a clock that can be moved: use the fixture, `with queue.testing.in_memory():`, "
                "or AsyncQueue('memory://', clock=ManualClock())."
            )
        handled = await self._travel(clock, clock.now_ms + duration_ms(by))
        if raise_errors:
            raise_all(handled)
        return handled

    async def _travel(self, clock: ManualClock, until: int) -> list[Handled]:
        if isinstance(clock, FollowingClock):
            clock.check()
        opened = await self._session.open()
        engine = opened.engine
        ahead = AsyncAhead(engine, self._setup.tasks)
        await _tend_all(engine)
        await ahead.begin()
        handled = await self._handle_ready(opened, ahead)
        await ahead.look()
        while (stop := ahead.stop) is not None and stop <= until:
            clock.set_ms(max(stop, clock.now_ms))
            await _tend_all(engine)
            now = clock.now_ms
            if ahead.quiet(now):
                handled += await ahead.passed(now)
            else:
                handled += await self._handle_ready(opened, ahead)
                await ahead.look()
        clock.set_ms(max(until, clock.now_ms))
        await _tend_all(engine)
        return handled

    async def _handle_ready(self, opened: AsyncOpened, ahead: AsyncAhead) -> list[Handled]:
        """What is due now: told where no task is for it, handled where one is, until nothing is left."""
        handled = await ahead.fell_due()
        engine, receiver = opened.engine, opened.receiver
        found = True
        while found:
            found = False
            for topic, task in await self._turns(engine):
                claim = await receiver.claim([topic], 1, _DAY)  # which of the topic's messages it is, the engine says
                found = found or bool(claim.messages) or claim.more
                handled += [await self._handle(engine, task, delivery) for delivery in await receiver.open(claim)]
                if len(handled) >= MOST_AT_ONCE:
                    raise ConfigError(
                        f"{len(handled):,} messages were handled without time passing, so this may never end. "
                        f"Does {handled[-1].topic} snooze for no time, or send itself without a delay?"
                    )
        return handled + await ahead.fell_due()

    async def _turns(self, engine: AsyncEngine) -> list[tuple[str, Definition]]:
        """Whose turn it is, once for each message that is ready and has a task: by due time, then in the order of sending."""
        tasks, found = self._setup.tasks, []
        for topic, counts in (await engine.stats()).topics.items():
            task = tasks.get(topic)
            if task is not None and counts.ready and not counts.paused:
                found += [(each.due, each.id, topic, task) for each in await all_in(engine, topic, "ready")]
        return [(topic, task) for _, _, topic, task in sorted(found, key=lambda each: each[:2])]

    async def _handle(self, engine: AsyncEngine, task: Definition, delivery: AsyncDelivery) -> Handled:
        """A message whose handling is broken off is given back, and may be handled again at once."""
        try:
            return await self._handled(engine, task, delivery)
        except BaseException:
            if not delivery.ended:
                with contextlib.suppress(BideError):
                    await delivery.release()
            raise

    async def _handled(self, engine: AsyncEngine, task: Definition, delivery: AsyncDelivery) -> Handled:
        try:
            arguments = task.arguments.of_message(delivery.body)
        except Unread as error:
            _log.error("Message %s of %s does not fit: %s", delivery.id, delivery.topic, error)
            return await _end(engine, delivery, unread(error, task, delivery.attempt, by_chance=False), error)
        await self._invoke.check(task)
        raised = await self._invoke.call(task, arguments, delivery)
        became = outcome(raised, task, delivery.attempt, delivery.waited_ms, by_chance=False)
        if became.verdict in ("retry", "dead"):
            _log.error("Message %s of %s failed in attempt %d", delivery.id, delivery.topic, delivery.attempt, exc_info=raised)
        return await _end(engine, delivery, became, raised)


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

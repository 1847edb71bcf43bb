"""One run of a worker: its parts, put together, and what passes between them."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from bide.aside import AsyncApart
from bide.core.amounts import plural
from bide.engines.base import MAX_BATCH, Ended, Hold
from bide.errors import EngineError
from bide.logs import Log
from bide.queue import AsyncDelivery, AsyncQueue, Delivery, Queue
from bide.queue.absence import PULSE
from bide.queue.aio.planning import AsyncPlanner
from bide.queue.aio.receiving import AsyncReceiver
from bide.queue.aio.session import AsyncOpened, AsyncSession
from bide.queue.beats import BEATS, Beat
from bide.queue.deliveries import PLANNED
from bide.queue.sync.calling import leave
from bide.queue.sync.session import Session
from bide.queue.tasks.outcome import DONE, RELEASED, Outcome
from bide.worker.claim_log import Health
from bide.worker.claiming import Claiming
from bide.worker.ending import LAST_WORDS, Ending
from bide.worker.entrance import Entrance
from bide.worker.handling import Handlers, Handling, given_up, left_over
from bide.worker.leaving import Leaving
from bide.worker.orphans import Orphans
from bide.worker.plan import Plan, limited, served
from bide.worker.planning import Planning
from bide.worker.retry import reached
from bide.worker.settling import Entry, Settling
from bide.worker.slots import Slots
from bide.worker.telling import about, name, tell, tell_lost, tell_place_lost, tell_unheeded
from bide.worker.threads import Threads

_log = Log("bide.worker")
AT_ONCE = 100  # handlers that are told to stop before the loop goes round
_hold, _topic, _slot = attrgetter("hold"), attrgetter("claimed.topic"), attrgetter("slot")


class Service:
    def __init__(self, queue: AsyncQueue | Queue, plan: Plan) -> None:
        self._setup = queue.session.setup
        self._tasks = queue.session.setup.tasks
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._served = served(queue, plan)
        in_threads = [topic for topic, task in self._served.items() if not task.is_async]
        self._slots = Slots(
            self._served,
            in_threads,
            concurrency=plan.concurrency,
            threads=plan.threads,
            slots=plan.slots,
            limited=limited(self._served, plan),
        )
        self._threads = Threads(plan.threads, self._loop, self._threads_changed)
        self._handlers = Handlers(self._threads, plan.middleware, self._unheeded, self._ending)
        self._session = AsyncSession(queue.session.setup)  # its own: it is closed with the worker, the queue's is not
        self._sync = Session(queue.session.setup)
        self._under_way: dict[Hold, Handling] = {}
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._until = 0.0  # by the loop's time: when grace is over
        self._seen = time.monotonic()
        self._done = 0
        self._failed = 0
        self.stuck: bool = False  # a handler does not heed its timeout, and a supervisor is there to start anew
        self.begun: asyncio.Event = asyncio.Event()
        self.ended: asyncio.Event = asyncio.Event()

    def stop(self) -> None:
        """Take nothing more. Safe to call again."""
        self._stopping.set()
        if self.begun.is_set():
            self._claiming.stop()

    def runs(self, task: "asyncio.Task[Any] | None") -> bool:
        """Whether this is one of the handlers, which would wait for itself."""
        return any(each.runner is task for each in self._under_way.values())

    def _ending(self) -> bool:
        """Whether it was told to stop, or is being cancelled."""
        return self._stopping.is_set() or (self._task is not None and self._task.cancelling() > 0)

    async def run(self) -> None:
        self._task = asyncio.current_task()
        try:
            opened = await reached(self._session, self._stopping)
            if opened is not None:
                await self._work(opened)
        finally:
            self.ended.set()

    async def _work(self, opened: AsyncOpened) -> None:
        plan, engine = self._plan, opened.engine
        self._settling = Settling(engine, self._settled)
        self._unhandled = Orphans(engine, self._tasks, self._too_late)
        self._heartbeat = opened.heartbeat
        self._leaving = Leaving(engine)
        self._entrance = Entrance(engine, self._heartbeat, self._leaving, self._slots, plan.lease_ms, self)
        announced = [each for each in self._setup.schedules if self._served.get(each.topic) is each.definition]
        self._planning = Planning(AsyncPlanner(engine, self._setup), announced, self)
        if plan.claim_log is not None:
            self._heartbeat.on_beat = plan.claim_log.beat
        readers = {topic: task.arguments.of_json for topic, task in self._served.items()}
        self._claiming = Claiming(opened, self._slots, self._settling, plan, self._stopping, self._begin, readers)
        beside = [self._loop.create_task(self._pulse()), self._loop.create_task(self._stand_in(opened.receiver))]
        if engine.capabilities.inspect:
            beside.append(self._loop.create_task(self._unhandled.run()))
        if any(task.limits is not None and task.limits.calls for task in self._served.values()):
            beside.append(self._loop.create_task(self._leaving.look()))
        if announced:
            beside.append(self._loop.create_task(self._planning.run()))
        if opened.outbox is not None:
            beside.append(self._loop.create_task(opened.outbox.run()))
        self.begun.set()
        try:
            await self._take()
        finally:
            for each in beside:
                each.cancel()
            await self._wind_up()

    async def _take(self) -> None:
        """Claim until it is told to stop. A claim that is under way then is seen through, but not beyond grace."""
        claiming = self._loop.create_task(self._claiming.run())
        stopping = self._loop.create_task(self._stopping.wait())
        try:
            await asyncio.wait({claiming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self._until = self._loop.time() + self._plan.grace
            await asyncio.wait({claiming}, timeout=max(self._plan.grace, LAST_WORDS))
        except asyncio.CancelledError:
            self._until = self._loop.time()  # at once
            raise
        finally:
            stopping.cancel()
            claiming.cancel()
        if claiming.done():
            claiming.result()

    def _begin(self, claimed: Sequence[AsyncDelivery], slot: int, until: int) -> None:
        """Call the handlers of what one claim has brought, whose leases do not end before `until`."""
        beat = Beat(map(_hold, claimed), self._plan.lease_ms, until, self._lost_soon)
        self._heartbeat.add(beat)
        served, unkept = self._served, self._heartbeat.remove
        handlings = [Handling(each, served[each.claimed.topic], beat, slot, self._in_sync, unkept) for each in claimed]
        self._under_way.update(zip(map(_hold, claimed), handlings, strict=True))
        for topic, count in Counter(map(_topic, claimed)).items():
            self._slots.take(topic, count)
        for handling in handlings:
            headers = handling.delivery.claimed.headers
            if headers and PLANNED in headers:
                self._planning.put(handling)
            else:
                self.planned(handling)

    def planned(self, handling: Handling) -> None:
        """No schedule holds a message back: the limits of its task may."""
        if handling.task.limits is None:
            self.admitted(handling)
        else:
            self._entrance.put(handling)

    def left_out(self, handling: Handling) -> None:
        """The handler of a planned instant is not called: it is late, or its schedule is paused or has ended."""
        _log.info("The schedule leaves out %s", name(handling.delivery), extra=about(handling.delivery))
        self._ended(handling, DONE, by_itself=False)

    def admitted(self, handling: Handling) -> None:
        """Nothing holds a message back: call its handler."""
        # a factory of the loop's may begin a task before it gives it
        handling.runner = asyncio.Task(self._handle(handling), loop=self._loop)

    def refused(self, handling: Handling, became: Outcome) -> None:
        """A message may not pass now."""
        if became.verdict == "dead":
            _log.error("%s is buried: %s", name(handling.delivery), became.error, extra=about(handling.delivery))
            handling.runner = asyncio.Task(self._bury(handling, became), loop=self._loop)
        else:
            self._ended(handling, became, by_itself=False)

    async def _bury(self, handling: Handling, became: Outcome) -> None:
        told: Outcome | None = RELEASED
        try:
            told = await self._handlers.told_dead(handling, became)
        finally:
            handling.runner = None
            self._ended(handling, told, by_itself=handling.ended)

    def lost_place(self, handling: Handling) -> None:
        """A place of a message that runs is lost. Called by the heartbeat's thread."""
        self._loop.call_soon_threadsafe(self._lost_place, handling)

    def _lost_place(self, handling: Handling) -> None:
        if not handling.told:
            handling.stop("place")
            tell_place_lost(handling.delivery)

    async def _handle(self, handling: Handling) -> None:
        """One message, from the call of its handler until its end is on its way to the engine."""
        runner = handling.runner
        became: Outcome | None = RELEASED  # by Ctrl-C, which ends the loop: the message is given back with the rest
        error: BaseException | None = None
        try:
            if handling.why is None and not self._stopping.is_set() and self._handlers.ready(handling):
                try:
                    await self._handlers.call(handling)
                except KeyboardInterrupt:
                    raise
                except BaseException as raised:
                    # a GeneratorExit that the handler met in an await has closed all coroutines within this one
                    if isinstance(raised, GeneratorExit) and not self._runs(runner):
                        raise
                    error = raised
                became, error = self._handlers.became(handling, error)
                became = await self._handlers.told_dead(handling, became)
        finally:
            if handling.alarm is not None:
                handling.alarm.cancel()
                handling.alarm = None  # it names the handling
            if self._runs(runner):  # else nobody does any more: the loop has gone, and drops what was left in it
                handling.runner = None  # or the two would hold each other, and wait for the garbage collector
                self._ended(handling, became, by_itself=handling.ended)
        if error is not None:
            tell(handling.delivery, became, error)
            error = None  # from Python 3.12 on its traceback leads back to this frame

    def _runs(self, runner: "asyncio.Task[Any] | None") -> bool:
        """Whether it is this task that runs now: not when its coroutine is closed from outside, as by the garbage collector."""
        return asyncio.current_task(self._loop) is runner

    def _ended(self, handling: Handling, became: Outcome | None, *, by_itself: bool) -> None:
        """It is decided what becomes of a message: its place is free, and the engine is told if it has to be."""
        if handling.told:  # it went on after its message was given back
            return
        handling.told = True
        if handling.places is not None:
            self._leaving.leave(self._heartbeat, handling.places)
            handling.places = None
        self._slots.give_back(handling.delivery.claimed.topic)
        self._claiming.freed()
        if became is None or by_itself:
            self._done += by_itself
            self._forget([handling])
        else:
            self._settling.put((handling, handling.delivery.end(*became)))

    def _settled(self, batch: Sequence[Entry], answers: Sequence[Ended]) -> None:
        """The engine has answered the ends of deliveries."""
        for (handling, end), answer in zip(batch, answers, strict=True):
            if answer == "lost":
                if handling.why != "lost":
                    tell_lost(handling.delivery, "its handler had ended by then")
            elif end.verdict != "release":
                self._done += end.verdict == "done"
                self._failed += end.verdict != "done"
        self._forget([handling for handling, _ in batch])
        self._claiming.freed()

    def _threads_changed(self, able: bool) -> None:
        """Whether a thread can be started for sync tasks; while none can, nothing is taken for them."""
        self._slots.without_threads = not able
        self._claiming.freed()

    def _too_late(self, topic: str) -> bool:
        """Whether all tasks were to be served, and this one was defined when the worker had begun."""
        return self._plan.topics is None and topic not in self._served

    def _in_sync(self, delivery: AsyncDelivery) -> Delivery:
        return self._sync.open().delivery(delivery.claimed, delivery.body, delivery.now)

    def _forget(self, handlings: Sequence[Handling]) -> None:
        """Nothing is left to be done about these."""
        for each in handlings:
            self._under_way.pop(each.delivery.hold, None)
            each.delivery.ended = True
        for slot, count in Counter(map(_slot, handlings)).items():
            self._claiming.names.let_go(slot, count)
        self._heartbeat.remove_all((each.beat, each.delivery.hold) for each in handlings)

    def _lost_soon(self, hold: Hold) -> None:
        """Called by the heartbeat's thread."""
        self._loop.call_soon_threadsafe(self._lost, hold)

    def _lost(self, hold: Hold) -> None:
        handling = self._under_way.get(hold)
        if handling is not None and not handling.told and not handling.ending:  # else it is its own end that was met
            handling.stop("lost")
            tell_lost(handling.delivery, "its handler is told to stop")

    def _unheeded(self, handling: Handling) -> None:
        """A handler's timeout is long over. A supervisor can replace this process; else the handler keeps its place."""
        replaced = self._plan.claim_log is not None
        tell_unheeded(handling.delivery, replaced=replaced)
        if replaced:
            self.stuck = True
            self.stop()

    async def _pulse(self) -> None:
        """Show at intervals that the loop goes round."""
        while True:
            self._seen = time.monotonic()
            self._claiming.absence.pulse()
            self._heartbeat.see_to_thread()
            if self._plan.claim_log is not None:
                self._plan.claim_log.tell(self.health())
            await asyncio.sleep(PULSE)

    async def _stand_in(self, receiver: AsyncReceiver) -> None:
        """Renew the leases that the heartbeat does not: it may get no connection while those of the worker work."""
        while True:
            await asyncio.sleep(self._plan.lease_ms / 1000 / (2 * BEATS))
            with contextlib.suppress(EngineError):  # then nobody gets through: the heartbeat and the claims say so
                if renewed := await receiver.renew():
                    _log.warning("The heartbeat is late, so the worker has renewed %d leases by another connection", renewed)

    def health(self) -> Health:
        begun = self.begun.is_set()
        return Health(
            self._seen,
            self._claiming.retrying.failing_since if begun else 0.0,
            len(self._under_way),
            self._done,
            self._failed,
            self._unhandled.count if begun else 0,
        )

    def give_back(self) -> None:
        """All that it holds, as at the end of a grace: called in another thread, when the loop does not go any more."""
        if self.begun.is_set():
            ends = self._settling.decided() + left_over(self._under_way)
            for first in range(0, len(ends), MAX_BATCH):
                self._sync.engine().settle(ends[first : first + MAX_BATCH])
            held = [each for handling in list(self._under_way.values()) if handling.places for each in handling.places.held]
            if held:
                leave(self._sync.engine(), held)

    async def _wind_up(self) -> None:
        """Wait for the handlers, tell those that are left to stop, and see what has ended through to the engine."""
        ending = Ending(self._until)
        await ending.grace(_runners(each for each in self._under_way.values() if not each.stuck))
        await self._recover(ending)
        await self._end_handlers(ending)
        unheard = await self._settling.drain(ending)
        if unheard:
            what = plural(unheard, "message")
            _log.error("The engine could not be told how %s ended: a message comes back when its lease ends.", what)
        self._settling.drop()
        await ending.see_through(self._leaving.drain())
        self._threads.close()
        await ending.see_through(AsyncApart(lambda: self._heartbeat.close(LAST_WORDS / 2)).done())
        if not await ending.see_through(self._close()):
            _log.warning("The engine does not let go: the worker ends without waiting for it.")
        if ending.cancelled:
            raise asyncio.CancelledError

    async def _end_handlers(self, ending: Ending) -> None:
        """Tell the handlers to stop, some at a time: while they end, the engine takes back what others had."""
        left = [each for each in self._under_way.values() if not each.told]
        for first in range(0, len(left), AT_ONCE):
            for each in _untold(left[first : first + AT_ONCE]):
                each.stop("stop")
            await ending.go_round()
        await ending.wait(_runners(left))
        for each in _untold(left):
            self._ended(each, given_up(each), by_itself=each.ended)

    async def _recover(self, ending: Ending) -> None:
        """Give back what came with a claim whose answer was not waited for."""
        recovering = self._loop.create_task(self._claiming.recover())
        await ending.wait([recovering])
        if not recovering.done():
            recovering.cancel()
        elif not recovering.cancelled() and (error := recovering.exception()) is not None:
            _log.warning("A claim was not answered: what it may hold comes back when its lease ends. %s", error)

    async def _close(self) -> None:
        """Each by itself: one that does not let go must not keep the other."""
        await asyncio.gather(self._session.close(), AsyncApart(self._sync.close).done())


def _untold(handlings: Iterable[Handling]) -> list[Handling]:
    return [each for each in handlings if not each.told]


def _runners(handlings: Iterable[Handling]) -> list["asyncio.Task[None]"]:
    return [each.runner for each in handlings if each.runner is not None]

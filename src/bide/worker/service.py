"""One run of a worker: its parts, put together, what passes between them, and how what is under way is wound up."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

from bide.blocking import AsyncApart
from bide.core.formats import plural
from bide.engines.base import MAX_BATCH, End
from bide.errors import EngineError
from bide.logs import Log
from bide.queue import AsyncDelivery, AsyncQueue, Delivery, Queue
from bide.queue.aio.opened import AsyncOpened
from bide.queue.aio.receive import AsyncReceiver
from bide.queue.aio.session import AsyncSession
from bide.queue.batching import LOOK
from bide.queue.deliveries import internals
from bide.queue.leases import BEATS, PULSE
from bide.queue.run.call import Handlers, failed
from bide.queue.run.message import Handling
from bide.queue.run.sync.limits import leave
from bide.queue.run.threads import Threads
from bide.queue.run.timeout import LoopWatch
from bide.queue.sync.session import Session
from bide.queue.tasks.outcome import RELEASED, Outcome
from bide.queue.workers import NEEDED, Work
from bide.worker.chores import Orphans, Relayer, Reporter
from bide.worker.claim_log import ClaimNames, Health
from bide.worker.claims import Claimer
from bide.worker.engine_trouble import reached
from bide.worker.log_lines import EndLog, tell, tell_stopped, tell_stopping, tell_unheeded
from bide.worker.pipeline import UnderWay
from bide.worker.plan import Plan, batches, limited, served
from bide.worker.slots import Slots
from bide.worker.stop import LAST_WORDS, StopWaits

_log = Log("bide.worker")
AT_ONCE = 100  # handlers that are told to stop before the loop goes round


async def wind_up(under_way: UnderWay, claiming: Claimer, ending: StopWaits) -> None:
    """Wait for the handlers, tell those that are left to stop, and see what has ended through to the engine."""
    under_way.batches.give_back()
    await _wait(under_way, ending)
    await _recover(claiming, ending)
    await _end_handlers(under_way, ending)
    unheard = await under_way.settling.drain(ending)
    if unheard:
        what = plural(unheard, "message")
        _log.error("The engine could not be told how %s ended: a message comes back when its lease ends.", what)
    for part in (under_way.steps["overdue"], under_way.entrance, under_way.leaving):
        await ending.see_through(part.emptied())
    under_way.drop()


async def _wait(under_way: UnderWay, ending: StopWaits) -> None:
    """For the handlers, and for less long for those that have ended and whose part of the engine is silent."""
    while left := _runners(each for each in under_way if not each.stuck and not (each.aside and ending.is_silence_over)):
        await ending.grace(left, LOOK)
        if not ending.left:
            return


async def _recover(claiming: Claimer, ending: StopWaits) -> None:
    """Give back what came with a claim whose answer was not waited for."""
    recovering = asyncio.get_running_loop().create_task(claiming.recover())
    await ending.wait([recovering])
    if not recovering.done():
        recovering.cancel()
    elif not recovering.cancelled() and (error := recovering.exception()) is not None:
        _log.warning("A claim was not answered: what it may hold comes back when its lease ends. %s", error)


async def _end_handlers(under_way: UnderWay, ending: StopWaits) -> None:
    """Tell the handlers to stop, some at a time: while they end, the engine takes back what others had."""
    left = _untold(under_way)
    for first in range(0, len(left), AT_ONCE):
        for each in _untold(left[first : first + AT_ONCE]):
            each.stop("stop")
        await ending.go_round()
    await ending.wait(_runners(left))
    for each in _untold(left):
        under_way.ended(each, given_up(each), by_itself=each.ended)


def _untold(handlings: Iterable[Handling]) -> list[Handling]:
    return [each for each in handlings if not each.told]


def _runners(handlings: Iterable[Handling]) -> list["asyncio.Task[None]"]:
    return [each.runner for each in handlings if each.runner is not None and not each.runner.done()]


def given_up(handling: Handling) -> Outcome | None:
    """What becomes of a message whose handler does not end, and can't be waited for any more."""
    if handling.doomed is not None:
        return handling.doomed
    if handling.why == "stop":
        return RELEASED
    became, error = failed(handling, asyncio.CancelledError())
    if error is not None:
        tell(handling, became, error)
    return became


def left_over(under_way: Iterable[Handling]) -> list[End]:
    """The ends of those whose handlers go on at the end of a grace: for another thread, when the loop does not go any more."""
    ends = []
    for each in under_way:
        if not each.told and not each.ending:
            each.why = each.why or "stop"
            each.expire()
            became = given_up(each)
            ends += [] if became is None else [internals(each.delivery).end(*became)]
    return ends


def _work_of(under_way: UnderWay, now: int) -> Work:
    """What is told to others."""
    done, failed = under_way.done, under_way.failed
    return Work(Counter(each.topic for each in under_way), done, failed, under_way.minutes.until(now, done, failed))


class Service:
    def __init__(self, queue: AsyncQueue | Queue, plan: Plan) -> None:
        self._setup = queue.session.setup
        self._tasks = queue.session.setup.tasks
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._served = served(queue, plan)
        self._in_threads = in_threads = [topic for topic, task in self._served.items() if not task.is_async]
        self._slots = Slots(
            self._served,
            in_threads,
            concurrency=plan.concurrency,
            threads=plan.threads,
            slots=plan.slots,
            limited=limited(self._served, plan),
            batches=batches(self._served),
        )
        self._threads = Threads(plan.threads, self._loop, self._threads_changed)
        self._session = AsyncSession(queue.session.setup)  # its own: it is closed with the worker, the queue's is not
        self._sync = Session(queue.session.setup)
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._until = 0.0  # by the loop's time: when grace is over
        self._began = self._seen = time.monotonic()
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
        return self.begun.is_set() and any(each.runner is task for each in self._under_way)

    def _ending(self) -> bool:
        """Whether it was told to stop, or is being cancelled."""
        return self._stopping.is_set() or (self._task is not None and self._task.cancelling() > 0)

    async def run(self) -> None:
        self._task = asyncio.current_task()
        try:
            opened = await reached(self._session.open, self._stopping)
            if opened is not None:
                await self._work(opened)
        finally:
            self.ended.set()

    async def _work(self, opened: AsyncOpened) -> None:
        plan = self._plan
        self._heartbeat = opened.heartbeat
        if plan.claim_log is not None:
            self._heartbeat.on_beat = plan.claim_log.beat
        names = plan.claim_log or ClaimNames()
        self._under_way = under_way = UnderWay(
            opened,
            setup=self._setup,
            served=self._served,
            slots=self._slots,
            names=names,
            lease_ms=plan.lease_ms,
            handlers=Handlers(
                self._threads.run,
                plan.middleware,
                LoopWatch(self._unheeded),
                self._ending,
                subscriptions=self._setup.subscriptions,
            ),
            thread_ready=self._threads.ready,
            stopping=self._stopping,
            in_sync=self._in_sync,
            end_log=EndLog(plan.slow, every=plan.log_messages or not plan.slow),
        )
        self._claiming = Claimer(opened, plan, self._slots, names, under_way, self._stopping)
        self._unhandled = Orphans(opened.engine, self._tasks, self._too_late)
        self._reporter = Reporter(opened.engine, self._served, partial(_work_of, under_way), self._setup.now_ms)
        beside = [self._loop.create_task(each) for each in self._beside(opened)]
        self._relay = None if opened.outbox is None else Relayer(opened.outbox)
        self.begun.set()
        try:
            if self._in_threads and (opened.engine.capabilities.transactional or opened.outbox is not None):
                # before a handler has a transaction, in which it would wait for this
                await reached(AsyncApart(self._sync.ready).done, self._stopping)
            await self._take()
        finally:
            for each in beside:
                each.cancel()
            if self._relay is not None:
                self._relay.stop()
            await self._wind_up()

    def _beside(self, opened: AsyncOpened) -> list[Coroutine[Any, Any, object]]:
        """What goes on while it takes messages."""
        beside: list[Coroutine[Any, Any, object]] = [self._pulse(), self._stand_in(opened.receiver)]
        if opened.engine.capabilities.inspect:
            beside.append(self._unhandled.run())
        if any(task.limits is not None and task.limits.calls for task in self._served.values()):
            beside.append(self._under_way.leaving.look())
        if self._under_way.planning.schedules:
            beside.append(self._under_way.planning.run())
        if all(getattr(opened.engine.capabilities, each) for each in NEEDED):
            beside.append(self._reporter.run())
        return beside

    async def _take(self) -> None:
        """Claim until it is told to stop. A claim that is under way then is seen through, but not beyond grace."""
        claiming = self._loop.create_task(self._claiming.run())
        stopping = self._loop.create_task(self._stopping.wait())
        try:
            await asyncio.wait({claiming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self._until = self._loop.time() + self._plan.grace
            if self._stopping.is_set():
                telling = self._loop.create_task(
                    AsyncApart(partial(tell_stopping, len(self._under_way), self._plan.grace)).done()
                )
                await asyncio.wait({telling}, timeout=LAST_WORDS)  # logs may hang
            await asyncio.wait({claiming}, timeout=max(self._plan.grace, LAST_WORDS))
        except asyncio.CancelledError:
            self._until = self._loop.time()  # at once
            raise
        finally:
            stopping.cancel()
            claiming.cancel()
        if claiming.done():
            claiming.result()

    def _in_sync(self, delivery: AsyncDelivery) -> Delivery:
        return self._sync.open().delivery(internals(delivery))

    def _threads_changed(self, able: bool) -> None:
        """Whether a thread can be started for sync tasks; while none can, nothing is taken for them."""
        self._slots.without_threads = not able
        self._claiming.freed()

    def _too_late(self, topic: str) -> bool:
        """Whether all tasks were to be served, and this one was defined when the worker had begun."""
        return self._plan.topics is None and topic not in self._served

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
                    _log.warning("The heartbeat is late: the worker has renewed %s itself.", plural(renewed, "lease"))

    def health(self) -> Health:
        if not self.begun.is_set():
            return Health()  # its engine was not reached yet
        return Health(
            self._seen,
            self._claiming.retrying.failing_since,
            len(self._under_way),
            self._under_way.done,
            self._under_way.failed,
            self._unhandled.count,
            self._under_way.settling.unconfirmed,
        )

    def give_back(self) -> None:
        """All that it holds, as at the end of a grace: called in another thread, when the loop does not go any more."""
        if self.begun.is_set():
            ends = self._under_way.settling.decided() + left_over(self._under_way)
            for first in range(0, len(ends), MAX_BATCH):
                self._sync.engine().settle(ends[first : first + MAX_BATCH])
            held = [each for handling in self._under_way if handling.places for each in handling.places.held]
            if held:
                leave(self._sync.engine(), held)

    async def _wind_up(self) -> None:
        ending = StopWaits(self._until)
        await wind_up(self._under_way, self._claiming, ending)
        if self._relay is not None:
            await self._relay.end(ending)
        self._threads.close()
        await ending.see_through(self._reporter.stop())
        await ending.see_through(AsyncApart(lambda: self._heartbeat.close(LAST_WORDS / 2)).done())
        if not await ending.see_through(self._close()):
            _log.warning("The engine does not let go: the worker ends without waiting for it.")
        ends, ran = self._under_way, time.monotonic() - self._began
        await ending.see_through(AsyncApart(partial(tell_stopped, ends.done, ends.failed, ends.given_back, ran)).done())
        if ending.cancelled:
            raise asyncio.CancelledError

    async def _close(self) -> None:
        """Each by itself: one that does not let go must not keep the other."""
        await asyncio.gather(self._session.close(), AsyncApart(self._sync.close).done())

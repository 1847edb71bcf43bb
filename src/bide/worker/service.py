"""One run of a worker: its parts, put together, and what passes between them."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any

from bide.blocking import AsyncApart
from bide.core.formats import plural
from bide.engines.base import MAX_BATCH
from bide.errors import EngineError
from bide.logs import Log
from bide.queue import AsyncDelivery, AsyncQueue, Delivery, Queue
from bide.queue.absence import PULSE
from bide.queue.aio.opened import AsyncOpened
from bide.queue.aio.receiving import AsyncReceiver
from bide.queue.aio.session import AsyncSession
from bide.queue.beats import BEATS
from bide.queue.run.call import Handlers
from bide.queue.run.message import Handling
from bide.queue.run.threads import Threads
from bide.queue.run.timeout import LoopWatch
from bide.queue.sync.calling import leave
from bide.queue.sync.session import Session
from bide.worker.claim_log import Health, Names
from bide.worker.claiming import Claiming
from bide.worker.ending import LAST_WORDS, Ending
from bide.worker.leaving import LOOK, TIDY
from bide.worker.orphans import Orphans
from bide.worker.plan import Plan, batches, limited, served
from bide.worker.relay import Relaying
from bide.worker.retry import reached
from bide.worker.slots import Slots
from bide.worker.telling import tell_stopped, tell_stopping, tell_unheeded
from bide.worker.under_way import UnderWay
from bide.worker.winding_up import left_over, wind_up

_log = Log("bide.worker")


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
        self._seen = time.monotonic()
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
        names = plan.claim_log or Names()
        self._under_way = under_way = UnderWay(
            opened,
            setup=self._setup,
            served=self._served,
            slots=self._slots,
            names=names,
            lease_ms=plan.lease_ms,
            handlers=Handlers(self._threads.run, plan.middleware, LoopWatch(self._unheeded), self._ending),
            thread_ready=self._threads.ready,
            stopping=self._stopping,
            in_sync=self._in_sync,
        )
        self._claiming = Claiming(opened, plan, self._slots, names, under_way, self._stopping)
        self._unhandled = Orphans(opened.engine, self._tasks, self._too_late)
        beside = [self._loop.create_task(each) for each in self._beside(opened)]
        self._relay = None if opened.outbox is None else Relaying(opened.outbox)
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
        if opened.engine.capabilities.gates:
            calls = any(task.limits is not None and task.limits.calls for task in self._served.values())
            beside.append(self._under_way.leaving.look(LOOK if calls else TIDY))
        if any(task.keep is not None for task in self._served.values()):
            beside.append(self._under_way.keeping.look())
        if self._under_way.planning.schedules:
            beside.append(self._under_way.planning.run())
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
        return self._sync.open().delivery(delivery.claimed, delivery.body, delivery.now, delivery.at_work)

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
        ending = Ending(self._until)
        await wind_up(self._under_way, self._claiming, ending)
        if self._relay is not None:
            await self._relay.end(ending)
        self._threads.close()
        await ending.see_through(AsyncApart(lambda: self._heartbeat.close(LAST_WORDS / 2)).done())
        if not await ending.see_through(self._close()):
            _log.warning("The engine does not let go: the worker ends without waiting for it.")
        ends = self._under_way
        await ending.see_through(AsyncApart(partial(tell_stopped, ends.done, ends.failed, ends.given_back)).done())
        if ending.cancelled:
            raise asyncio.CancelledError

    async def _close(self) -> None:
        """Each by itself: one that does not let go must not keep the other."""
        await asyncio.gather(self._session.close(), AsyncApart(self._sync.close).done())

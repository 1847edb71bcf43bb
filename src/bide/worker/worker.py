"""The worker: how it is made, what it is made of, and how it begins and ends."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from bide.core import options
from bide.core.times import duration_ms, lease_ms
from bide.errors import BadOption, ConfigError
from bide.logs import Log
from bide.queue import AsyncQueue, Queue
from bide.queue.run import call as around
from bide.queue.run.call import Middleware
from bide.queue.tasks.definition import Definition
from bide.types import Duration
from bide.worker import plan
from bide.worker.claim_log import ClaimLog, Health
from bide.worker.plan import Plan
from bide.worker.recovery import Killed
from bide.worker.service import Service
from bide.worker.signals import stopped_by_signals
from bide.worker.stop import Deadline

_log = Log("bide.worker")
CONCURRENCY = 100
THREADS = 32


class Worker:
    """Receives due messages and calls their tasks, in the event loop that runs it.

    - topics: the topics to serve; all that have a task by default.
    - concurrency: handlers at the same time, in the loop and in threads.
    - slots: slots reserved for a topic.
    - threads: sync handlers at the same time; up to 32 by default.
    - lease: a thread renews it every third of its length, so a handler may take as long as it needs.
    - grace: how long handlers may go on when the worker stops.
    - middleware: called around each handler.
    - slow: a handler that takes this long gets a line of the log at INFO, even if its message is done.
    - log_messages: log the end of every message at INFO. Without it, those that are done and were quick are logged at DEBUG.

    Raises ConfigError if there is no task to run, or none for one of the topics.
    """

    def __init__(
        self,
        queue: AsyncQueue | Queue,
        *,
        topics: Sequence[str] | None = None,
        concurrency: int = CONCURRENCY,
        slots: Mapping[str, int] | None = None,
        threads: int | None = None,
        lease: Duration = "15s",
        grace: Duration = "20s",
        middleware: Sequence[Middleware] = (),
        slow: Duration = "1s",
        log_messages: bool = False,
    ) -> None:
        if not isinstance(queue, AsyncQueue | Queue):
            raise BadOption(f"A worker works for a queue, and this is a {type(queue).__name__}: Worker(queue).")
        most = options.count(concurrency, "concurrency", 10_000)
        self.queue: AsyncQueue | Queue = queue
        self.plan: Plan = Plan(
            topics=plan.topics(topics),
            concurrency=most,
            slots=plan.slots(slots),
            threads=min(most, THREADS) if threads is None else options.count(threads, "threads", 10_000),
            lease_ms=lease_ms(lease),
            grace=duration_ms(grace, "grace") / 1000,
            middleware=around.checked(middleware),
            slow=duration_ms(slow, "slow") / 1000,
            log_messages=bool(log_messages),
        )
        self.cancelled: Callable[[BaseException], object] | None = (
            None  # called if that befalls `run`, and nobody asked it to stop
        )
        self.stuck: bool = False  # it ended because a handler does not heed its timeout, for a supervisor to start anew
        self._given: dict[str, Any] = {
            "topics": topics,
            "concurrency": concurrency,
            "slots": slots,
            "threads": threads,
            "lease": lease,
        }
        self._given |= {"grace": grace, "middleware": middleware, "slow": slow, "log_messages": log_messages}
        self._service: Service | None = None
        self._deadline: Deadline | None = None
        self._told = False  # it was asked to stop
        self._running: asyncio.Task[None] | None = None

    def changed(self, *, claim_log: ClaimLog | None = None, killed: tuple[Killed, ...] = (), **options: Any) -> "Worker":
        """Another worker like this one, but for the options that are given and not None."""
        made = Worker(self.queue, **{**self._given, **{name: value for name, value in options.items() if value is not None}})
        made.plan = made.plan._replace(claim_log=claim_log, killed=killed)
        return made

    def tasks(self) -> dict[str, Definition]:
        """Return the topics that the worker serves, each with its task. Raises ConfigError if there is none."""
        return plan.served(self.queue, self.plan)

    async def run(self, *, signals: bool = True) -> None:
        """Run the worker until `stop` is called, this call is cancelled, or SIGTERM, SIGHUP or Ctrl-C arrives.

        A second signal ends the process at once; two within 50 ms count as one. If a handler still blocks the event loop after
        the grace, the worker gives back its messages and ends the process with exit code 0.

        With signals=False, and outside the main thread, it handles no signals.
        """
        if self._service is not None:
            raise ConfigError("This worker is running already: make another Worker to have two.")
        self._service = service = Service(self.queue, self.plan)
        loop = asyncio.get_running_loop()
        serving = loop.create_task(service.run())
        serving.add_done_callback(lambda _: service.ended.set())  # also when it was cancelled before it began
        listens = signals and threading.current_thread() is threading.main_thread()
        try:
            with ExitStack() as stack:
                if listens or self.plan.claim_log is not None:  # the process is there for this worker, and may end with it
                    self._deadline = stack.enter_context(Deadline(loop, self.plan.grace, service.give_back))
                if listens:
                    stack.enter_context(stopped_by_signals(loop, service.stop, heard=self._asked))
                await self._graceful(serving, service)
        finally:
            self._service, self.stuck = None, service.stuck

    def _asked(self) -> None:
        """From outside its loop it was asked to stop, which the loop may never hear of."""
        self._told = True
        if self._deadline is not None:
            self._deadline.begin()

    async def _graceful(self, serving: "asyncio.Task[None]", service: Service) -> None:
        """See a service through; being cancelled asks it to stop, being cancelled again ends it at once."""
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            if self.cancelled is not None and not self._told:
                self.cancelled(RuntimeError("The worker was cancelled by something that runs in its event loop."))
            service.stop()
            await serving
            raise

    async def stop(self) -> None:
        """Stop receiving, give back messages that have not started, and wait `grace` for running handlers. Then give back the
        rest.

        Before `run`, it does nothing. A handler may call it too; the call then returns without waiting.
        """
        self._told = True
        if self._service is not None:
            self._service.stop()
            if not self._service.runs(asyncio.current_task()):
                await self._service.ended.wait()

    def health(self) -> Health:
        """Return the worker's state: what `bide worker --health` reports."""
        return Health() if self._service is None else self._service.health()

    async def __aenter__(self) -> Self:
        """Start the worker in the background, for example in the lifespan of a web application."""
        running = asyncio.get_running_loop().create_task(self.run(signals=False), name="bide-worker")
        running.add_done_callback(_say)
        try:
            await self._begun(running)
        except asyncio.CancelledError:  # nobody will leave a block that was never entered
            running.cancel()
            await asyncio.wait({running})
            raise
        if running.done():
            running.result()
        self._running = running
        return self

    async def _begun(self, running: "asyncio.Task[None]") -> None:
        """Wait until it works, or has ended."""
        await asyncio.sleep(0)
        if self._service is not None:
            begun = asyncio.ensure_future(self._service.begun.wait())
            try:
                await asyncio.wait({begun, running}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                begun.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running, self._running = self._running, None
        if running is not None:
            if self._service is not None:
                self._service.stop()
            await running


def _say(running: "asyncio.Task[None]") -> None:
    if not running.cancelled() and running.exception() is not None:
        _log.critical("The worker has ended: %s", running.exception(), exc_info=running.exception())

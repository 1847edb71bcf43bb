"""Runs one worker in this process, or a supervisor with worker processes."""

import asyncio
import atexit
import contextlib
import gc
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, NoReturn

import bide
from bide.cli.exits import Exit
from bide.cli.output import note
from bide.cli.worker import health, log
from bide.cli.worker.load import WorkerOptions, check_processes, check_slots, load_target, make_worker, reloaded
from bide.core.formats import plural
from bide.ids import exact_version
from bide.logs import Log
from bide.worker import Worker
from bide.worker.stop import end_process, flush, give_time
from bide.worker.supervisor import Lifeline, Supervisor, run_supervised

if TYPE_CHECKING:
    from bide.cli.worker.metrics import Exporter

_log = Log("bide.worker")
EXIT_TIMEOUT = 0.5  # seconds in which the rest of the process may end after the worker
YOUNG = 2_000  # new objects, after which garbage is collected
USUAL = gc.get_threshold()  # before the program's own modules are imported
LOG_TIMEOUT = 2.0  # seconds in which the logs may take in why the process dies


def run(options: WorkerOptions) -> int:
    """Run until stopped. Returns the exit code."""
    if options.reload:
        return reloaded(lambda lifeline: options.command_line(reload=False, lifeline=lifeline))
    supervised = options.claim_log is not None
    lifeline = None if options.lifeline is None else Lifeline(options.lifeline, _leave if supervised else _terminate)
    with log.importing(options.log_format):
        loaded = load_target(options)
    left_out = log.configure(options.log_format, options.log_level)
    if left_out is not None and not supervised:
        note(left_out)
    found = make_worker(options, loaded)
    found.cancelled = _die
    if lifeline is not None and supervised:
        if options.counts is not None:
            from bide.cli.worker import metrics

            given = metrics.CountsFile.parse(options.counts)
            metrics.count(found, given.counts(), given.process)
        return _in_loop(_supervised(found, lifeline))
    where = health.endpoint(options.health)
    check_slots(found)
    if options.processes is not None:
        check_processes(found)
    exporter = None if options.metrics is None else _exporter(options.metrics, found, options.processes)
    print_banner(options, found)
    if options.processes is None:
        return _in_loop(_alone(found, where, exporter))
    return _in_loop(_supervise(found, options, options.processes, where, exporter), fast=False)


def print_banner(options: WorkerOptions, found: Worker) -> None:
    setup = found.queue.session.setup
    plan, served = found.plan, found.tasks()
    processes = {None: "this process", 1: "1 process"}.get(options.processes, f"{options.processes} processes, each")
    note(f"bide {exact_version(bide.__version__)} worker")
    note(f"  engine   {setup.source.shown}, namespace {setup.source.namespace}")
    note(
        f"  limits   {processes} with {plural(plan.concurrency, 'concurrent handler')}, {plan.threads} of them in threads; "
        f"lease {plan.lease_ms / 1000:g} s, grace {plan.grace:g} s"
    )
    widest = max(map(len, served))
    for topic, task in sorted(served.items()):
        kind = "" if task.is_async else " (in a thread)"
        kept = f", {plural(plan.slots[topic], 'slot')} reserved" if topic in plan.slots else ""
        note(f"  {topic:<{widest}}  →  {task.name}{kind}{kept}")
    threads = sorted(topic for topic, task in served.items() if not task.is_async and task.timeout is not None)
    if threads and options.processes is None:
        note(
            f"  timeout= can't stop the threads of {', '.join(threads)}: a handler that ignores current().expired keeps its "
            "message and its slot. With --processes 1, its process is replaced."
        )


def _terminate() -> None:
    """The watcher of `--reload` has ended: as if it had sent a last SIGTERM."""
    os.kill(os.getpid(), signal.SIGTERM)


def _leave() -> None:
    """The supervisor stops or has died while this process was still importing: it holds nothing yet."""
    os._exit(Exit.OK)


def _exporter(where: str, found: Worker, processes: int | None) -> "Exporter":
    from bide.cli.worker.metrics import Exporter

    return Exporter(where, found, processes)


@contextlib.asynccontextmanager
async def _told(where: health.Endpoint, exporter: "Exporter | None", look: health.Look, expected: int) -> AsyncIterator[None]:
    """While this lasts, people outside can see how the worker is."""
    counted = contextlib.nullcontext() if exporter is None else exporter.told(look, expected)
    async with health.reported(where, look, expected), counted, health.told_to_systemd(look, expected):
        yield


async def _alone(found: Worker, where: health.Endpoint, exporter: "Exporter | None") -> int:
    async with _told(where, exporter, lambda: {os.getpid(): found.health()}, 1):
        await found.run()
    return Exit.OK


async def _supervise(
    found: Worker, options: WorkerOptions, processes: int, where: health.Endpoint, exporter: "Exporter | None"
) -> int:
    supervisor = Supervisor(
        found.queue,
        lambda process, claim_log, lifeline, killed: options.command_line(
            processes=None,
            health=None,
            metrics=None,
            counts=None if exporter is None else exporter.of(process),
            claim_log=claim_log,
            lifeline=lifeline,
            killed=killed,
        ),
        told={topic for topic, task in found.tasks().items() if task.failing.on_dead is not None},
        processes=processes,
        lease_ms=found.plan.lease_ms,
        grace=found.plan.grace,
        files=() if exporter is None or exporter.file is None else (exporter.file,),
    )
    async with _told(where, exporter, supervisor.health, processes):
        return await supervisor.run()


async def _supervised(found: Worker, lifeline: Lifeline) -> int:
    await run_supervised(found, lifeline)
    return Exit.STUCK if found.stuck else Exit.OK


def _in_loop(main: Coroutine[None, None, int], *, fast: bool = True) -> int:
    """Run until it is over. What handlers leave running does not delay the process's end."""
    closed = threading.Event()
    code: int = Exit.FAILED

    ending = threading.Thread(target=lambda: _end_anyway(closed, code), name="bide-end", daemon=True)

    goes = False
    if fast:
        _spare_garbage_collection()

    async def whole() -> None:
        nonlocal code, goes
        goes = True
        try:
            code = await main
        finally:
            goes = False
            with contextlib.suppress(RuntimeError, MemoryError):  # no thread can be started: then Python waits for what is left
                ending.start()

    before = {*threading.enumerate(), ending}
    try:
        with _opened_runner(fast=fast) as runner:
            try:
                runner.run(whole())
            except BaseException as error:
                if goes:
                    _die(error)
                raise
    finally:
        if not give_time(flush):
            os._exit(code)  # else Python's own end would wait for the same logs
        if before.issuperset(threading.enumerate()):
            closed.set()
        else:
            atexit.register(closed.set)  # called when Python has waited for the threads that handlers have left
        gc.freeze()  # or the last garbage collection takes longer than the stop itself
    return code


@contextlib.contextmanager
def _opened_runner(*, fast: bool) -> Iterator[asyncio.Runner]:
    """In uvloop if that is wanted and installed. What handlers have left running is cancelled at the end.

    The worker has ended then, so what a task raises does not change its exit code.
    """
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if fast:
        with contextlib.suppress(ImportError):
            import uvloop

            new_event_loop = uvloop.new_event_loop
    runner = asyncio.Runner(loop_factory=new_event_loop)
    try:
        yield runner
    finally:
        try:
            runner.close()
        except (SystemExit, KeyboardInterrupt) as error:
            _log.error("A task that a handler has left running raised %s when it was cancelled.", repr(error), exc_info=error)


def _spare_garbage_collection() -> None:
    """What was imported stays, and is not looked through again. Messages come and go by the hundred without cycles.

    A program that has settled for other thresholds keeps them.
    """
    gc.collect()
    gc.freeze()
    often, *seldom = USUAL
    if gc.get_threshold() == USUAL:
        gc.set_threshold(max(often, YOUNG), *seldom)


def _die(error: BaseException) -> NoReturn:
    """End the process, because something that runs in the event loop has ended it, or has cancelled the worker.

    A loop that is closed in order would give all messages back without an attempt, and the message that caused this would
    cause it for ever. So the process dies here with all that it holds. Signals do not come here: they have handlers.
    """

    def say() -> None:
        said = f"{type(error).__name__}({error})"
        _log.critical(
            "%s was raised outside the handlers, and ends the process with all that it has begun.", said, exc_info=error
        )

    code = error.code if isinstance(error, SystemExit) else None
    if isinstance(error, KeyboardInterrupt):
        code = Exit.STOPPED
    kept = code & 0xFF if isinstance(code, int) else Exit.FAILED  # the system keeps eight bits
    end_process(Exit.FAILED if kept in (Exit.OK, Exit.STUCK) else kept, say, LOG_TIMEOUT)


def _end_anyway(closed: threading.Event, code: int) -> None:
    """End the process if the event loop or Python still waits for threads, or for tasks that ignore their cancellation."""
    if not closed.wait(EXIT_TIMEOUT):
        end_process(code)

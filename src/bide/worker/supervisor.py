"""Keeps worker processes alive: starts them, replaces the dead, and gives back what they held.

Between both is a pipe, the lifeline: when its other end is closed, also by a death, the process has to stop.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from types import FrameType
from typing import Any

from bide.engines.aio import AsyncEngine
from bide.logs import Log
from bide.queue import AsyncQueue, Queue
from bide.queue.aio.session import AsyncSession
from bide.worker.claim_log import ClaimLog, Health
from bide.worker.engine_trouble import reached
from bide.worker.recovery import PATIENCE, Killed, LeaseKeeper, Unburied, give_back, handed_over
from bide.worker.signals import asking, end_by, stopped_by_signals
from bide.worker.stop import Deadline
from bide.worker.worker import Worker

SHORT = 5.0  # seconds: a process that works no longer has something wrong with it
LOOK = 0.1  # seconds between two looks whether a process works by now
LONGEST_WAIT = 10.0
OVERTIME = 0.9  # seconds after the grace, then a process is killed
LAST_WORDS = 0.5  # seconds: what the engine gets at least, for what killed processes held and to be let go of
STUCK = 5  # the exit code of a process that asks to be replaced: a handler does not heed its timeout


class Lifeline:
    """Listened to from the start: what a process imports may take long, or hang."""

    def __init__(self, file: int, cut: Callable[[], object]) -> None:
        """`cut` is called in a thread when the other end is closed."""
        os.set_inheritable(file, False)
        self.cut: Callable[[], object] = cut  # another one may take its place
        threading.Thread(target=self._wait, args=(file,), name="bide-lifeline", daemon=True).start()

    def _wait(self, file: int) -> None:
        os.read(file, 1)
        self.cut()


async def run_supervised(worker: Worker, lifeline: Lifeline) -> None:
    """Run a worker as a process of a supervisor, which has the signals: until its lifeline is cut."""
    owner = os.getpid()

    def ignore(number: int, frame: FrameType | None) -> None:
        """Do nothing. Programs that handlers start would inherit SIG_IGN, but not this."""
        if os.getpid() != owner:
            end_by(number)

    for number in asking():
        signal.signal(number, ignore)
    loop = asyncio.get_running_loop()
    running = loop.create_task(worker.run(signals=False))

    def stop() -> None:
        worker._asked()
        with contextlib.suppress(RuntimeError):  # the loop has been closed: the worker has ended
            loop.call_soon_threadsafe(running.cancel)

    lifeline.cut = stop
    with contextlib.suppress(asyncio.CancelledError):
        await running


_log = Log("bide.supervisor")


class Child:
    """One worker process. Its lifeline is a pipe: it stops when the other end is closed, also by the supervisor's death."""

    def __init__(self, process: asyncio.subprocess.Process, claim_log: ClaimLog, lifeline: int) -> None:
        self.process = process
        self.claim_log = claim_log
        self.born: float = time.monotonic()
        self.began: float | None = None  # to work, as far as was seen
        self.frozen: bool = False  # it was killed since it gave no sign of life
        self._lifeline: int | None = lifeline

    async def begins(self) -> None:
        """See when it begins to work: to import a program may take it longer than a process lives that has something wrong."""
        while not self.claim_log.health().seen:  # noqa: ASYNC110  (another process sets it)
            await asyncio.sleep(LOOK)
        self.began = time.monotonic()

    def stop(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Supervisor:
    """`command` makes the command line of a worker process from its place among them and the numbers of three files: its claim
    log, its lifeline, and what earlier processes have left to bury, if anything. `files`: others that all processes inherit.
    `told`: the topics whose tasks have an on_dead.
    """

    def __init__(
        self,
        queue: AsyncQueue | Queue,
        command: Callable[[int, int, int, int | None], Sequence[str]],
        *,
        told: Collection[str],
        processes: int,
        lease_ms: int,
        grace: float,
        files: Sequence[int] = (),
    ) -> None:
        self._files = files
        self._session = AsyncSession(queue.session.setup)
        self._command = command
        self._told = told
        self._processes = processes
        self._lease_ms = lease_ms
        self._grace = grace
        self._stopping = asyncio.Event()
        self._children: dict[int, Child] = {}
        self._until = 0.0  # by the loop's time: when the last process is killed
        self._begun = False  # a process has begun to work, at any time
        self._failed = False

    async def run(self) -> int:
        """Until it is stopped by a signal: 0. When its first processes can't even begin it ends too: 1."""
        loop = asyncio.get_running_loop()
        with Deadline(loop, self._grace + OVERTIME, self.kill) as deadline:

            def heard() -> None:
                """Without waiting for the loop, which logs may block."""
                deadline.begin()
                self._stop_all()

            with stopped_by_signals(loop, self.stop, heard=heard, at_once=self.kill):
                await self._work()
        return int(self._failed)

    async def _work(self) -> None:
        try:
            opened = await reached(self._session.open, self._stopping)
            if opened is not None:
                await self._keep_all(opened.engine)
        finally:
            await self._close()

    async def _close(self) -> None:
        closing = asyncio.create_task(self._session.close())
        if (await asyncio.wait({closing}, timeout=LAST_WORDS))[0]:
            closing.result()
        else:
            _log.warning("The engine does not let go: the supervisor ends without waiting for it.")

    def stop(self) -> None:
        """Have all processes stop as a worker does; those that take too long are killed."""
        if not self._stopping.is_set():
            self._until = asyncio.get_running_loop().time() + self._grace + OVERTIME
        self._stopping.set()
        self._stop_all()

    def _stop_all(self) -> None:
        for child in list(self._children.values()):
            child.stop()

    def kill(self) -> None:
        for child in list(self._children.values()):
            child.kill()

    def health(self) -> dict[int, Health]:
        """Of each process, by its id."""
        return {child.process.pid: child.claim_log.health() for child in self._children.values()}

    async def _keep_all(self, engine: AsyncEngine) -> None:
        keepers = [asyncio.create_task(self._keep(number, engine)) for number in range(self._processes)]
        for keeper in keepers:
            keeper.add_done_callback(lambda _: self.stop())  # it ends early only when something is wrong
        try:
            await self._stopping.wait()
            await asyncio.wait(keepers, timeout=self._grace + OVERTIME)
        finally:
            self.kill()
            await asyncio.gather(*keepers)

    async def _keep(self, number: int, engine: AsyncEngine) -> None:
        """Keep worker process `number` running, and bury what its processes have left."""
        unburied = Unburied(engine, self._told, self._lease_ms)
        renewing = asyncio.create_task(unburied.keep())
        try:
            await self._keep_going(number, engine, unburied)
        finally:
            renewing.cancel()
            await self._in_time(unburied.bury_all())

    async def _keep_going(self, number: int, engine: AsyncEngine, unburied: Unburied) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                child = await self._start(number, [*unburied])
            except (OSError, RuntimeError) as error:  # out of processes, files, threads or room: that may pass
                failures += 1
                wait = _wait(failures)
                _log.error("A worker process can't be started, which is tried again in %.1f s: %s", wait, error)
                await self._pause(wait)
                continue
            code = await self._see_through(number, child, engine)
            died = time.monotonic()
            worked = 0.0 if child.began is None else died - child.began
            begun = child.claim_log.health().seen > 0
            self._begun |= begun
            said = f"worker process {child.process.pid} {_frozen(self._lease_ms) if child.frozen else _ending(code, begun)}"
            await self._bury(number, child, engine, unburied, said, code)
            if self._stopping.is_set():
                return
            if not begun and code >= 0 and not self._ever_begun():
                _log.error("A %s before it began to work: giving up.", said)
                self._failed = True
                self.stop()
                return
            failures = 0 if begun and (worked >= SHORT or code == STUCK) else failures + 1
            wait = _wait(failures) if failures > 1 else 0.0
            later = f" in {wait:.1f} s" if wait else ""
            _log.warning("The %s after %.1f s and is replaced%s.", said, died - child.born, later)
            await self._pause(wait)

    async def _see_through(self, number: int, child: Child, engine: AsyncEngine) -> int:
        """Wait for its end, and keep its leases while it can't."""
        self._children[number] = child
        if self._stopping.is_set():
            child.stop()
        ending = asyncio.create_task(child.process.wait())
        watching = asyncio.create_task(LeaseKeeper(child.claim_log, self._lease_ms).until_frozen(engine))
        seeing = asyncio.create_task(child.begins())
        try:
            await asyncio.wait({ending, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                watching.result()
                child.frozen = True
                child.kill()
            return await ending
        finally:
            for each in (watching, seeing, ending):
                each.cancel()

    async def _bury(self, number: int, child: Child, engine: AsyncEngine, unburied: Unburied, said: str, code: int) -> None:
        """Nothing of it stays, and what it held is given back."""
        cut_short = self._stopping.is_set() and code in (0, -signal.SIGKILL)  # as at the end of a grace, no attempt
        await self._in_time(unburied.one_more_died())
        given = await self._in_time(give_back(engine, child.claim_log, said, counts=not cut_short, unburied=unburied))
        child.stop()
        child.claim_log.close()
        del self._children[number]
        if given:
            _log.warning("%s given back, since their %s.", "1 message is" if given == 1 else f"{given:,} messages are", said)

    async def _in_time(self, giving: Coroutine[Any, Any, int]) -> int:
        """While all goes on, giving back may take its time; a stop is not held up by it."""
        task = asyncio.create_task(giving)
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        left = self._until - asyncio.get_running_loop().time()
        if (await asyncio.wait({task}, timeout=max(LAST_WORDS, left)))[0]:
            return task.result()
        task.cancel()
        _log.error("The engine did not take back in time what a process held: it comes back when its leases end.")
        return 0

    def _ever_begun(self) -> bool:
        return self._begun or any(child.claim_log.health().seen > 0 for child in self._children.values())

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _start(self, number: int, killed: Sequence[Killed]) -> Child:
        """What was opened for a process that could not be started is closed again."""
        with contextlib.ExitStack() as undo:
            claim_log = ClaimLog.new()
            undo.callback(claim_log.close)
            theirs, ours = os.pipe()
            undo.callback(os.close, ours)
            given = None
            try:
                given = handed_over(killed) if killed else None
                process = await asyncio.create_subprocess_exec(
                    *self._command(number, claim_log.file, theirs, given),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[claim_log.file, theirs, *([] if given is None else [given]), *self._files],
                    process_group=0,
                )
            finally:
                os.close(theirs)
                if given is not None:
                    os.close(given)
            undo.pop_all()
        return Child(process, claim_log, ours)


def _wait(failures: int) -> float:
    """How long to wait after so many in a row."""
    return float(min(LONGEST_WAIT, 0.1 * 2 ** min(failures, 30)))


def _frozen(lease_ms: int) -> str:
    return f"gave no sign of life for {PATIENCE * lease_ms / 1000:g} s and was killed"


def _ending(code: int, begun: bool) -> str:
    if code >= 0:
        return "asked to be replaced" if code == STUCK and begun else f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"

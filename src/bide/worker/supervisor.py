"""Keeps worker processes alive: starts them, replaces the dead, and gives back at once what they held."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bide.engines.aio import AsyncEngine
from bide.errors import Unavailable
from bide.queue import AsyncQueue, Queue
from bide.worker.giving_back import give_back
from bide.worker.ledger import Health, Ledger
from bide.worker.patience import Patience
from bide.worker.signals import stopped_by_signals

_log = logging.getLogger("bide.supervisor")
SHORT = 5.0  # seconds: a process that lives no longer has something wrong with it
LONGEST_WAIT = 10.0
OVERTIME = 0.9  # seconds after the grace, then a process is killed
STUCK = 5  # the exit code of a process that asks to be replaced: a handler does not heed its timeout


class Child:
    """One worker process. Its lifeline is a pipe: it stops when the other end is closed, also by the supervisor's death."""

    def __init__(self, process: asyncio.subprocess.Process, ledger: Ledger, lifeline: int) -> None:
        self.process = process
        self.ledger = ledger
        self.born: float = time.monotonic()
        self._lifeline: int | None = lifeline

    def stop(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Supervisor:
    """`command` makes the command line of a worker process from its ledger's path and its lifeline's number."""

    def __init__(
        self,
        queue: AsyncQueue | Queue,
        command: Callable[[Path, int], Sequence[str]],
        *,
        processes: int,
        concurrency: int,
        grace: float,
    ) -> None:
        self._queue = AsyncQueue._of(queue._setup)
        self._command = command
        self._processes = processes
        self._concurrency = concurrency
        self._grace = grace
        self._stopping = asyncio.Event()
        self._children: dict[int, Child] = {}
        self._failed: int | None = None

    async def run(self) -> int:
        """Until it is stopped by a signal: 0. Processes that can't even begin end it too, with their exit code."""
        loop = asyncio.get_running_loop()
        with (
            tempfile.TemporaryDirectory(prefix="bide-worker-") as folder,
            stopped_by_signals(loop, self.stop, at_once=lambda: self._leave(folder)),
        ):
            try:
                engine = await self._open()
                if engine is not None:
                    await self._keep_all(Path(folder), engine)
            finally:
                await self._queue.close()
        return self._failed or 0

    async def _open(self) -> AsyncEngine | None:
        """The engine; None when it was not to be reached before the supervisor was stopped."""
        patience = Patience("reach the engine", self._stopping)
        while not self._stopping.is_set():
            try:
                return await self._queue._engine()
            except Unavailable as error:
                await patience.lose(error)
        return None

    def stop(self) -> None:
        """Have all processes stop as a worker does; those that take too long are killed."""
        self._stopping.set()
        for child in self._children.values():
            child.stop()

    def kill(self) -> None:
        for child in self._children.values():
            child.kill()

    def _leave(self, folder: str) -> None:
        """The process is about to end at once: nothing of it stays."""
        self.kill()
        shutil.rmtree(folder, ignore_errors=True)

    def health(self) -> dict[int, Health]:
        """Of each process, by its id."""
        return {child.process.pid: child.ledger.health() for child in self._children.values()}

    async def _keep_all(self, folder: Path, engine: AsyncEngine) -> None:
        keepers = [asyncio.create_task(self._keep(folder, number, engine)) for number in range(self._processes)]
        for keeper in keepers:
            keeper.add_done_callback(lambda _: self.stop())  # it ends early only when something is wrong
        try:
            await self._stopping.wait()
            await asyncio.wait(keepers, timeout=self._grace + OVERTIME)
        finally:
            self.kill()
            await asyncio.gather(*keepers)

    async def _keep(self, folder: Path, number: int, engine: AsyncEngine) -> None:
        """See to it that there is a process number so-and-so."""
        failures = 0
        while not self._stopping.is_set():
            child = await self._start(folder / f"{number}")
            self._children[number] = child
            if self._stopping.is_set():
                child.stop()
            code = await child.process.wait()
            lived = time.monotonic() - child.born
            said = f"worker process {child.process.pid} {_ending(code)}"
            cut_short = self._stopping.is_set() and code == -signal.SIGKILL  # by us: as at the end of a grace, no attempt
            crashed = code != -signal.SIGKILL
            given = await give_back(engine, child.ledger, said, crashed=crashed, counts=not cut_short)
            begun = child.ledger.health().seen > 0
            child.stop()
            child.ledger.close()
            del self._children[number]
            if given:
                _log.warning("%d messages are given back, since their %s.", given, said)
            if self._stopping.is_set():
                return
            if not begun and code > 0 and not failures:
                _log.error("A %s before it began to work: giving up.", said)
                self._failed = code
                self.stop()
                return
            failures = failures + 1 if lived < SHORT and code != STUCK else 0
            wait = min(LONGEST_WAIT, 0.1 * 2**failures) if failures > 1 else 0.0
            _log.warning("The %s after %.1f s and is replaced%s.", said, lived, f" in {wait:.1f} s" if wait else "")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()

    async def _start(self, path: Path) -> Child:
        ledger = Ledger.new(path, self._concurrency)
        theirs, ours = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(path, theirs), stdin=asyncio.subprocess.DEVNULL, pass_fds=[theirs], process_group=0
            )
        finally:
            os.close(theirs)
        return Child(process, ledger, ours)


def _ending(code: int) -> str:
    if code >= 0:
        return "asked to be replaced" if code == STUCK else f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"

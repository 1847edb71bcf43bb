"""What a worker does beside its messages: announces schedules, hands on an outbox, looks for what nobody here handles, and
tells others of itself.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence

from bide.engines.aio import AsyncEngine
from bide.errors import BideError
from bide.ids import exact_version, process_name
from bide.logs import Log
from bide.queue.aio.outbox import AsyncOutbox
from bide.queue.aio.planner import AsyncPlanner
from bide.queue.schedules.definition import PlannedSchedule
from bide.queue.schedules.records import OWN
from bide.queue.tasks.definition import Tasks
from bide.queue.workers import Process, Work, key, report
from bide.worker.stop import StopWaits

_log = Log("bide.worker")
EVERY = 60.0  # seconds
AGAIN = 5.0  # seconds, when the engine has failed
LOOK = 5.0  # seconds between looks at what claims have told of the clock
TOLD = 5.0  # seconds between two reports of what a worker does


class Orphans:
    def __init__(self, engine: AsyncEngine, tasks: Tasks, late: Callable[[str], bool]) -> None:
        self._engine = engine
        self._tasks = tasks
        self._late = late  # whether the task for a topic was defined when the worker had begun
        self._told: set[str] = set()
        self.count: int = 0

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except BideError as error:
                _log.debug("Could not look for messages without a handler: %s", error)
            except Exception:  # of an engine that somebody has plugged in: the next look may do
                _log.exception("The engine broke down over a look for messages without a handler")
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Count what is due and has no handler, and say it once for each topic."""
        served = [topic for topic in self._tasks if not self._late(topic)]
        stats = await self._engine.stats(but=[*served, *OWN])
        waiting = {topic: each.ready for topic, each in stats.topics.items() if each.ready}
        self.count = sum(waiting.values())
        for topic, ready in waiting.items():
            if topic not in self._told and self._tasks.get(topic) is not None:
                _log.warning(
                    "%s, and its task was defined when this worker had begun, which does not serve it: messages stay. "
                    "Import the module that defines it before the worker begins.",
                    _due(topic, ready),
                )
            elif topic not in self._told:
                _log.warning(
                    "%s and no task here is for them: they stay. Another worker may have it; if not, "
                    "import the module that defines it, or add the topic to a task's aliases.",
                    _due(topic, ready),
                )
        self._told = set(waiting)


def _due(topic: str, ready: int) -> str:
    return f"1 message of {topic} is due" if ready == 1 else f"{ready:,} messages of {topic} are due"


class Announcer:
    def __init__(self, planner: AsyncPlanner, schedules: Sequence[PlannedSchedule]) -> None:
        self._planner = planner
        self.schedules: Sequence[PlannedSchedule] = schedules

    async def run(self) -> None:
        """Announce its schedules at once, and then every minute."""
        begins, set_back = True, False
        while True:
            try:
                await self._planner.announce(self.schedules, begins=begins)
                begins = False
                await self._planner.sweep()
            except BideError as error:
                _log.warning("The worker could not announce its schedules, and tries again: %s", error)
                await asyncio.sleep(AGAIN)
                continue
            # what was under way when the clock was set back plans its next instant meanwhile
            set_back = await self._pause(AGAIN if set_back else EVERY)

    async def _pause(self, seconds: float) -> bool:
        """Or until it is seen that the clock was set back, as other instants are next then. Whether it was."""
        until = time.monotonic() + seconds
        while not self._planner.set_back():
            left = until - time.monotonic()
            if left <= 0:
                return False
            await asyncio.sleep(min(left, LOOK))
            with contextlib.suppress(BideError):
                await self._planner.now()  # a worker with nothing to do may not have claimed since
        return True


class Reporter:
    """Tells every five seconds who this is and what it has done, in one message which replaces the one before."""

    def __init__(
        self, engine: AsyncEngine, topics: Iterable[str], look: Callable[[int], Work], now_ms: Callable[[], int]
    ) -> None:
        """`look`: is given the time."""
        self._engine = engine
        self._now_ms = now_ms
        self._topics = sorted(topics)
        self._look = look
        self._version = exact_version()
        self._key = ""
        self._started = 0

    async def run(self) -> None:
        """Until it is cancelled, as at the end; then it is told that the worker has stopped."""
        self._key, self._started = key(process_name(os.getpid())), self._now_ms()
        while True:
            try:
                await self._tell()
            except BideError as error:  # the claims tell of an engine that is away
                _log.debug("Could not tell of this worker: %s", error)
            except Exception:  # of an engine that somebody has plugged in: the next time may do
                _log.exception("The engine broke down when this worker told of itself")
            await asyncio.sleep(TOLD)

    async def stop(self) -> None:
        if self._key:
            with contextlib.suppress(BideError):
                await self._tell(stopped=True)

    async def _tell(self, *, stopped: bool = False) -> None:
        process = Process(socket.gethostname(), os.getpid(), self._version, self._topics, self._started, stopped)
        await self._engine.put([report(self._key, process, self._look(self._now_ms()))])


class Relayer:
    """Begins at once. When the worker stops, it sees through what it has claimed: nobody else may take that for a while."""

    def __init__(self, outbox: AsyncOutbox) -> None:
        self._relay = outbox.relay()
        self._running = asyncio.create_task(self._relay.run())

    def stop(self) -> None:
        """Claim nothing more."""
        self._relay.stop()
        if self._relay.waits:
            self._running.cancel()

    async def end(self, ending: StopWaits) -> None:
        await ending.grace([self._running], ending.left)
        self._running.cancel()

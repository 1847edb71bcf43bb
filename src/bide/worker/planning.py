"""Schedules in a worker: announces them, and has the next instant planned before the handler of one is called."""

import asyncio
import contextlib
import time
from collections.abc import Hashable, Sequence
from typing import Protocol

from bide.errors import BideError, EngineError
from bide.logs import Log
from bide.queue.aio.planning import AsyncPlanner
from bide.queue.batching import Collector, Line
from bide.queue.schedules.definition import Planned
from bide.worker.handling import Handling
from bide.worker.retry import Retrying

_log = Log("bide.worker")
EVERY = 60.0  # seconds
AGAIN = 5.0  # seconds, when the engine has failed
LOOK = 5.0  # seconds between looks at what claims have told of the clock


class Called(Protocol):
    """Who is told whether the handler of an instant is to be called."""

    def goes_on(self, handling: Handling) -> None: ...
    def left_out(self, handling: Handling) -> None: ...
    def set_aside(self, handling: Handling) -> None: ...


class Planning(Collector[Handling]):
    def __init__(self, planner: AsyncPlanner, schedules: Sequence[Planned], called: Called) -> None:
        super().__init__()
        self._planner = planner
        self.schedules: Sequence[Planned] = schedules
        self._called = called
        self._retrying = Retrying("plan the next instants of its schedules")

    def part_of(self, entry: Handling) -> Hashable:
        return self._planner.part_of(entry.delivery.claimed)

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

    def stalls(self, line: Line[Handling]) -> None:
        stalled, line.waiting = [*line.under_way, *line.waiting], []
        for each in stalled:
            self._called.set_aside(each)

    async def one_call(self, line: Line[Handling], batch: list[Handling]) -> None:
        instants = [each for each in batch if not each.told]
        try:
            answers = await self._planner.follow([each.delivery.claimed for each in instants], _now(instants))
        except EngineError as error:
            line.bring_again(instants)
            await self._retrying.lose(error, line.part)
            return
        self._retrying.regain(line.part)
        for handling, call in zip(instants, answers, strict=True):
            if handling.told:
                continue
            if call:
                self._called.goes_on(handling)
            else:
                self._called.left_out(handling)


def _now(handlings: Sequence[Handling]) -> int:
    """The engine's time when these were handed out."""
    return max((each.delivery.now for each in handlings), default=0)

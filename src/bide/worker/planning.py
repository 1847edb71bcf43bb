"""The schedules of a worker: it announces that they are in use, so that the next instant of each is planned."""

import asyncio
import contextlib
import time
from collections.abc import Sequence

from bide.errors import BideError
from bide.logs import Log
from bide.queue.aio.planning import AsyncPlanner
from bide.queue.schedules.definition import Planned

_log = Log("bide.worker")
EVERY = 60.0  # seconds
AGAIN = 5.0  # seconds, when the engine has failed
LOOK = 5.0  # seconds between looks at what claims have told of the clock


class Planning:
    def __init__(self, planner: AsyncPlanner, schedules: Sequence[Planned]) -> None:
        self._planner = planner
        self.schedules: Sequence[Planned] = schedules

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

"""The awaits of a stop: each has a limit, and being cancelled in one of them does not skip those that follow."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from bide.logs import Log

_log = Log("bide.worker")
LAST_WORDS = 0.4  # seconds: what cancelled handlers get to end in, and then the last ends on their way
OVERTIME = 0.85  # seconds after the grace, for all that is left to do then
LEAST = 0.05  # seconds that each part of it gets, also when others have used them up


class Ending:
    """Being cancelled meanwhile is remembered: it ends the grace, and is passed on when all is done."""

    def __init__(self, until: float) -> None:
        """`until`, by the loop's time, is when the grace is over."""
        self._loop = asyncio.get_running_loop()
        self._until = until
        self.cancelled: bool = False

    @property
    def left(self) -> float:
        """Seconds of the grace."""
        return max(0.0, self._until - self._loop.time())

    async def grace(self, tasks: Iterable["asyncio.Future[Any]"]) -> None:
        """Wait for these as long as the grace lasts."""
        waiting = [each for each in tasks if not each.done()]
        if waiting:
            try:
                await asyncio.wait(waiting, timeout=self.left)
            except asyncio.CancelledError:
                self.cancelled = True
                self._until = self._loop.time()

    async def wait(self, tasks: Iterable["asyncio.Future[Any]"], seconds: float = LAST_WORDS) -> None:
        """Wait for these for so long at most, or for less if little is left."""
        begun = self._loop.time()
        until = begun + min(seconds, max(LEAST, self._until + OVERTIME - begun))
        while waiting := [each for each in tasks if not each.done()]:
            try:
                await asyncio.wait(waiting, timeout=max(0.0, until - self._loop.time()))
            except asyncio.CancelledError:
                self.cancelled = True
            if self._loop.time() >= until:
                return

    async def see_through(self, part: Coroutine[Any, Any, Any], seconds: float = LAST_WORDS) -> bool:
        """Do a part of the stop, within its limit; whether it came to an end. One that fails does not keep the rest back."""
        task = self._loop.create_task(part)
        await self.wait([task], seconds)
        if not task.done():
            return False
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("A part of the worker's end has failed: %s", error, exc_info=error)
        return True

"""What to do while the engine fails: say so once, wait a little longer each time, and say when it is over."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

from bide.core.backoff import Backoff, exponential, wait_ms
from bide.core.formats import plural
from bide.errors import EngineError, Unavailable
from bide.logs import Log

_log = Log("bide.worker")
T = TypeVar("T")
_WAIT: Backoff = exponential("50ms", cap="5s", jitter=0.2)


class EngineTrouble:
    """`stopping` ends a wait early."""

    def __init__(self, what: str, stopping: asyncio.Event | None = None) -> None:
        self._what = what
        self._stopping = stopping or asyncio.Event()
        self._failing: dict[Hashable, int] = {}  # by parts of the engine: how often it has failed by now
        self._failures = 0
        self.failing_since: float = 0.0

    async def lose(self, error: Exception, part: Hashable = None) -> None:
        """It failed again: wait before the next try."""
        if not self._failing:
            self.failing_since, self._failures = time.monotonic(), 0
            _log.warning("The worker can't %s and goes on trying: %s", self._what, error)
        self._failures += 1
        self._failing[part] = failures = self._failing.get(part, 0) + 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms(_WAIT, failures) / 1000):
                await self._stopping.wait()

    def regain(self, part: Hashable = None) -> None:
        """It worked. It works again when it does with all parts."""
        if self._failing.pop(part, 0) and not self._failing:
            _log.warning("The worker can %s again, after %s.", self._what, plural(self._failures, "failure"))
            self.failing_since = 0.0


def refused(error: EngineError) -> bool:
    """Whether the engine has answered that it will not do this, or a part of it. What passes has errors of its own."""
    return EngineError in (type(error), type(error.__cause__))


async def reached(open_: Callable[[], Awaitable[T]], stopping: asyncio.Event) -> T | None:
    """What is opened, as soon as the engine can be reached; None when it is time to stop before that."""
    patience = EngineTrouble("reach the engine", stopping)
    while not stopping.is_set():
        opening = asyncio.ensure_future(open_())
        stop = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait({opening, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                return None
            return opening.result()
        except Unavailable as error:
            await patience.lose(error)
        finally:
            stop.cancel()
            opening.cancel()
    return None

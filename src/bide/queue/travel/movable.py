"""An application's own queue, moved to another place for the length of a test."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from bide.clock import ManualClock
from bide.engines import registry
from bide.queue.tasks.middleware import Middleware, checked
from bide.queue.travel.following import FollowingClock

if TYPE_CHECKING:
    from bide.queue.aio.opened import AsyncOpened
    from bide.queue.sync.opened import Opened


class Movable(ABC):
    """What travel in both colours can do with its queue."""

    def __init__(self, queue: "AsyncOpened | Opened") -> None:
        self._here = queue

    @abstractmethod
    def close(self) -> None:
        """Let go of what was opened on the way."""

    @property
    def middleware(self) -> Sequence[Middleware]:
        """What is called around each handler in time travel, as `Worker(middleware=…)` does in real time.

        `queue.testing.middleware = [timed]`; the queue's twin has the same. Raises BadOption for what can't be called.
        """
        return self._here._setup.middleware

    @middleware.setter
    def middleware(self, given: Sequence[Middleware]) -> None:
        self._here._setup.middleware = checked(given)

    def in_memory(self, start: datetime | None = None) -> AbstractContextManager[ManualClock]:
        """While this lasts, the queue lives in memory: `elsewhere("memory://")`."""
        return self.elsewhere("memory://", start)

    @contextmanager
    def elsewhere(self, url: str, start: datetime | None = None) -> Iterator[ManualClock]:
        """While this lasts, the queue, its twin and its tasks live at another place, by a clock that stands still.

        `with queue.testing.in_memory():` in a fixture lets the tests of an application use the very queue that its
        modules share. Workers that are made meanwhile work there too. Afterwards the queue is as it was; what was opened
        meanwhile is yours to close. The clock begins at `start`, or at the real now, and then it goes with freezegun and
        time-machine.
        """
        setup = self._here._setup
        twins = [self._here, *(self._here.__dict__[name] for name in ("aio", "sync") if name in self._here.__dict__)]
        before = [dict(each.__dict__) for each in twins]
        place = setup.settings, setup.source, setup.clock, setup.middleware
        clock = FollowingClock() if start is None else ManualClock(start)
        setup.settings = msgspec.structs.replace(setup.settings, url=url, client=None, clock=clock)
        try:
            setup.source, setup.clock = registry.source(setup.settings, setup.hooks), clock
            for each in twins:
                each._begin(setup)
            yield clock
        finally:
            self.close()
            setup.settings, setup.source, setup.clock, setup.middleware = place
            for each, state in zip(twins, before, strict=True):
                each.__dict__.clear()
                each.__dict__.update(state)

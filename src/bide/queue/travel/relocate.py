"""An application's own queue, moved to another place for the length of a test."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

import msgspec

from bide.clock import ManualClock
from bide.engines import registry
from bide.errors import ConfigError
from bide.queue.tasks.definition import Middleware, checked
from bide.queue.travel.following import FollowingClock
from bide.queue.travel.invoke import AsyncInvoke, Invoke


class Relocatable:
    """What time travel can do in sync and async alike."""

    def __init__(self, invoke: AsyncInvoke | Invoke) -> None:
        self._setup = invoke.session.setup
        self._sessions = invoke.sessions
        self._close = invoke.close

    @property
    def middleware(self) -> Sequence[Middleware]:
        """What is called around each handler in time travel, as `Worker(middleware=…)` does in real time.

        `queue.testing.middleware = [timed]`; the queue's twin has the same. Raises BadOption for what can't be called.
        """
        return self._setup.middleware

    @middleware.setter
    def middleware(self, given: Sequence[Middleware]) -> None:
        self._setup.middleware = checked(given)

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
        setup = self._setup
        mover = threading.get_ident()
        if setup.moved_by not in (None, mover):
            raise ConfigError(
                "Another thread has this queue elsewhere already. Run tests that move one queue one after the other, or give "
                "each a queue of its own."
            )
        before = setup.settings, setup.source, setup.clock, setup.middleware, setup.moved_by
        clock = FollowingClock() if start is None else ManualClock(start)
        here, other = self._sessions()
        settings = msgspec.structs.replace(setup.settings, url=url, client=None, clock=clock)
        source = registry.source(settings, setup.hooks)
        with here.set_aside(), other.set_aside():
            setup.settings, setup.source, setup.clock, setup.moved_by = settings, source, clock, mover
            try:
                yield clock
            finally:
                try:
                    self.close()
                finally:
                    setup.settings, setup.source, setup.clock, setup.middleware, setup.moved_by = before

    def close(self) -> None:
        """Let go of what handlers were called with."""
        self._close()

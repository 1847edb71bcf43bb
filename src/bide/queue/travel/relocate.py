"""An application's own queue, moved to another place for the length of a test."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

import msgspec

from bide.clock import ManualClock
from bide.engines import registry
from bide.errors import ConfigError
from bide.queue.later import Later
from bide.queue.tasks.middleware import Middleware, checked
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
        """The middleware around each handler in time travel, like `Worker(middleware=…)` in real time.

        Set it with `queue.testing.middleware = [timed]`, for sync and async at once. Raises BadOption for something that can't
        be called.
        """
        return self._setup.middleware

    @middleware.setter
    def middleware(self, given: Sequence[Middleware]) -> None:
        self._setup.middleware = checked(given)

    def in_memory(self, start: datetime | None = None) -> AbstractContextManager[ManualClock]:
        """Move the queue into memory for a `with` block: `elsewhere("memory://")`."""
        return self.elsewhere("memory://", start)

    @contextmanager
    def elsewhere(self, url: str, start: datetime | None = None) -> Iterator[ManualClock]:
        """Move the queue to another URL for a `with` block, with its tasks, its `.sync` or `.aio`, and a clock that stands
        still.

        Use it in a fixture, to test an application with the queue that its modules share. Workers created in the block use the
        new URL too. After the block, the queue is as before; close what you opened in it. The clock begins at `start`. Without
        `start` it begins at the real time, and follows freezegun and time-machine.
        """
        setup = self._setup
        mover = threading.get_ident()
        if setup.moved_by not in (None, mover):
            raise ConfigError(
                "Another thread has this queue elsewhere already. Run tests that move one queue one after the other, or give "
                "each a queue of its own."
            )
        before = setup.settings, setup.source, setup.later, setup.clock, setup.middleware, setup.moved_by
        clock = FollowingClock() if start is None else ManualClock(start)
        here, other = self._sessions()
        settings = msgspec.structs.replace(setup.settings, url=url, client=None, clock=clock, for_test=True)
        source = registry.source(settings, setup.hooks, setup.subscriptions.switch)
        with here.as_new(), other.as_new():
            setup.settings, setup.source, setup.clock, setup.moved_by = settings, source, clock, mover
            setup.later = Later(source, setup.now_ms, setup.tasks.rules.most)
            try:
                yield clock
            finally:
                try:
                    setup.later.close()
                    self.close()
                finally:
                    setup.settings, setup.source, setup.later, setup.clock, setup.middleware, setup.moved_by = before

    def close(self) -> None:
        """Let go of what handlers were called with."""
        self._close()

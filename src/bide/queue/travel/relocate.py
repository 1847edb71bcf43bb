"""An application's own queue moved to another place for the length of a test, and the clock of the fixtures."""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from bide.clock import MS, ManualClock, moment
from bide.engines import registry
from bide.errors import ConfigError
from bide.queue.later import Later
from bide.queue.run.call import Middleware, checked
from bide.queue.travel.invoke import AsyncInvoke, Invoke

_EPOCH = datetime(1970, 1, 1)  # naive and in UTC, as freezegun counts
_MICROSECOND = timedelta(microseconds=1)


class Stopped(Protocol):
    """A time that freezegun or time-machine shows to the whole process."""

    def now_ns(self) -> int: ...
    def move(self, ns: int) -> None: ...


class Frozen:
    """freezegun's."""

    def __init__(self, factory: Any) -> None:
        self._factory = factory

    def now_ns(self) -> int:
        steps = hasattr(self._factory, "step_width")  # each look at such a time moves it
        now = self._factory.time_to_freeze if steps else self._factory()
        micros: int = (now - _EPOCH) // _MICROSECOND
        return micros * 1_000

    def move(self, ns: int) -> None:
        self._factory.move_to(moment(ns // MS))


class Travelled:
    """time-machine's."""

    def __init__(self, traveller: Any) -> None:
        self._traveller = traveller

    def now_ns(self) -> int:
        return int(self._traveller.time_ns())

    def move(self, ns: int) -> None:
        self._traveller.shift(timedelta(microseconds=(ns - self.now_ns()) // 1_000))


def stopped() -> Stopped | None:
    """The innermost one that is at work. Neither package is imported here: one that is at work has been."""
    frozen = getattr(sys.modules.get("freezegun.api"), "freeze_factories", None)
    if frozen:
        return Frozen(frozen[-1])
    machine = sys.modules.get("time_machine")
    travelled = getattr(machine, "traveller_stack", None) or getattr(machine, "coordinates_stack", None)  # the second in 2.x
    return Travelled(travelled[-1]) if travelled else None


class FollowingClock(ManualClock):
    """Shows the real now at the first look and stands still from then on. While time is stopped, it shows that time."""

    def __init__(self) -> None:
        super().__init__(moment(0))
        self._begun = False
        self._ahead_of: int | None = None  # a stopped time that would set this one back, in nanoseconds

    def now_ns(self) -> int:
        other = stopped()
        if other is not None:
            shown = _whole(other.now_ns())
            self._ahead_of = shown if self._begun and shown < self._ns else None
            self._ns = max(self._ns, shown)
        elif not self._begun:
            self._ns = _whole(time.time_ns())
        self._begun = True
        return self._ns

    @property
    def now_ms(self) -> int:
        return self.now_ns() // MS

    def set_ms(self, ms: int) -> None:
        """Move to this instant, and what has stopped the time moves too."""
        other = stopped()
        if other is not None:
            other.move(ms * MS)
        self._begun = True
        super().set_ms(ms)

    def check(self) -> None:
        """Raise ConfigError when the test has set the time back: a queue's time does not follow."""
        now = self.now()
        if self._ahead_of is not None:
            raise ConfigError(
                f"The test's time was set back to {moment(self._ahead_of // MS):%Y-%m-%d %H:%M:%S} UTC, but the queue has "
                f"seen {now:%Y-%m-%d %H:%M:%S}, and its time never goes back. Stop the time before the queue is first used."
            )


def _whole(ns: int) -> int:
    """The next whole millisecond, which is as exact as engines are: what the test asks for from now on is never later."""
    return -(-ns // MS) * MS


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

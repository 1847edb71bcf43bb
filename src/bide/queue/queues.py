"""The two queues, each with the other one: one place, one set of options, two ways to call."""

import functools
from typing import TYPE_CHECKING, Never

from bide.errors import ConfigError
from bide.queue.aio.queue import AsyncVerbs
from bide.queue.aio.travel import AsyncTravel
from bide.queue.bound import by_its_own_name
from bide.queue.sync.queue import Verbs
from bide.queue.sync.travel import Travel
from bide.queue.travel.invoke import AsyncInvoke, Invoke


@by_its_own_name
class AsyncQueue(AsyncVerbs):
    """A queue for `asyncio`. It connects on first use, and belongs to the event loop that used it first.

    Without a URL, it uses $BIDE_URL, or else the SQLite file bide.db in the current folder; its path is logged once.
    """

    if not TYPE_CHECKING:  # type checkers say it themselves

        def __enter__(self) -> Never:
            raise ConfigError("An AsyncQueue is entered with `async with`. For `with`, use queue.sync.")

        def __exit__(self, *error: object) -> None:
            """Without it, Python would say that there are no such blocks."""

    @functools.cached_property
    def sync(self) -> "Queue":
        """The same queue for threads: same messages, same options. Close it separately."""
        other = Queue._of(self.session.setup)
        other.__dict__["aio"] = self
        return other

    @functools.cached_property
    def testing(self) -> AsyncTravel:
        """Time travel, for a queue with a ManualClock."""
        return AsyncTravel(AsyncInvoke(self.session, lambda: self.sync.session))

    async def close(self) -> None:
        """Close the engine's connections, after running sends have ended. A closed queue can't be used again.

        What `later` took is sent before, as far as that is possible in five seconds.
        """
        await super().close()
        if "testing" in self.__dict__:
            self.testing.close()


@by_its_own_name
class Queue(Verbs):
    """A queue for threads and scripts. It connects on first use, and again in a forked process.

    Without a URL, it uses $BIDE_URL, or else the SQLite file bide.db in the current folder; its path is logged once.
    """

    if not TYPE_CHECKING:  # type checkers say it themselves

        async def __aenter__(self) -> Never:
            raise ConfigError("A Queue is entered with `with`. For `async with`, use queue.aio, and await its calls.")

        async def __aexit__(self, *error: object) -> None:
            """Without it, Python would say that there are no such blocks."""

    @functools.cached_property
    def aio(self) -> AsyncQueue:
        """The same queue for `asyncio`: same messages, same options. Close it separately."""
        other = AsyncQueue._of(self.session.setup)
        other.__dict__["sync"] = self
        return other

    @functools.cached_property
    def testing(self) -> Travel:
        """Time travel, for a queue with a ManualClock."""
        return Travel(Invoke(self.session, lambda: self.aio.session))

    def close(self) -> None:
        """Close the engine's connections, after running sends have ended. A closed queue can't be used again.

        What `later` took is sent before, as far as that is possible in five seconds.
        """
        super().close()
        if "testing" in self.__dict__:
            self.testing.close()

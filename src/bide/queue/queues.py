"""The two queues, each with the other one: one place, one set of options, two ways to call."""

import functools

from bide.queue.aio.queue import AsyncVerbs
from bide.queue.aio.travel import AsyncTravel
from bide.queue.sync.queue import Verbs
from bide.queue.sync.travel import Travel
from bide.queue.travel.invoke import AsyncInvoke, Invoke


class AsyncQueue(AsyncVerbs):
    """A queue for `asyncio`: connects on first use, and belongs to the event loop that used it first.

    Without a URL it is $BIDE_URL, else the SQLite file bide.db in the current folder, whose path is logged once.
    """

    @functools.cached_property
    def sync(self) -> "Queue":
        """The same queue for threads: same place, same options. Close it by itself."""
        other = Queue._of(self.session.setup)
        other.__dict__["aio"] = self
        return other

    @functools.cached_property
    def testing(self) -> AsyncTravel:
        """Time travel, for a queue that was made with a ManualClock."""
        return AsyncTravel(AsyncInvoke(self.session, lambda: self.sync.session))

    async def close(self) -> None:
        """Let go of the engine. What was being sent is seen through first; using the queue again is refused."""
        await super().close()
        if "testing" in self.__dict__:
            self.testing.close()


class Queue(Verbs):
    """A queue for threads and plain scripts: connects on first use, and again in a forked process.

    Without a URL it is $BIDE_URL, else the SQLite file bide.db in the current folder, whose path is logged once.
    """

    @functools.cached_property
    def aio(self) -> AsyncQueue:
        """The same queue for `asyncio`: same place, same options. Close it by itself."""
        other = AsyncQueue._of(self.session.setup)
        other.__dict__["sync"] = self
        return other

    @functools.cached_property
    def testing(self) -> Travel:
        """Time travel, for a queue that was made with a ManualClock."""
        return Travel(Invoke(self.session, lambda: self.aio.session))

    def close(self) -> None:
        """Let go of the engine. What was being sent is seen through first; using the queue again is refused."""
        super().close()
        if "testing" in self.__dict__:
            self.testing.close()

"""The queue in its two colours, each with its twin: one place, one set of options, two ways to call."""

import functools

from bide.queue.aio import AsyncVerbs
from bide.queue.sync import Verbs
from bide.queue.travel.aio import AsyncTravel
from bide.queue.travel.sync import Travel


class AsyncQueue(AsyncVerbs):
    """A queue for `asyncio`: connects on first use, and belongs to the event loop that used it first.

    Without a URL it is $BIDE_URL, else the SQLite file bide.db in the current folder, whose path is logged once.
    """

    @functools.cached_property
    def sync(self) -> "Queue":
        """The same queue for threads: same place, same options. Close it by itself."""
        twin = Queue.__new__(Queue)
        twin._begin(self._setup)
        twin.__dict__["aio"] = self
        return twin

    @functools.cached_property
    def testing(self) -> AsyncTravel:
        """Time travel, for a queue that was made with a ManualClock."""
        return AsyncTravel(self)


class Queue(Verbs):
    """A queue for threads and plain scripts: connects on first use, and again in a forked process.

    Without a URL it is $BIDE_URL, else the SQLite file bide.db in the current folder, whose path is logged once.
    """

    @functools.cached_property
    def aio(self) -> AsyncQueue:
        """The same queue for `asyncio`: same place, same options. Close it by itself."""
        twin = AsyncQueue.__new__(AsyncQueue)
        twin._begin(self._setup)
        twin.__dict__["sync"] = self
        return twin

    @functools.cached_property
    def testing(self) -> Travel:
        """Time travel, for a queue that was made with a ManualClock."""
        return Travel(self)

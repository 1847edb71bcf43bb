"""The queue in its two colours, each with its twin: one place, one set of options, two ways to call."""

import functools

from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.travel import AsyncTravel
from bide.queue.aio.verbs import AsyncVerbs
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.travel import Travel
from bide.queue.sync.verbs import Verbs


class AsyncQueue(AsyncVerbs):
    """A queue for `asyncio`: connects on first use, and belongs to the event loop that used it first.

    Without a URL it is $BIDE_URL, else the SQLite file bide.db in the current folder, whose path is logged once.
    """

    @functools.cached_property
    def sync(self) -> "Queue":
        """The same queue for threads: same place, same options. Close it by itself."""
        twin = Queue._of(self._setup)
        twin.__dict__["aio"] = self
        return twin

    @functools.cached_property
    def testing(self) -> AsyncTravel:
        """Time travel, for a queue that was made with a ManualClock."""
        return AsyncTravel(self)

    async def close(self) -> None:
        """Let go of the engine. What was being sent is seen through first; using the queue again is refused."""
        await super().close()
        if "testing" in self.__dict__:
            self.testing.close()

    async def _delivery(self, delivery: Delivery) -> AsyncDelivery:
        """The same delivery in this colour."""
        engine = await self._engine()
        return AsyncDelivery(delivery.claimed, delivery.body, delivery.now, engine, self._settles)


class Queue(Verbs):
    """A queue for threads and plain scripts: connects on first use, and again in a forked process.

    Without a URL it is $BIDE_URL, else the SQLite file bide.db in the current folder, whose path is logged once.
    """

    @functools.cached_property
    def aio(self) -> AsyncQueue:
        """The same queue for `asyncio`: same place, same options. Close it by itself."""
        twin = AsyncQueue._of(self._setup)
        twin.__dict__["sync"] = self
        return twin

    @functools.cached_property
    def testing(self) -> Travel:
        """Time travel, for a queue that was made with a ManualClock."""
        return Travel(self)

    def close(self) -> None:
        """Let go of the engine. What was being sent is seen through first; using the queue again is refused."""
        super().close()
        if "testing" in self.__dict__:
            self.testing.close()

    def _delivery(self, delivery: AsyncDelivery) -> Delivery:
        """The same delivery in this colour."""
        engine = self._engine()
        return Delivery(delivery.claimed, delivery.body, delivery.now, engine, self._settles)

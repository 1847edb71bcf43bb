# unasync: sync.py
"""The one verb of a delay queue that waits."""

from typing import Generic, TypeVar

from bide.delays.base import BaseDelayQueue, Nothing, deadline_of
from bide.types import Duration
from bide.wakeable import AsyncSignal

T = TypeVar("T")


class AsyncDelayQueue(BaseDelayQueue[T], Generic[T]):
    """Items that can be taken when their delay has gone by: never early, first due first. In this process only.

    However many wait in `take`, one sleeps until the first item is due, and an earlier one wakes one. The clock is monotonic.
    """

    async def take(self, timeout: Duration | None = None) -> T:
        """The first item, as soon as it is due; it is then yours alone.

        Raises TimeoutError when nothing fell due in time, BadTime for a timeout that can't be used, and Unavailable when the
        queue is closed, also while waiting.
        """
        deadline = deadline_of(timeout)
        me = AsyncSignal()
        try:
            while True:
                me.clear()
                item, seconds = self._take_or_wait(me, deadline)
                if not isinstance(item, Nothing):
                    return item
                await me.wait(seconds)
        finally:
            self._leave(me)

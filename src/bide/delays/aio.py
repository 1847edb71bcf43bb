# unasync: sync/__init__.py
"""The one verb of a delay queue that waits."""

from typing import Generic, TypeVar

from bide.delays.base import BaseDelayQueue, Nothing, deadline_of
from bide.types import Duration
from bide.wakeable import AsyncSignal

T = TypeVar("T")


class AsyncDelayQueue(BaseDelayQueue[T], Generic[T]):
    """A queue whose items can be taken when their delay is over: in due order, and never early. Inside one process only.

    If many wait in `take`, one sleeps until the first item is due, and an earlier item wakes one. The clock is monotonic.
    """

    async def take(self, timeout: Duration | None = None) -> T:
        """Wait until the first item is due, and take it.

        Raises TimeoutError if no item is due in time, BadTime for an invalid timeout, and Unavailable if the queue is closed,
        also while waiting.
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

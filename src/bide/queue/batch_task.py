"""A task whose function is given many messages at once, as its users hold it: a message is one item of the list."""

from collections.abc import Awaitable
from typing import Any, Generic, TypeVar, overload

from bide.queue.aio.sends import AsyncBatchSends
from bide.queue.bound import Bound, HasAsyncSession, HasSession, by_its_own_name
from bide.queue.sync.sends import BatchSends
from bide.queue.tasks.failed import Failures

T = TypeVar("T")
A = TypeVar("A", bound=Failures | Awaitable[Failures | None] | None)
"""What a function that is given a batch answers."""


class InBatches(Bound[[list[T]], A], Generic[T, A]):
    """A task whose function is called for many messages at once."""

    @overload
    def on(self, queue: HasAsyncSession) -> "AsyncBatchTask[T, A]": ...
    @overload
    def on(self, queue: HasSession) -> "BatchTask[T, A]": ...
    def on(self, queue: Any) -> Any:
        """Return the same task for another queue, sync or async as that queue is: `task.on(queue.sync).send(like)`."""
        return self._of(queue, AsyncBatchTask, BatchTask)


@by_its_own_name
class AsyncBatchTask(AsyncBatchSends[T, A], InBatches[T, A]):
    """A function that handles messages in batches. Calling the task calls the function; `send` lets a worker call it."""


@by_its_own_name
class BatchTask(BatchSends[T, A], InBatches[T, A]):
    """A function that handles messages in batches. Calling the task calls the function; `send` lets a worker call it."""

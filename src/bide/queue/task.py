"""A task as its users hold it, sync or async: its function is called for each message, or for many at once."""

from collections.abc import Awaitable
from typing import Any, Generic, TypeVar, overload

from bide.queue.aio.task_sends import AsyncBatchSends, AsyncKeepingSends, AsyncSends
from bide.queue.bound import Bound, HasAsyncSession, HasSession, P, R, by_its_own_name
from bide.queue.sync.task_sends import BatchSends, KeepingSends, Sends
from bide.queue.tasks.outcome import Failures

T = TypeVar("T")
A = TypeVar("A", bound=Failures | Awaitable[Failures | None] | None)
"""What a function that is given a batch answers."""


class OneByOne(Bound[P, R]):
    """A task whose function is called for each message."""

    @overload
    def on(self, queue: HasAsyncSession) -> "AsyncTask[P, R]": ...
    @overload
    def on(self, queue: HasSession) -> "Task[P, R]": ...
    def on(self, queue: Any) -> Any:
        """Return the same task for another queue, sync or async as that queue is: `task.on(queue.sync).send(order=42)`."""
        return self._of(queue, AsyncTask, Task)


@by_its_own_name
class AsyncTask(AsyncSends[P, R], OneByOne[P, R]):
    """A function that handles messages. Calling the task calls the function; `send` lets a worker call it."""


@by_its_own_name
class Task(Sends[P, R], OneByOne[P, R]):
    """A function that handles messages. Calling the task calls the function; `send` lets a worker call it."""


class KeepsResults(OneByOne[P, R]):
    """A task with keep=."""

    @overload
    def on(self, queue: HasAsyncSession) -> "AsyncKeepingTask[P, R]": ...
    @overload
    def on(self, queue: HasSession) -> "KeepingTask[P, R]": ...
    def on(self, queue: Any) -> Any:
        """Return the same task for another queue, sync or async as that queue is: `task.on(queue.sync).send(order=42)`."""
        return self._of(queue, AsyncKeepingTask, KeepingTask)


@by_its_own_name
class AsyncKeepingTask(AsyncKeepingSends[P, R], KeepsResults[P, R], AsyncTask[P, R]):
    """A task with `keep=`: what its sends return can be asked for the result."""


@by_its_own_name
class KeepingTask(KeepingSends[P, R], KeepsResults[P, R], Task[P, R]):
    """A task with `keep=`: what its sends return can be asked for the result."""


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

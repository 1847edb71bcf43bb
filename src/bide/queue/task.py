"""A task as its users hold it, sync or async: its function is called for each message."""

from typing import Any, overload

from bide.queue.aio.sends import AsyncSends
from bide.queue.bound import Bound, HasAsyncSession, HasSession, P, R
from bide.queue.sync.sends import Sends


class OneByOne(Bound[P, R]):
    """A task whose function is called for each message."""

    @overload
    def on(self, queue: HasAsyncSession) -> "AsyncTask[P, R]": ...
    @overload
    def on(self, queue: HasSession) -> "Task[P, R]": ...
    def on(self, queue: Any) -> Any:
        """Return the same task for another queue, sync or async as that queue is: `task.on(queue.sync).send(order=42)`."""
        return self._of(queue, AsyncTask, Task)


class AsyncTask(AsyncSends[P, R], OneByOne[P, R]):
    """A function that handles messages. Calling the task calls the function; `send` lets a worker call it."""


class Task(Sends[P, R], OneByOne[P, R]):
    """A function that handles messages. Calling the task calls the function; `send` lets a worker call it."""

"""A task whose function is given many messages at once, as its users hold it: a message is one item of the list."""

from collections.abc import Awaitable, Iterable
from typing import Any, Generic, TypeVar, overload

from bide.queue.envelope import room_wait
from bide.queue.task import AsyncNamed, Bound, HasAsyncSession, HasSession, Named
from bide.queue.tasks.failed import Failures
from bide.types import Duration, Sent

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


class AsyncBatchTask(AsyncNamed[[list[T]], A], InBatches[T, A]):
    """A function that handles messages in batches. Calling the task calls the function; `send` lets a worker call it."""

    async def send(self, item: T) -> Sent:
        """Send a message: one item of the list that a worker will call the function with. The item is checked now.

        Raises the same errors as `queue.send`.
        """
        return await self._session.put(self._message((item,), {}), self._options.get("connection"))

    def later(self, item: T) -> None:
        """Send a message with this item in the background, and return at once, as `queue.later` does."""
        self._session.later(self._for_later((item,), {}))

    async def send_many(self, items: Iterable[T], *, wait: Duration | None = None) -> list[Sent]:
        """Send one message for each item. `wait` as in `queue.send_many`.

        Raises BadOption for several messages with a key, because a key belongs to one message at a time.
        """
        connection = self._options.get("connection")
        patience = room_wait(wait, connection)
        return await self._session.put_many(self._messages(items), connection, wait=patience)


class BatchTask(Named[[list[T]], A], InBatches[T, A]):
    """A function that handles messages in batches. Calling the task calls the function; `send` lets a worker call it."""

    def send(self, item: T) -> Sent:
        """Send a message: one item of the list that a worker will call the function with. The item is checked now.

        Raises the same errors as `queue.send`.
        """
        return self._session.put(self._message((item,), {}), self._options.get("connection"))

    def later(self, item: T) -> None:
        """Send a message with this item in the background, and return at once, as `queue.later` does."""
        self._session.later(self._for_later((item,), {}))

    def send_many(self, items: Iterable[T], *, wait: Duration | None = None) -> list[Sent]:
        """Send one message for each item. `wait` as in `queue.send_many`.

        Raises BadOption for several messages with a key, because a key belongs to one message at a time.
        """
        connection = self._options.get("connection")
        patience = room_wait(wait, connection)
        return self._session.put_many(self._messages(items), connection, wait=patience)

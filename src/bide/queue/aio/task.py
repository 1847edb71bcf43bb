# unasync: ../sync/task.py
"""Sending a task's messages, and changing those that have not begun."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bide.queue.tasks.bound import Bound, P, R
from bide.types import CancelResult, Duration, Info, RescheduleResult, Sent

if TYPE_CHECKING:
    from bide.queue.aio.verbs import AsyncVerbs


class AsyncTask(Bound[P, R]):
    """A function that messages are for. Calling it calls the function; `send` has a worker call it."""

    _queue: "AsyncVerbs"

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Have the function called with these arguments, which are checked now. Raises what `queue.send` raises."""
        return await self._queue.send(self.topic, self._body(args, kwargs), **self._options)

    async def send_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[Sent]:
        """Have it called once for each of these, given by name: `task.send_many({"order": each} for each in orders)`.

        Raises BadOption for several with a key in the options: a key belongs to one message at a time.
        """
        items = self._all_outgoing(arguments)
        operation, connection = self._options.get("operation"), self._options.get("connection")
        return await self._queue.send_many(self.topic, items, operation=operation, connection=connection)

    async def cancel(self, message: str | Sent | None = None, *, key: str | None = None) -> CancelResult:
        """End a message, by its id or by its key, if it has not begun."""
        return await self._queue.cancel(message, **self._named(message, key), connection=self._options.get("connection"))

    async def reschedule(
        self,
        message: str | Sent | None = None,
        *,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
    ) -> RescheduleResult:
        """Give a message a new time, by its id or by its key, if it has not begun."""
        connection = self._options.get("connection")
        return await self._queue.reschedule(message, **self._named(message, key), delay=delay, at=at, connection=connection)

    async def get(self, message: str | Sent | None = None, *, key: str | None = None) -> Info | None:
        """What is stored about a message, by its id or by its key; None when it has ended."""
        return await self._queue.get(message, **self._named(message, key))

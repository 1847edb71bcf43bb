# Generated from ../aio/task_sends.py by tools/unasync.py; change that file instead.
"""The sends of a task: arguments of a call, or an item of a batch, become a message, which can be named afterwards."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

from bide.engines.base import Ref
from bide.errors import BadOption
from bide.queue.bound import Bound, P, R
from bide.queue.envelope import move, ref, room_wait
from bide.queue.sync.results import TaskSent
from bide.queue.sync.session import Session
from bide.queue.tasks.definition import Definition
from bide.types import CancelResult, Duration, Info, Outgoing, RescheduleResult, SendOptions, Sent


class Named(Bound[P, R]):
    def __init__(self, session: Session, definition: Definition, options: SendOptions | None = None) -> None:
        super().__init__(session, definition, options)
        self._session = session

    def cancel(
        self, message: str | Sent | None = None, *, key: str | None = None, connection: object | None = None
    ) -> CancelResult:
        """Cancel a message by its id or key, if no worker has started it. `connection` as in `queue.cancel`."""
        return self._session.cancel(self._ref(message, key), self._transaction(connection))

    def reschedule(
        self,
        message: str | Sent | None = None,
        *,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        by: Duration | None = None,
        connection: object | None = None,
    ) -> RescheduleResult:
        """Give a message a new time, by its id or key, if no worker has started it. All else as in `queue.reschedule`."""
        new = move(self._ref(message, key), delay, at, by, self._setup.now_ms)
        return self._session.reschedule(new, self._transaction(connection))

    def get(self, message: str | Sent | None = None, *, key: str | None = None) -> Info | None:
        """Return what is stored about a message, by its id or key; None if it has ended."""
        return self._session.get(self._ref(message, key))

    def _transaction(self, connection: object | None) -> object | None:
        return self._options.get("connection") if connection is None else connection

    def _ref(self, message: str | Sent | None, key: str | None) -> Ref:
        """Which message is meant: it is named by one of the two."""
        if message is None and key is None:
            raise BadOption(f"Say which message: {self.definition.name}.cancel(sent), or {self.definition.name}.cancel(key=…).")
        return ref(message, None if key is None else self.topic, key)


T = TypeVar("T")


class AnySends(Named[P, R]):
    def _send(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sent:
        return self._session.put(self._messages.one(args, kwargs, self._options), self._options.get("connection"))

    def _later(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._options.get("connection") is not None:
            raise BadOption("later() joins no transaction: leave out connection=, or send() with it.")
        self._session.later(self._messages.one(args, kwargs, self._options))

    def _send_many(self, arguments: Iterable[Any], wait: Duration | None) -> list[Sent]:
        connection = self._options.get("connection")
        patience = room_wait(wait, connection)
        return self._session.put_many(self._messages.many(arguments, self._options), connection, wait=patience)


class Sends(AnySends[P, R]):
    """Of a task whose function is called for each message."""

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send a message with these arguments, for a worker to call the function. The arguments are checked now.

        Raises the same errors as `queue.send`.
        """
        return self._send(args, kwargs)

    def later(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send a message with these arguments in the background, and return at once, as `queue.later` does."""
        self._later(args, kwargs)

    def send_many(self, arguments: Iterable[Mapping[str, Any] | Outgoing], *, wait: Duration | None = None) -> list[Sent]:
        """Send one message for each mapping of arguments: `task.send_many({"order": each} for each in orders)`.

        An item may be `Outgoing({"order": 42}, delay="15m", key="order:42")`: its options go before those of the task. Raises
        BadOption for several messages with one key, because a key belongs to one message at a time. `wait` as in
        `queue.send_many`.
        """
        return self._send_many(arguments, wait)


class KeepingSends(Sends[P, R]):
    """Of a task with keep=. The session sees to it that what was sent can be asked for its result."""

    def send(self, *args: P.args, **kwargs: P.kwargs) -> TaskSent[R]:
        """Send a message, as any task does: `sent.result()` is what the function returned."""
        return cast("TaskSent[R]", self._send(args, kwargs))

    def send_many(  # type: ignore[override]  # a list is not covariant; nobody puts other sends into this one
        self, arguments: Iterable[Mapping[str, Any] | Outgoing], *, wait: Duration | None = None
    ) -> list[TaskSent[R]]:
        """Send many messages, as any task does; each has its `result`."""
        return cast("list[TaskSent[R]]", self._send_many(arguments, wait))


class BatchSends(AnySends[[list[T]], R], Generic[T, R]):
    """Of a task whose function is called for many messages at once."""

    def send(self, item: T) -> Sent:
        """Send a message: one item of the list that a worker will call the function with. The item is checked now.

        Raises the same errors as `queue.send`.
        """
        return self._send((item,), {})

    def later(self, item: T) -> None:
        """Send a message with this item in the background, and return at once, as `queue.later` does."""
        self._later((item,), {})

    def send_many(self, items: Iterable[T | Outgoing], *, wait: Duration | None = None) -> list[Sent]:
        """Send one message for each item. `wait` as in `queue.send_many`.

        An item may be `Outgoing(item, delay="15m")`: its options go before those of the task. Raises BadOption for several
        messages with one key, because a key belongs to one message at a time.
        """
        return self._send_many(items, wait)

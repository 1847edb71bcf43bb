"""A task as its users hold it: the function, with the queue's session and the options for the next send."""

import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload

from msgspec.structs import replace

from bide.core.codec import Encoded, decode, encode
from bide.engines.base import Move, NewMessage, Ref
from bide.errors import BadMessage, BadOption
from bide.queue.aio.session import AsyncSession
from bide.queue.envelope import move, ref, room_wait
from bide.queue.sync.session import Session
from bide.queue.tasks.definition import Definition
from bide.queue.topic_rules import shorter
from bide.types import CancelResult, Duration, Info, OneOptions, Outgoing, RescheduleResult, SendOptions, Sent

P = ParamSpec("P")
R = TypeVar("R")
_SAME_FOR_MANY = ("operation", "connection")


class HasAsyncSession(Protocol):
    """An AsyncQueue."""

    @property
    def session(self) -> AsyncSession: ...


class HasSession(Protocol):
    """A Queue."""

    @property
    def session(self) -> Session: ...


class Bound(Generic[P, R]):
    """What sync and async tasks share. Calling a task calls the plain function."""

    def __init__(self, session: AsyncSession | Session, definition: Definition, options: SendOptions | None = None) -> None:
        self.definition: Definition = definition
        self.topic: str = definition.topic
        self._setup = session.setup
        self._options: SendOptions = options or {}
        self.__name__: str = definition.name
        self.__qualname__: str = definition.name
        self.__wrapped__: Callable[P, R] = definition.function
        functools.update_wrapper(self, definition.function, updated=())  # not its attributes: a task has its own

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def after(self, delay: Duration, **options: Unpack[OneOptions]) -> Self:
        """Return the task with a delay: `task.after("15m", key="order:42").send(order=42)`. Options as in `queue.send`."""
        self._refuse_another_time(options, "after")
        return self._with(cast(SendOptions, {**options, "delay": delay, "at": None}))

    def at(self, when: datetime, **options: Unpack[OneOptions]) -> Self:
        """Return the task with a due time, an aware datetime. Takes the options of `queue.send`."""
        self._refuse_another_time(options, "at")
        return self._with(cast(SendOptions, {**options, "at": when, "delay": None}))

    def options(self, **options: Unpack[SendOptions]) -> Self:
        """Return the task with options of `queue.send`: `task.options(key="order:42").send(order=42)`."""
        return self._with(options)

    def _refuse_another_time(self, options: Mapping[str, Any], verb: str) -> None:
        for other in ("delay", "at"):
            if options.get(other) is not None:
                raise BadOption(f"{verb}() says when already: leave {other}= out.")

    def _with(self, options: SendOptions) -> Self:
        unknown = set(options) - SendOptions.__optional_keys__
        if unknown:
            raise BadOption(
                f"{min(unknown)} is no option of a send. There is: {', '.join(sorted(SendOptions.__optional_keys__))}. "
                "The task's own arguments go into send(…)."
            )
        made = object.__new__(type(self))  # as copy.copy does, in a fraction of the time
        vars(made).update(vars(self), _options={**self._options, **options})
        return made

    def _of(self, queue: Any, for_async: Any, for_sync: Any) -> Any:
        """The same task for another queue, in the queue's colour."""
        session = getattr(queue, "session", None)
        options: SendOptions = {"max_attempts": self.definition.max_attempts, **self._options}
        if isinstance(session, AsyncSession):
            return for_async(session, self.definition, options)
        if isinstance(session, Session):
            return for_sync(session, self.definition, options)
        raise BadOption(f"on() takes a queue, and this is a {type(queue).__name__}.")

    def _message(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewMessage:
        new = self._setup.envelope.message(self.topic, self._body(args, kwargs), **self._options)
        return new if self.definition.rule.expires_in is None else self._living(new)

    def _messages(self, arguments: Iterable[Any]) -> list[NewMessage]:
        items, operation = self._all_outgoing(arguments), self._options.get("operation")
        messages = self._setup.envelope.messages(self.topic, items, operation)
        return messages if self.definition.rule.expires_in is None else [self._living(each) for each in messages]

    def _for_later(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewMessage:
        if self._options.get("connection") is not None:
            raise BadOption("later() joins no transaction: leave out connection=, or send() with it.")
        return self._message(args, kwargs)

    def _living(self, new: NewMessage) -> NewMessage:
        """As long as the task says at most, also on a queue that does not know the task."""
        life = shorter(new.expires_in, self.definition.rule.expires_in)
        return new if life == new.expires_in else replace(new, expires_in=life)

    def _body(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Encoded:
        """The arguments as a message's body, tried on the function as a worker would have it."""
        arguments = self.definition.arguments
        envelope = self._setup.envelope
        raw = encode(envelope.codec, arguments.bind(args, kwargs), envelope.max_body)
        body = decode(envelope.codec, raw, envelope.max_body)
        arguments.read(body)
        if self._options.get("if_exists") == "merge":
            arguments.check_lists(body)
        return Encoded(raw)

    def _ref(self, message: str | Sent | None, key: str | None) -> Ref:
        """Which message is meant: it is named by one of the two."""
        if message is None and key is None:
            raise BadOption(f"Say which message: {self.definition.name}.cancel(sent), or {self.definition.name}.cancel(key=…).")
        return ref(message, None if key is None else self.topic, key)

    def _move(
        self,
        message: str | Sent | None,
        key: str | None,
        delay: Duration | None,
        at: datetime | None,
        by: Duration | None,
    ) -> Move:
        return move(self._ref(message, key), delay, at, by, self._setup.now_ms)

    def _all_outgoing(self, arguments: Iterable[Any]) -> list[Outgoing]:
        """All of many, checked before the first is sent."""
        if isinstance(arguments, str | bytes | Mapping) or not isinstance(arguments, Iterable):
            each = "the arguments of each by name: [{'order': 42}]" if self.definition.batch is None else "the items"
            raise BadOption(
                f"send_many takes a list, and this is a {type(arguments).__name__}. Give {each}; for one message use send()."
            )
        if self._options.get("depends_on") is not None:
            raise BadOption("depends_on= is for one message: send each of them with send().")
        own: dict[str, Any] = {name: value for name, value in self._options.items() if name not in _SAME_FOR_MANY}
        items = []
        for place, each in enumerate(arguments):
            try:
                items.append(Outgoing(self._one_of_many(each), **own))
            except BadMessage as error:
                raise type(error)(f"Item {place}: {error}") from error
        if len(items) > 1 and self._options.get("key") is not None:
            raise BadOption(
                f"A key belongs to one message at a time, and these are {len(items)}. Send each with a key of its own: "
                "task.options(key=…).send(…), or queue.send_many(task.topic, [Outgoing({…}, key=…), …])."
            )
        return items

    def _one_of_many(self, arguments: Mapping[str, Any]) -> Encoded:
        """The arguments by name, or the item of a batch."""
        if self.definition.batch is not None:
            return self._body((arguments,), {})
        if not isinstance(arguments, Mapping):
            raise BadOption(
                f"send_many takes the arguments of each by name, and this is a {type(arguments).__name__}: [{{'order': 42}}]."
            )
        return self._body((), arguments)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.definition.name} for {self.topic}>"


class OneByOne(Bound[P, R]):
    """A task whose function is called for each message."""

    @overload
    def on(self, queue: HasAsyncSession) -> "AsyncTask[P, R]": ...
    @overload
    def on(self, queue: HasSession) -> "Task[P, R]": ...
    def on(self, queue: Any) -> Any:
        """Return the same task for another queue, sync or async as that queue is: `task.on(queue.sync).send(order=42)`."""
        return self._of(queue, AsyncTask, Task)


class AsyncNamed(Bound[P, R]):
    """What a task does with messages that were sent, by their ids and keys."""

    def __init__(self, session: AsyncSession, definition: Definition, options: SendOptions | None = None) -> None:
        super().__init__(session, definition, options)
        self._session = session

    async def cancel(self, message: str | Sent | None = None, *, key: str | None = None) -> CancelResult:
        """Cancel a message by its id or key, if no worker has started it."""
        return await self._session.cancel(self._ref(message, key), self._options.get("connection"))

    async def reschedule(
        self,
        message: str | Sent | None = None,
        *,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        by: Duration | None = None,
    ) -> RescheduleResult:
        """Give a message a new time, by its id or key, if no worker has started it. Times as in `queue.reschedule`."""
        return await self._session.reschedule(self._move(message, key, delay, at, by), self._options.get("connection"))

    async def get(self, message: str | Sent | None = None, *, key: str | None = None) -> Info | None:
        """Return what is stored about a message, by its id or key; None if it has ended."""
        return await self._session.get(self._ref(message, key))


class AsyncTask(AsyncNamed[P, R], OneByOne[P, R]):
    """A function that handles messages. Calling the task calls the function; `send` lets a worker call it."""

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send a message with these arguments, for a worker to call the function. The arguments are checked now.

        Raises the same errors as `queue.send`.
        """
        return await self._session.put(self._message(args, kwargs), self._options.get("connection"))

    def later(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send a message with these arguments in the background, and return at once, as `queue.later` does."""
        self._session.later(self._for_later(args, kwargs))

    async def send_many(self, arguments: Iterable[Mapping[str, Any]], *, wait: Duration | None = None) -> list[Sent]:
        """Send one message for each mapping of arguments: `task.send_many({"order": each} for each in orders)`.

        Raises BadOption for several messages with a key, because a key belongs to one message at a time. `wait`
        as in `queue.send_many`.
        """
        connection = self._options.get("connection")
        patience = room_wait(wait, connection)
        return await self._session.put_many(self._messages(arguments), connection, wait=patience)


class Named(Bound[P, R]):
    """What a task does with messages that were sent, by their ids and keys."""

    def __init__(self, session: Session, definition: Definition, options: SendOptions | None = None) -> None:
        super().__init__(session, definition, options)
        self._session = session

    def cancel(self, message: str | Sent | None = None, *, key: str | None = None) -> CancelResult:
        """Cancel a message by its id or key, if no worker has started it."""
        return self._session.cancel(self._ref(message, key), self._options.get("connection"))

    def reschedule(
        self,
        message: str | Sent | None = None,
        *,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        by: Duration | None = None,
    ) -> RescheduleResult:
        """Give a message a new time, by its id or key, if no worker has started it. Times as in `queue.reschedule`."""
        return self._session.reschedule(self._move(message, key, delay, at, by), self._options.get("connection"))

    def get(self, message: str | Sent | None = None, *, key: str | None = None) -> Info | None:
        """Return what is stored about a message, by its id or key; None if it has ended."""
        return self._session.get(self._ref(message, key))


class Task(Named[P, R], OneByOne[P, R]):
    """A function that handles messages. Calling the task calls the function; `send` lets a worker call it."""

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send a message with these arguments, for a worker to call the function. The arguments are checked now.

        Raises the same errors as `queue.send`.
        """
        return self._session.put(self._message(args, kwargs), self._options.get("connection"))

    def later(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send a message with these arguments in the background, and return at once, as `queue.later` does."""
        self._session.later(self._for_later(args, kwargs))

    def send_many(self, arguments: Iterable[Mapping[str, Any]], *, wait: Duration | None = None) -> list[Sent]:
        """Send one message for each mapping of arguments: `task.send_many({"order": each} for each in orders)`.

        Raises BadOption for several messages with a key, because a key belongs to one message at a time. `wait`
        as in `queue.send_many`.
        """
        connection = self._options.get("connection")
        patience = room_wait(wait, connection)
        return self._session.put_many(self._messages(arguments), connection, wait=patience)

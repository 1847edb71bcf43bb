"""A task as its users hold it: the function, tied to a queue, with the options for the next send."""

import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from bide.core.codec import Encoded
from bide.errors import BadMessage, BadOption
from bide.queue.tasks.definition import Definition
from bide.types import Duration, OneOptions, Outgoing, SendOptions

if TYPE_CHECKING:
    from bide.queue.aio.task import AsyncTask
    from bide.queue.aio.verbs import AsyncVerbs
    from bide.queue.sync.task import Task
    from bide.queue.sync.verbs import Verbs

P = ParamSpec("P")
R = TypeVar("R")


_SAME_FOR_MANY = ("operation", "connection")


class Bound(Generic[P, R]):
    """What tasks of both colours have in common. Calling one calls the plain function."""

    def __init__(self, queue: Any, definition: Definition, options: SendOptions | None = None) -> None:
        self.definition: Definition = definition
        self._queue = queue
        self._options: SendOptions = {"max_attempts": definition.max_attempts, **(options or {})}
        self.__name__: str = definition.name
        self.__qualname__: str = definition.name
        self.__wrapped__: Callable[P, R] = definition.function
        functools.update_wrapper(self, definition.function, updated=())  # not its attributes: a task has its own

    @property
    def topic(self) -> str:
        return self.definition.topic

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def after(self, delay: Duration, **options: Unpack[OneOptions]) -> Self:
        """The task with a delay: `task.after("15m", key="order:42").send(order=42)`. Options are those of `queue.send`."""
        self._refuse_another_time(options, "after")
        return self._with({**options, "delay": delay, "at": None})

    def at(self, when: datetime, **options: Unpack[OneOptions]) -> Self:
        """The task at an instant, an aware datetime."""
        self._refuse_another_time(options, "at")
        return self._with({**options, "at": when, "delay": None})

    def options(self, **options: Unpack[SendOptions]) -> Self:
        """The task with options for the next sends: `task.options(key="order:42").send(order=42)`."""
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
        return type(self)(self._queue, self.definition, {**self._options, **options})

    @overload
    def on(self, queue: "AsyncVerbs") -> "AsyncTask[P, R]": ...
    @overload
    def on(self, queue: "Verbs") -> "Task[P, R]": ...
    def on(self, queue: Any) -> Any:
        """The same task, sent through another queue and in that queue's colour: `task.on(queue.sync).send(order=42)`."""
        bound = getattr(queue, "_bound", None)
        if bound is None:
            raise BadOption(f"on() takes a queue, and this is a {type(queue).__name__}.")
        return bound(self.definition, self._options)

    def _body(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Encoded:
        """The arguments as a message's body, tried on the function as a worker would have it."""
        arguments = self.definition.arguments
        envelope = self._queue._setup.envelope
        raw = Encoded(envelope.raw(arguments.bind(args, kwargs)))
        arguments.read(envelope.body(raw))
        return raw

    def _named(self, message: object, key: str | None) -> dict[str, Any]:
        """What the queue is told of a message that is named by one of the two."""
        if message is None and key is None:
            raise BadOption(f"Say which message: {self.definition.name}.cancel(sent), or {self.definition.name}.cancel(key=…).")
        return {"topic": None if message is not None and key is None else self.topic, "key": key}

    def _all_outgoing(self, arguments: Iterable[Mapping[str, Any]]) -> list[Outgoing]:
        """All of many, checked before the first is sent."""
        if isinstance(arguments, str | bytes | Mapping) or not isinstance(arguments, Iterable):
            raise BadOption(
                f"send_many takes a list, and this is a {type(arguments).__name__}. Give the arguments of each by name: "
                "[{'order': 42}]; for one message use send()."
            )
        items = []
        for place, each in enumerate(arguments):
            try:
                items.append(self._outgoing(each))
            except BadMessage as error:
                raise type(error)(f"Item {place}: {error}") from error
        if len(items) > 1 and self._options.get("key") is not None:
            raise BadOption(
                f"A key belongs to one message at a time, and these are {len(items)}. Send each with a key of its own: "
                "task.options(key=…).send(…), or queue.send_many(task.topic, [Outgoing({…}, key=…), …])."
            )
        return items

    def _outgoing(self, arguments: Mapping[str, Any]) -> Outgoing:
        """One of many: the arguments by name, with the options that each message has for itself."""
        if not isinstance(arguments, Mapping):
            raise BadOption(
                f"send_many takes the arguments of each by name, and this is a {type(arguments).__name__}: [{{'order': 42}}]."
            )
        own: dict[str, Any] = {name: value for name, value in self._options.items() if name not in _SAME_FOR_MANY}
        return Outgoing(self._body((), arguments), **own)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.definition.name} for {self.topic}>"

"""A task bound to a queue: the function, with options for the next send, and its arguments as messages."""

import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, cast

from msgspec.structs import fields, replace

from bide.core.codec import Encoded, decode, encode
from bide.core.options import MAX_ATTEMPTS
from bide.core.send_options import OF_EACH
from bide.engines.base import NewMessage
from bide.errors import BadBody, BadMessage, BadOption
from bide.queue.aio.session import AsyncSession
from bide.queue.envelope import Envelope, refuse_times
from bide.queue.sync.session import Session
from bide.queue.tasks.arguments import Unfit
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.habits import ATTRIBUTES, SENDS, no_option
from bide.queue.topic_rules import shorter
from bide.types import Duration, OneOptions, Outgoing, SendOptions

_UNSAID = {each.name: each.default for each in fields(Outgoing) if each.name != "body"}


class TaskMessages:
    def __init__(self, definition: Definition, envelope: Envelope) -> None:
        self._definition = definition
        self._envelope = envelope
        self._life = definition.rule.expires_in

    def one(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: SendOptions) -> NewMessage:
        body = self._body(args, kwargs, options.get("if_exists"))
        new = self._envelope.message(self._definition.topic, body, **options)
        return new if self._life is None else self._living(new)

    def many(self, arguments: Iterable[Any], options: SendOptions) -> list[NewMessage]:
        items = self._all_outgoing(arguments, options)
        messages = self._envelope.messages(self._definition.topic, items, options.get("operation"))
        return messages if self._life is None else [self._living(each) for each in messages]

    def _living(self, new: NewMessage) -> NewMessage:
        """As long as the task says at most, also on a queue that does not know the task."""
        life = shorter(new.expires_in, self._life)
        return new if life == new.expires_in else replace(new, expires_in=life)

    def _body(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], if_exists: str | None) -> Encoded:
        """The arguments as a message's body, tried on the function as a worker would have it."""
        arguments, envelope = self._definition.arguments, self._envelope
        try:
            raw = encode(envelope.codec, arguments.bind(args, kwargs), envelope.max_body)
            body = decode(envelope.codec, raw, envelope.max_body)
            arguments.read(body)
        except Unfit as error:
            raise BadBody(str(error)) from error.__cause__
        if if_exists == "merge":
            arguments.check_lists(body)
        return Encoded(raw)

    def _all_outgoing(self, arguments: Iterable[Any], options: SendOptions) -> list[Outgoing]:
        if isinstance(arguments, str | bytes | Mapping) or not isinstance(arguments, Iterable):
            each = "the arguments of each by name: [{'order': 42}]" if self._definition.batch is None else "the items"
            raise BadOption(
                f"send_many takes a list, and this is a {type(arguments).__name__}. Give {each}; for one message use send()."
            )
        if options.get("depends_on") is not None:
            raise BadOption("depends_on= is for one message: send each of them with send().")
        if options.get("deadline") is not None:
            refuse_times(None, options.get("delay"), options.get("at"), options.get("if_exists", "keep"))
        own: dict[str, Any] = {name: value for name, value in options.items() if name in OF_EACH}
        items = []
        for place, each in enumerate(arguments):
            try:
                said = own if not isinstance(each, Outgoing) else _said(each, own)
                body = each.body if isinstance(each, Outgoing) else each
                items.append(Outgoing(self._one_of_many(body, said.get("if_exists")), **said))
            except BadMessage as error:
                raise type(error)(f"Item {place}: {error}") from error
        shared = options.get("key")
        if shared is not None and sum(each.key == shared for each in items) > 1:
            raise BadOption(
                f"A key belongs to one message at a time, and these are {len(items)}. Give each a key of its own: "
                "task.send_many([Outgoing({…}, key=…), …])."
            )
        return items

    def _one_of_many(self, arguments: Any, if_exists: str | None) -> Encoded:
        """The arguments by name, or the item of a batch."""
        if self._definition.batch is not None:
            return self._body((arguments,), {}, if_exists)
        if not isinstance(arguments, Mapping):
            raise BadOption(
                f"send_many takes the arguments of each by name, and this is a {type(arguments).__name__}: [{{'order': 42}}]."
            )
        return self._body((), arguments, if_exists)


def _said(item: Outgoing, own: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an item, and those of the task where it says nothing. One time takes the place of another."""
    said = {name: value for name, unsaid in _UNSAID.items() if (value := getattr(item, name)) != unsaid}
    timed = "delay" in said or "at" in said
    return {name: value for name, value in own.items() if not (timed and name in ("delay", "at"))} | said


P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)
_public: set[str] = set()


def by_its_own_name(public: C) -> C:
    """Decorates a class that users know: Python's own errors and warnings call its methods `AsyncQueue.send`, by this name.

    A base of several has the shortest of their names, which is that of the usual one.
    """
    _public.add(public.__qualname__)
    for base in public.__mro__[1:]:
        for name, each in vars(base).items():
            if isinstance(each, FunctionType):
                of = each.__qualname__.rpartition(".")[0]
                if of == base.__qualname__ or (of in _public and len(public.__qualname__) < len(of)):
                    each.__module__, each.__qualname__ = public.__module__, f"{public.__qualname__}.{name}"
    return public


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
        self._messages = TaskMessages(definition, session.setup.envelope)
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
            raise BadOption(f"{no_option(min(unknown), SENDS)} The task's own arguments go into send(…).")
        made = object.__new__(type(self))  # as copy.copy does, in a fraction of the time
        vars(made).update(vars(self), _options={**self._options, **options})
        return made

    def _of(self, queue: Any, for_async: Any, for_sync: Any) -> Any:
        """The same task for another queue, in the queue's colour."""
        session = getattr(queue, "session", None)
        if not isinstance(session, AsyncSession | Session):
            raise BadOption(f"on() takes a queue, and this is a {type(queue).__name__}.")
        options: SendOptions = {**self._options}
        if self.definition.max_attempts != MAX_ATTEMPTS:
            options.setdefault("max_attempts", self.definition.max_attempts)
        if self.definition.keep is not None:
            session.setup.tasks.keeps.setdefault(self.topic, self.definition.keep)
        return (for_async if isinstance(session, AsyncSession) else for_sync)(session, self.definition, options)

    if not TYPE_CHECKING:  # or type checkers would let any name pass

        def __getattr__(self, name: str) -> Any:
            if name not in ATTRIBUTES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise AttributeError(f"A task has no {name}(). Write {ATTRIBUTES[name].format(name=self.__name__)}.")

    def __reduce__(self) -> str:
        """By the name of its function, as functions are pickled: another process imports it."""
        return self.__wrapped__.__qualname__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.definition.name} for {self.topic}>"

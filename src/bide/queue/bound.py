"""A task that is bound to a queue: the function, with the options for the next send."""

import functools
from collections.abc import Callable, Mapping
from datetime import datetime
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, cast

from bide.core.options import MAX_ATTEMPTS
from bide.errors import BadOption
from bide.queue.aio.session import AsyncSession
from bide.queue.sync.session import Session
from bide.queue.task_messages import TaskMessages
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.habits import ATTRIBUTES, SENDS, no_option
from bide.types import Duration, OneOptions, SendOptions

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

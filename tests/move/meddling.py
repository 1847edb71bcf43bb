"""An engine where somebody acts before or after a call of a verb, or that does not do what it is asked."""

import re
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from bide.adopt.queue.messages import Able
from bide.adopt.queue.move import QueueSource


class Killed(BaseException):
    """The process of the mover is gone."""


def die(*_: object) -> None:
    raise Killed


def source_of(engine: Any) -> QueueSource:
    return QueueSource(engine, "old", re.compile(".*"), Able(), "new")


class Before:
    """Somebody acts just before the n-th call of a verb."""

    def __init__(self, engine: Any, verb: str, act: Callable[[], object], call: int = 1) -> None:
        self._engine, self._verb, self._act, self._left = engine, verb, act, call

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._engine, name)
        if name != self._verb:
            return real

        def call(*asked: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._act()
            return real(*asked, **options)

        return call


class AfterTake:
    """An engine where something happens before the first call of a verb after messages were taken."""

    def __init__(self, engine: Any, verb: str, act: Callable[[], object]) -> None:
        self._engine, self._verb, self._act, self._taken = engine, verb, act, False

    def __getattr__(self, name: str) -> Any:
        if self._taken and name == self._verb:
            act, self._act = self._act, lambda: None
            act()
        self._taken = self._taken or name == "reschedule"
        return getattr(self._engine, name)


class After:
    """An engine where somebody acts just after the first call of a verb."""

    def __init__(self, engine: Any, verb: str, act: Callable[[], object]) -> None:
        self._engine, self._verb, self._act = engine, verb, act

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._engine, name)
        if name != self._verb:
            return real

        def call(*asked: Any, **options: Any) -> Any:
            found, act = real(*asked, **options), self._act
            self._act = lambda: None
            act()
            return found

        return call


class Late:
    """An engine whose verb is asked for, and acts later: the process is killed, and its statement goes on at the server."""

    def __init__(self, engine: Any, verb: str) -> None:
        self._engine, self._verb = engine, verb
        self.acts: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._engine, name)
        if name != self._verb:
            return real

        def ask(asked: Any, **options: Any) -> Any:
            self.acts = lambda: real(asked, **options)
            raise Killed

        return ask


class Lossy:
    """An engine whose verb fails once, before or after it has acted."""

    def __init__(self, engine: Any, verb: str, error: BaseException, *, acts: bool, times: int = 1) -> None:
        self._engine, self._verb, self._error, self._acts, self._times = engine, verb, error, acts, times

    def __getattr__(self, name: str) -> Callable[..., Any]:
        real: Callable[..., Any] = getattr(self._engine, name)
        if name != self._verb or not self._times:
            return real

        def fail(*args: Any, **options: Any) -> Any:
            self._times -= 1
            if self._acts:
                real(*args, **options)
            raise self._error

        return fail


class Apart:
    """An engine that does so many together; one, if it has several shards."""

    def __init__(self, engine: Any, together: int = 1) -> None:
        self._engine = engine
        self.capabilities = replace(engine.capabilities, together=together)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

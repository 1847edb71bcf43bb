"""Stands between a worker and its engine, so that a test can have a verb fail, hang or tell."""

import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias
from unittest import mock

from bide import AsyncQueue, Unavailable
from bide.engines.base import Capabilities, Finding
from bide.engines.registry import Source

Call: TypeAlias = Callable[[], Awaitable[Any]]
Around: TypeAlias = Callable[[Call, Sequence[Any]], Awaitable[Any]]


class Faults:
    """The place of a queue, for all that open it from now on: `around` and `beat` hold what happens in place of a verb.

    around: async verbs by name, those of gates as "gates.leave" and those of results as "results.read"; each is given the
    call as it would be made, and what is asked. beat: those that the heartbeat calls.
    """

    def __init__(self, queue: Any) -> None:
        self._source: Source = queue.session.setup.source
        self.around: dict[str, Around] = {}
        self.beat: dict[str, Callable[[Callable[[], Any]], Any]] = {}
        queue.session.setup.source = self

    @classmethod
    async def of(cls, queue: AsyncQueue) -> "Faults":
        """The queue's own calls go on as they are: only a worker meets the faults."""
        await queue.session.engine()
        return cls(queue)

    def fail(
        self,
        verb: str,
        times: int = 1_000_000,
        error: Exception | None = None,
        *,
        when: Callable[[Any], bool] | None = None,
    ) -> list[int]:
        """Have a verb raise so often, unless told otherwise that the engine can't be reached; how often is in the list.

        `when`: only calls of which the first item is such a one.
        """
        failures: list[int] = []

        async def around(call: Call, asked: Sequence[Any]) -> Any:
            if len(failures) < times and (when is None or when(asked[0][0])):
                failures.append(len(failures))
                raise error or Unavailable(f"{verb}: the wire is cut.")
            return await call()

        self.around[verb] = around
        return failures

    def lose_leases(self) -> None:
        """Have them run out: neither the heartbeat nor the worker renews them."""

        def cut(call: Callable[[], Any]) -> Any:
            raise Unavailable("the wire is cut")

        self.beat["extend"] = cut
        self.fail("extend")

    def keep_leases(self) -> None:
        """Have them renewed again."""
        del self.beat["extend"], self.around["extend"]

    # what a Source is

    @property
    def capabilities(self) -> Capabilities:
        return self._source.capabilities

    @property
    def namespace(self) -> str:
        return self._source.namespace

    @property
    def shown(self) -> str:
        return self._source.shown

    def examine(self) -> Sequence[Finding]:
        return self._source.examine()

    def aio(self) -> Any:
        return _Aio(self._source.aio(), self.around)

    def sync(self) -> Any:
        return _Sync(self._source.sync(), self.beat)


class _Aio:
    def __init__(self, engine: Any, around: dict[str, Around], prefix: str = "") -> None:
        self._engine = engine
        self._around = around
        self._prefix = prefix

    def __getattr__(self, verb: str) -> Any:
        inner = getattr(self._engine, verb)
        if verb in ("gates", "results"):
            return _Aio(inner, self._around, f"{verb}.")
        around = self._around.get(self._prefix + verb)
        if around is None:
            return inner

        async def call(*args: Any, **options: Any) -> Any:
            return await around(lambda: inner(*args, **options), args)

        return call


class _Sync:
    def __init__(self, engine: Any, around: dict[str, Callable[[Callable[[], Any]], Any]]) -> None:
        self._engine = engine
        self._around = around

    def __getattr__(self, verb: str) -> Any:
        inner = getattr(self._engine, verb)
        around = self._around.get(verb)
        if around is None or threading.current_thread().name != "bide-heartbeat":
            return inner
        return lambda *args, **options: around(lambda: inner(*args, **options))


@contextmanager
def no_threads(*names: str, asked: threading.Event | None = None) -> Iterator[list[str]]:
    """While this lasts the machine can't start threads whose names begin so; those it refused are in the list.

    asked: set when the first is refused.
    """
    refused: list[str] = []
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(names):
            refused.append(thread.name)
            if asked is not None:
                asked.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    with mock.patch.object(threading.Thread, "start", refuse):
        yield refused


class DeafHandler(logging.Handler):
    """A logging handler that sends lines to a service that is down, without a try around it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        raise ConnectionError("the service for logs is down")


class DeafFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        raise ValueError("the filter is broken")


@contextmanager
def deaf(name: str = "", *, by_filter: bool = False) -> Iterator[DeafHandler]:
    """While this lasts, whoever logs meets an error, under this name or at all."""
    handler, log = DeafHandler(), logging.getLogger(name)
    if by_filter:
        handler.addFilter(DeafFilter())
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)

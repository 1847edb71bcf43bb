"""Hooks, where logging, metrics and tracing plug in: they are told of every call that reaches an engine."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from bide.core import options
from bide.engines.each import raise_first
from bide.engines.lots import Ends
from bide.errors import BadOption
from bide.logs import Log

_log = Log("bide.engine")


class BadHook(BadOption):
    """A hook has added headers that no message may have. The message itself is good."""


class Call:
    """One call to an engine. `asked` and `answer` may hold bodies, so do not log them as they are.

    `asked` holds the arguments: messages to put, deliveries to settle or extend, messages to cancel, reschedule or get, and
    what enters, keeps, leaves or spends at gates, or is kept as a result.
    `answer` holds the engine's result: one answer for each of them, or a Claim, a page, or counts.
    """

    def __init__(self, verb: str, engine: str, topics: Sequence[str], asked: Sequence[Any]) -> None:
        self.verb: str = verb
        self.engine: str = engine  # as it may be shown
        self.topics: Sequence[str] = topics
        self.asked: Sequence[Any] = asked
        self.answer: Any = None
        self.error: BaseException | None = None
        self.seconds: float = 0.0
        self.notes: dict[str, Any] = {}  # for a hook to find again in `after` what it began in `before`


class Hook:
    """A base class for metrics and tracing. Override what you need, and pass it to a queue: `AsyncQueue(url,
    hooks=[MyHook()])`.

    A hook must be quick, and may be called from several threads. If it raises, even SystemExit, the error is logged and the
    call goes on. Only KeyboardInterrupt is passed on. Headers that it adds and that no message may have refuse the put.
    """

    def before(self, call: Call) -> None:
        """Called before the engine is called."""

    def after(self, call: Call) -> None:
        """Called when the engine has returned or raised: `seconds`, and `answer` or `error`, are set."""


class LogCalls(Hook):
    """Every call in one line at DEBUG, on the logger `bide.engine`. In place by itself when that level is on."""

    def after(self, call: Call) -> None:
        outcome = "ok" if call.error is None else type(call.error).__name__
        topics = ",".join(call.topics) or "-"
        _log.debug("%s %s asked=%d %.2f ms %s", call.verb, topics, len(call.asked), call.seconds * 1000, outcome)


class Switched(Protocol):
    """A guard."""

    def call_more(self, hooks: Sequence[Hook]) -> None:
        """From now on call these hooks, besides those that it was made with."""


class Hooks:
    """Tells all hooks of a queue of its calls."""

    def __init__(self, hooks: Sequence[Hook], engine: str) -> None:
        self._hooks = tuple(hooks)
        self._add_headers = any(getattr(type(each), "before", None) is not Hook.before for each in hooks)
        self._engine = engine

    @contextmanager
    def call(self, verb: str, first: Any = None) -> Iterator[Call]:
        """A call that is made within the block, from the first argument of its verb."""
        call = Call(verb, self._engine, *_subject(verb, first))
        given = [(each.headers, dict(each.headers)) for each in first] if verb == "put" and self._add_headers else []
        self._tell("before", call)
        begin = time.perf_counter()
        try:
            raise_first(_wrong_with(given))
            yield call
        except BaseException as error:
            call.error = error
            raise
        finally:
            call.seconds = time.perf_counter() - begin
            self._tell("after", call)
            del call  # its error holds this frame

    def _tell(self, moment: str, call: Call) -> None:
        for hook in self._hooks:
            try:
                getattr(hook, moment)(call)
            except KeyboardInterrupt:
                raise
            except BaseException:  # SystemExit too: as in a handler, it ends what raises it and not the worker
                _log.exception("The hook %s failed in %s; the call goes on.", type(hook).__name__, moment)


G = TypeVar("G", bound=Switched)


class Switch:
    """Has engines that are open call one more hook, or call it no more. While it is off, they know nothing of it."""

    def __init__(self, hook: Hook) -> None:
        self._more = (hook,)
        self._guards: WeakValueDictionary[int, Switched] = WeakValueDictionary()
        self._on = False

    def added(self, guard: G) -> G:
        self._guards[id(guard)] = guard  # first: who turns it meanwhile finds it here
        if self._on:
            guard.call_more(self._more)
        return guard

    def turn(self, on: bool) -> None:
        self._on = on
        for reference in self._guards.valuerefs():
            if (guard := reference()) is not None:
                guard.call_more(self._more if on else ())


def _wrong_with(given: Sequence[tuple[dict[str, str], Mapping[str, str]]]) -> Sequence[BadHook | None]:
    """`given`: the headers of each message, and what they were. They are so again if one is refused: it may be put again."""
    refused: list[BadHook | None] = []
    for headers, had in given:
        added = {name: content for name, content in headers.items() if name not in had or had[name] is not content}
        try:
            plain = options.headers(added)
        except BadOption as error:
            refused.append(BadHook(f"A hook has added headers that can't be sent: mend its before(). {error}"))
            continue
        refused.append(None)
        for name in added:
            del headers[name]
        headers.update(plain)
    if any(refused):
        for headers, had in given:
            headers.clear()
            headers.update(had)
    return refused


def _subject(verb: str, first: Any) -> tuple[Sequence[str], Sequence[Any]]:
    """The topics of a call, where it names them, and what it asks for."""
    match verb:
        case "put" | "settle" | "extend":
            return sorted(first.topics() if isinstance(first, Ends) else {each.topic for each in first}), first
        case "cancel" | "reschedule" | "get" | "enter" | "keep" | "leave" | "spend":
            return (), first
        case "expect" | "fulfil" | "read" | "follow" | "arrive":
            return (), first
        case "claim" | "wait":
            return first, ()
        case "scan" | "stats" | "requeue" | "purge" | "pause":
            return [] if first is None else [first], ()
    return [], ()


def hooks_for(given: Sequence[Hook]) -> Sequence[Hook]:
    """The given hooks, and the log of calls if its level is on."""
    return [*given, LogCalls()] if _log.listens(logging.DEBUG) else given

"""What a queue knows of a task: the function, its topics, and how it is to be run; and which task is for which topic."""

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypedDict, get_args

from bide.core import options
from bide.core.backoff import USUAL, Backoff
from bide.core.times import duration_ms
from bide.errors import BadOption, BadTime, ConfigError
from bide.queue.deliveries import noting
from bide.queue.tasks.arguments import Arguments
from bide.queue.tasks.failures import Errors, FailureRules, OnDead
from bide.queue.tasks.items import Gather, Items, read_batch
from bide.queue.tasks.limits import LOCK_DELAY, LOCK_WAIT, CatchUp, Limits, OnConflict, Overdue, read_overdue, refuse_idle
from bide.queue.topic_rules import Rule, TopicRules, rule
from bide.types import Duration


class SourceLine:
    """One line of a file is one function, however often it runs. `task`: the name of its task, for what has none of its own."""

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        written = _written(function)
        code, names = getattr(written, "__code__", None), getattr(written, "__globals__", {})
        self.module: str = written.__module__
        self.name: str = getattr(written, "__qualname__", task)
        self._line = (code.co_filename, code.co_firstlineno) if code is not None else None
        self._spec = names.get("__spec__")  # a reload makes a new one; kept, so that no other gets its id
        self._run = (code.co_filename if code is not None else None, id(names), id(self._spec))

    def is_anew(self, other: Self) -> bool:
        """Whether this is the other one, defined anew by a cell, a module or a function that is run again.

        Another line is the same function only where the name is and the file has been run anew since, perhaps edited: as
        another cell, or loaded again.
        """
        same = (self.module, self.name) == (other.module, other.name)
        return same and (self._line == other._line or self._run != other._run)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}()"


def _written(function: Any) -> Any:
    """The function as it was written, under its decorators and in its partials."""
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    return function


def name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def module_of(function: Callable[..., Any]) -> str:
    """The module as others import it, also while it is run as a script."""
    name = str(getattr(function, "__module__", None) or "task")
    if name not in ("__main__", "__mp_main__"):  # the second in a process that multiprocessing has spawned
        return name
    script = sys.modules.get(name)
    spec = getattr(script, "__spec__", None)
    if spec is not None:
        return str(spec.name.removesuffix(".__main__"))
    path = getattr(script, "__file__", None)
    return name if path is None else Path(path).stem


Unknown: TypeAlias = Literal["retry", "ignore"]
"""What becomes of a message with arguments that the task does not know."""


class TaskOptions(TypedDict, total=False):
    """The options of `queue.task`, but for its topic, `keep`, and those of batches."""

    aliases: Sequence[str]
    max_attempts: int
    backoff: Backoff
    timeout: Duration | None
    unknown: Unknown
    retry_for: Errors | None
    no_retry_for: Errors
    on_dead: OnDead | None
    concurrency: int | None
    rate: str | None
    per: str | None
    lock: str | None
    on_conflict: OnConflict
    lock_wait: Duration
    lock_delay: Duration
    expires_in: Duration | None
    most_pending: int | None
    catch_up: CatchUp


class Definition:
    keep: int | None  # ms
    run: Callable[..., Any]  # the function as workers call it

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        topic: str | None = None,
        aliases: Sequence[str] = (),
        max_attempts: int = options.MAX_ATTEMPTS,
        backoff: Backoff = USUAL,
        timeout: Duration | None = None,
        unknown: Unknown = "retry",
        retry_for: Errors | None = None,
        no_retry_for: Errors = (),
        on_dead: OnDead | None = None,
        concurrency: int | None = None,
        per: str | None = None,
        rate: str | None = None,
        lock: str | None = None,
        on_conflict: OnConflict = "wait",
        lock_wait: Duration = LOCK_WAIT,
        lock_delay: Duration = LOCK_DELAY,
        expires_in: Duration | None = None,
        most_pending: int | None = None,
        catch_up: CatchUp = "all",
        keep: Duration | None = None,
        batch: int | None = None,
        linger: Duration = 0,
    ) -> None:
        given: object = function
        if isinstance(known := getattr(given, "definition", None), Definition):
            function = known.function  # a task already: one more @queue.task above it
        if not callable(given) or inspect.isclass(given):
            raise ConfigError(
                f"A task is a function, and this is a {type(function).__name__}: write @queue.task() above a def."
            )
        if topic is None and isinstance(function, functools.partial):
            raise ConfigError(
                "A functools.partial has no name to make a topic of, and all of them would share one: "
                'give it a topic, as in queue.task("order.cancel")(functools.partial(…)).'
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(
                f"{name_of(function)}() has a yield in it: nobody would take what it yields. A task just does its work."
            )
        if isinstance(aliases, str) or not isinstance(aliases, Iterable):
            raise BadOption(f"aliases is a {type(aliases).__name__}. Give a list of topics, as in aliases=['order.drop'].")
        self.function: Callable[..., Any] = function
        self.name: str = f"{module_of(function)}.{name_of(function)}"
        self.topic: str = options.topic(self.name if topic is None else topic)
        self.topics: tuple[str, ...] = options.topics((self.topic, *aliases))
        self.max_attempts: int = options.count(max_attempts, "max_attempts", options.MOST_ATTEMPTS)
        self.backoff: Backoff = _backoff(backoff)
        self.timeout: float | None = None if timeout is None else _timeout(timeout)
        self.is_async: bool = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  (an object whose __call__ is async)
        )
        if unknown not in get_args(Unknown):
            raise BadOption(f"unknown is {unknown!r}. Give 'retry', or 'ignore' to drop arguments that the task does not know.")
        one_by_one = {"lock": lock, "concurrency": concurrency, "per": per, "unknown": None if unknown == "retry" else unknown}
        one_by_one = {name: value for name, value in one_by_one.items() if value is not None}
        self.batch: Gather | None = read_batch(batch, linger, one_by_one)
        self.arguments: Arguments = (
            Arguments(function, name_of(function), ignore_unknown=unknown == "ignore")
            if self.batch is None
            else Items(function, name_of(function))
        )
        self.failing: FailureRules = FailureRules(retry_for, no_retry_for, on_dead)
        refuse_idle(lock, on_conflict, lock_wait, lock_delay)
        limits = Limits(
            self.topic,
            self.arguments.known,
            concurrency=concurrency,
            rate=rate,
            per=per,
            lock=lock,
            on_conflict=on_conflict,
            lock_wait=lock_wait,
            lock_delay=lock_delay,
            per_counts=catch_up == "latest",
        )
        self.limits: Limits | None = limits if limits.any else None
        self.overdue: Overdue | None = read_overdue(self.topic, catch_up, limits)
        self.rule: Rule = rule(expires_in, most_pending)
        self.keep, self.run = _kept(function, keep, batch, is_async=self.is_async)
        self.place: SourceLine = SourceLine(function, self.name)
        self.arguments.check_early()
        if self.arguments.named[:1] in (("self",), ("cls",)) and "." in self.place.name.rpartition("<locals>.")[2]:
            raise ConfigError(f"{self.place.name}() is a method, and a message has no object to call it on: use a function.")

    @functools.cached_property
    def at_once(self) -> bool:
        """Whether each message is handled by itself as soon as it is here: nothing of the task's holds it back."""
        return self.batch is None and self.limits is None and self.overdue is None

    @functools.cached_property
    def plain(self) -> bool:
        """Whether there is nothing to see to once its handler has returned."""
        return self.at_once and self.is_async and self.timeout is None and self.keep is None

    def telling(self, tell: Callable[[Any], None]) -> "Definition":
        """This task, for a call: what its function returns is told within the call, which raises what `tell` raises."""
        function, made = self.function, copy.copy(self)

        async def awaited(**arguments: Any) -> None:
            tell(await function(**arguments))

        def called(**arguments: Any) -> Any:
            result = function(**arguments)
            if not inspect.isawaitable(result):
                tell(result)
            return result

        made.function = made.run = awaited if self.is_async else called
        return made

    def call(self, arguments: Mapping[str, Any]) -> None:
        """Call the function, if it is sync. One that only hands an awaitable on would be done before it has begun."""
        result = self.run(**arguments)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            kind = "coroutine" if inspect.iscoroutine(result) else type(result).__name__
            raise ConfigError(
                f"{self.name}() is not async but returned a {kind}, which nobody awaits. "
                "If a decorator is around an async function, have it return an async one."
            )


def _backoff(value: object) -> Backoff:
    if not callable(value):
        raise BadOption("backoff must be exponential(…), steps(…), or a function from attempt number to seconds.")
    return value


def _kept(
    function: Callable[..., Any], keep: Duration | None, batch: int | None, *, is_async: bool
) -> tuple[int | None, Callable[..., Any]]:
    """How long results are kept, in milliseconds; and the function as workers call it."""
    if keep is None:
        return None, function
    if batch is not None:
        raise BadOption("keep= and batch= don't go together: what a batch returns is about all of its messages.")
    ms = duration_ms(keep, "keep")
    if not ms:
        raise BadTime("keep is 0: a result could never be read. Leave it out, or give it time.")
    return ms, noting(function, is_async=is_async)


def _timeout(value: Duration) -> float:
    ms = duration_ms(value, "timeout")
    if not ms:
        raise BadTime("timeout is 0: the task could never run. Leave it out, or give it time.")
    return ms / 1000


class Tasks:
    """The tasks of a queue and its twin, by topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Definition] = {}
        self.attempts: dict[str, int] = {}  # by topic, so that a message sent by its topic gets what the task says
        self.rules: TopicRules = TopicRules()
        self.keeps: dict[str, int] = {}  # by topic, how long results are kept, in milliseconds

    def add(self, task: Definition) -> Definition:
        for topic in task.topics:
            other = self._by_topic.get(topic)
            if other is not None and not task.place.is_anew(other.place):
                raise ConfigError(
                    f"The topic {topic} is for {other.place} already, and {task.place} asks for it "
                    "too. Give each task a topic of its own."
                )
        for topic in task.topics:
            self._by_topic[topic] = task
            self.attempts[topic] = task.max_attempts
            self.rules.of_task(topic, task.rule)
            if task.keep is not None:
                self.keeps[topic] = task.keep
            else:
                self.keeps.pop(topic, None)
        return task

    def keeps_nothing(self, topic: str) -> bool:
        """Whether this queue itself says that what the topic's task returns is not kept."""
        return topic in self._by_topic and topic not in self.keeps

    def get(self, topic: str) -> Definition | None:
        return self._by_topic.get(topic)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_topic)

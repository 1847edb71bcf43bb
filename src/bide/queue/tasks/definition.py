"""What a queue knows of a task: the function, its topics, and how it is to be run."""

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from bide.core import options
from bide.core.backoff import USUAL, Backoff
from bide.core.times import duration_ms
from bide.errors import BadOption, BadTime, ConfigError
from bide.queue.deliveries import noting
from bide.queue.tasks.arguments import Arguments
from bide.queue.tasks.failing import Errors, Failing, OnDead
from bide.queue.tasks.items import Gather, Items, read_batch
from bide.queue.tasks.limits import LOCK_DELAY, LOCK_WAIT, Limits, OnConflict, refuse_idle
from bide.queue.tasks.overdue import CatchUp, Overdue, read_overdue
from bide.queue.tasks.place import Place, module_of, name_of
from bide.queue.topic_rules import Rule, rule
from bide.types import Duration

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
        self.max_attempts: int = options.count(max_attempts, "max_attempts", 1_000)
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
        self.failing: Failing = Failing(retry_for, no_retry_for, on_dead)
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
        self.place: Place = Place(function, self.name)
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

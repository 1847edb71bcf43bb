"""The functions of a task are called: its handler, with its middleware, in the loop, in a thread or right here; its on_dead."""

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from inspect import CO_COROUTINE
from types import FunctionType
from typing import Any, TypeAlias

from bide.blocking import seen_through
from bide.engines.aio import AsyncEngine
from bide.engines.base import Ref
from bide.errors import BadOption, BideError
from bide.logs import Log
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.around import MessagesHandling, SubscribersAround
from bide.queue.deliveries import internals, running
from bide.queue.events import UNHEARD, EndedAs, Subscriptions
from bide.queue.run.message import Handling
from bide.queue.run.threads import end_fork
from bide.queue.run.timeout import LoopWatch, MovedWatch
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.outcome import DONE, RELEASED, Outcome, outcome, unread
from bide.raised import bearable, readable

Middleware: TypeAlias = Callable[[AsyncDelivery, Callable[[], Awaitable[None]]], Awaitable[None]]
"""Called around each handler, with the delivery and the next step to await: `async def timed(delivery, handle): await
handle()`.
"""


def checked(given: Any) -> tuple[Middleware, ...]:
    """Middleware as users give it."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadOption(f"middleware is a {type(given).__name__}. Give a list of functions, as in middleware=[timed].")
    every = tuple(given)
    for each in every:
        if not callable(each):
            raise BadOption(f"middleware holds a {type(each).__name__}. Each is `async def timed(delivery, handle)`.")
    return every


class Handlers:
    """How handlers are called: in the loop, in a thread or here, inside the middleware, with an eye on the time."""

    def __init__(
        self,
        in_thread: Callable[[Callable[[], object]], "asyncio.Future[None]"],
        middleware: Sequence[Middleware],
        watch: LoopWatch | MovedWatch,
        ending: Callable[[], bool],
        *,
        subscriptions: Subscriptions = UNHEARD,
        by_chance: bool = True,
    ) -> None:
        """Not `by_chance`: waits aren't spread, so that they can be foreseen."""
        self._subscriptions = subscriptions
        self._run_in_thread = in_thread
        self._middleware = tuple(reversed(middleware))
        self._watch = watch
        self._ending = ending
        self._by_chance = by_chance
        self.owner: int = os.getpid()

    def call(self, handling: Handling, *, told: bool = False) -> Awaitable[None]:
        """Begin to call its handler: the rest is to be awaited. `told`: subscribers are, around this."""
        if self._subscriptions.handles and not told:
            return self._told(handling)
        task, arguments = handling.task, handling.given
        if self._middleware:
            return self._inside(handling)
        if arguments is None:
            arguments = handling.arguments()
        self._begins(handling)
        if not task.is_async:
            return self._in_thread(handling, arguments)
        awaitable: Awaitable[None] = task.run(**arguments)
        return awaitable

    def are_quick(self, task: Definition) -> bool:
        """Whether there is nothing to do for messages of the task but to call its handler, which only makes a coroutine."""
        run = task.run
        return (
            not self._middleware and task.plain and isinstance(run, FunctionType) and bool(run.__code__.co_flags & CO_COROUTINE)
        )

    def quick(self, handling: Handling) -> Coroutine[Any, Any, None] | None:
        """The handler's coroutine; none if there is something else to do."""
        if handling.given is None or handling.why is not None or self._subscriptions.handles:
            return None
        running.set(handling.present)
        try:
            going: Coroutine[Any, Any, None] = handling.task.run(**handling.given)
        except TypeError:  # it is another function than it seems to be: it fails anew where that is seen to
            return None
        return going

    def raised_here(self, handling: Handling) -> BaseException | None:
        """Call a sync handler in the caller's thread, without middleware: what it raised."""
        try:
            if self._subscriptions.handles:
                with self._around(handling):
                    self._call_here(handling)
            else:
                self._call_here(handling)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return bearable(error)
        finally:
            handling.silence()
        return None

    def _call_here(self, handling: Handling) -> None:
        arguments = handling.arguments()
        self._begins(handling)
        handling.task.call(arguments)
        self.returned(handling)

    async def _told(self, handling: Handling) -> None:
        with self._around(handling):
            await self.call(handling, told=True)
            self.returned(handling)

    @contextmanager
    def _around(self, handling: Handling) -> Iterator[None]:
        """What subscribers do around a handler. Before they are left it is decided what becomes of its messages."""
        members = [each for each, _ in handling.each(None)]
        event = MessagesHandling(handling.topic, handling.task.name, [(each.claimed, each.now) for each in members])
        around = SubscribersAround(self._subscriptions, event)
        around.__enter__()
        for each in members if event.log_fields else ():
            each.log_fields = event.log_fields
        error: BaseException | None = None
        try:
            yield
        except BaseException as by:
            error = by
            raise
        finally:
            try:
                event.outcomes, error = self._decide(handling, error)
            finally:
                around.leave(error)
                error = None  # its traceback leads back to this frame

    def _decide(self, handling: Handling, error: BaseException | None) -> tuple[Sequence[EndedAs | None], BaseException | None]:
        """What becomes of messages, of which `became` is asked later, as a backoff of the user is called once. And the error to
        tell: of a handler that has taken too long, one that says so.
        """
        members = handling.each(None if error is None else readable(error))
        if isinstance(error, KeyboardInterrupt | GeneratorExit):  # no end of the handler's own
            return [None for _ in members], error
        ends: list[EndedAs | None] = []
        for each, why in members:
            became, told = each.decided = self.became(each, why)
            ends.append(None if each.ended else _end_of(each, became))
            if handling.why == "timeout" and isinstance(told, TimeoutError):
                error = told
        return ends, error

    def returned(self, handling: Handling) -> None:
        """Its handler has returned."""
        if handling.why is None and self._watch.is_over(handling):
            handling.was_late()

    def _begins(self, handling: Handling) -> None:
        running.set(handling.present)
        if handling.taken.at_work is not None:
            handling.begins_work()
        if (timeout := handling.task.timeout) is not None:
            self._watch.begin(handling, timeout)

    def here(self) -> bool:
        """Whether this is the process that called it, and not a fork that a handler has returned in."""
        return os.getpid() == self.owner

    def became(self, handling: Handling, error: BaseException | None) -> tuple[Outcome | None, BaseException | None]:
        """What the engine is to be told, and what there is to say of it; None when the lease was lost."""
        if handling.decided is not None:
            decided, handling.decided = handling.decided, None  # its error leads back to the message
            return decided
        if not self.here():
            end_fork(error)
        if error is None:
            if handling.why in (None, "stop", "place"):
                return DONE, None
            error = asyncio.CancelledError()
        if isinstance(error, Unread):
            return unread(error, handling.claimed, handling.now, by_chance=self._by_chance), error
        if isinstance(error, asyncio.CancelledError) and handling.why is None and self._ending():
            handling.why = "stop"  # the loop shuts down, and cancels all that is in it at once
        return failed(handling, error, by_chance=self._by_chance)

    async def _inside(self, handling: Handling) -> None:
        """Through the middleware, the first of them outermost. What can't be read is an error that it sees, and can't undo."""
        arguments: dict[str, Any] | None = None
        with suppress(Unread):  # it is raised anew where the middleware sees it: kept here, it would keep its own frames alive
            arguments = handling.arguments()
        self._begins(handling)
        inner: Callable[[], Awaitable[None]] = partial(self._call, handling, arguments)
        for each in self._middleware:
            inner = partial(each, handling.delivery, inner)
        await inner()
        if arguments is None and not handling.ended:
            handling.arguments()

    async def _call(self, handling: Handling, arguments: dict[str, Any] | None) -> None:
        """As the middleware sees it: what takes too long raises TimeoutError, and nothing is returned."""
        if arguments is None:
            arguments = handling.arguments()
        try:
            await (handling.task.run(**arguments) if handling.task.is_async else self._in_thread(handling, arguments))
        except asyncio.CancelledError:
            if handling.why == "timeout":
                raise _overtime(handling) from None
            raise
        self._watch.leaves_thread(handling)
        self.returned(handling)
        if handling.why == "timeout":
            raise _overtime(handling)

    async def _in_thread(self, handling: Handling, arguments: dict[str, Any]) -> None:
        """Its place is taken until the thread is free again, also when somebody around it does not want to wait."""

        def cancelled(answer: asyncio.Future[None]) -> None:
            handling.expire()
            if handling.why == "stop" or self._ending():
                answer.cancel()

        def call() -> None:
            try:
                handling.task.call(arguments)
            finally:
                handling.over = time.monotonic()

        await seen_through(self._run_in_thread(call), cancelled)


class OnDeadStep:
    """A task is told that its message is to be a dead letter, if it wants to know.

    It is told before the engine is: else nobody would, if this process died in between.
    """

    def __init__(self, log: Log, engine: AsyncEngine | None) -> None:
        """`engine`: is asked what has become of messages whose lease was lost; None where there are none."""
        self._log = log
        self._engine = engine

    async def told(self, handling: Handling, became: Outcome | None) -> Outcome | None:
        """What becomes of a message once its task was told, if it is to be."""
        failing = handling.task.failing
        if failing.on_dead is None or handling.ended:
            return became
        reason = await self._buried(handling) if became is None else _reason(handling, became)
        if reason is None:
            return became
        runner = asyncio.current_task()
        cancelled = runner.cancelling() if runner is not None else 0
        running.set(handling.present)
        try:
            await failing.tell(handling.present(), reason)
        except BaseException as by:
            error = raised(by, runner)
            if isinstance(error, asyncio.CancelledError) and runner is not None and runner.cancelling() > cancelled:
                return (
                    None if became is None else handling.doomed or RELEASED
                )  # the worker stops, and another one tells it; the doomed must not run again
            self._failed(handling, error)
        return became

    def told_here(self, handling: Handling, became: Outcome, wait: Callable[[Awaitable[Any]], object]) -> None:
        """The same in the caller's thread, of a sync task and a sync on_dead, which may return what is to be waited for."""
        on_dead, reason = handling.task.failing.on_dead, _reason(handling, became)
        if on_dead is None or handling.ended or reason is None:
            return
        try:
            result = on_dead(handling.present(), reason)
            if inspect.isawaitable(result):
                wait(result)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._failed(handling, readable(error))

    def _failed(self, handling: Handling, error: BaseException) -> None:
        self._log.error("The on_dead of %s failed for message %s", handling.task.name, handling.delivery.id, exc_info=error)

    async def _buried(self, handling: Handling) -> str | None:
        """Why a message whose lease was lost in its last attempt is a dead letter, if it is: the engine has buried it."""
        delivery, engine = handling.delivery, self._engine
        if delivery.attempt < delivery.max_attempts or engine is None or not engine.capabilities.lookup:
            return None
        try:
            [found] = await engine.get([Ref(delivery.id)])
        except BideError as error:
            self._log.warning("%s may be a dead letter without a call of on_dead: %s", handling, error)
            return None
        return (found.last_error or "") if found is not None and found.state == "dead" else None


def runs(runner: "asyncio.Task[Any] | None") -> bool:
    """Whether it is this task that runs now: not when its coroutine is closed from outside, as by the garbage collector."""
    return runner is not None and asyncio.current_task(runner.get_loop()) is runner


def raised(error: BaseException, runner: "asyncio.Task[Any] | None") -> BaseException:
    """What a handler raised in the task `runner`. What was not its own doing goes up: Ctrl-C, and that its loop has gone."""
    if issubclass(type(error), KeyboardInterrupt):
        raise error
    error = readable(error)
    # a GeneratorExit that the handler met in an await has closed all coroutines within the one that asks
    if isinstance(error, GeneratorExit) and not runs(runner):
        raise error
    return error


def _overtime(handling: Handling) -> TimeoutError:
    return TimeoutError(f"took longer than its timeout of {handling.task.timeout:g} s")


def failed(handling: Handling, error: BaseException, *, by_chance: bool = True) -> tuple[Outcome | None, BaseException | None]:
    """What becomes of a message whose handler raised, or was made to; and the error to tell of."""
    delivery = handling.delivery
    if handling.why == "lost":
        return None, None
    if isinstance(error, asyncio.CancelledError):
        if handling.why in ("stop", "place"):
            return RELEASED, None
        if handling.why == "timeout":
            error = _overtime(handling)
    return outcome(error, handling.task, delivery.attempt, internals(delivery).tried_ms, by_chance=by_chance), error


def _end_of(handling: Handling, became: Outcome | None) -> EndedAs:
    """As events tell it."""
    if became is None:
        return "lost"
    if became.verdict == "retry":
        delivery = handling.delivery
        return "dead" if became.buries(delivery.attempt, delivery.max_attempts) else "retried"
    return "released" if became.verdict == "release" else became.verdict


def _reason(handling: Handling, became: Outcome) -> str | None:
    delivery = handling.delivery
    return (became.error or "") if became.buries(delivery.attempt, delivery.max_attempts) else None

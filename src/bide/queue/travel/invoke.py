"""How a task is called while time travels, in each colour: sync ones in a thread of an event loop, async ones in a loop."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias

from bide.blocking import seen_through
from bide.clock import MS, Clock, SystemClock
from bide.errors import ConfigError
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.session import AsyncSession
from bide.queue.deliveries import Together, returned_of, running
from bide.queue.setup import Setup
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.session import Session
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.middleware import Middleware
from bide.raised import bearable, readable

Given: TypeAlias = dict[str, Any] | Unread
"""The arguments of a handler; or why they can't be read, for the middleware to see."""


class AsyncInvoke:
    """For an AsyncQueue; a sync task is given its delivery by the `other` session."""

    def __init__(self, session: AsyncSession, other: Callable[[], Session]) -> None:
        self.session: AsyncSession = session
        self._other = other
        self._used_other = False

    def sessions(self) -> tuple[AsyncSession, Session]:
        return self.session, self._other()

    async def call(
        self, task: Definition, arguments: Given, delivery: AsyncDelivery | Together[AsyncDelivery]
    ) -> BaseException | None:
        """What it raised."""
        seen = self._seen(task, delivery)
        attempt = Attempt(self.session.setup, task, arguments, _each(delivery)[0], seen)
        try:
            return await _in_own_task(attempt.run())
        finally:
            _share_ends(delivery, seen)
            _share_value(delivery, seen)

    async def tell_dead(self, task: Definition, delivery: AsyncDelivery, reason: str) -> BaseException | None:
        """Before its message becomes a dead letter. What on_dead raised."""
        if task.failing.on_dead is None:
            return None
        seen = self._seen(task, delivery)
        try:
            return await _in_own_task(_told(task, seen, reason))
        finally:
            _share_ends(delivery, seen)

    def _seen(self, task: Definition, delivery: AsyncDelivery | Together[AsyncDelivery]) -> Any:
        """The delivery as the handler sees it."""
        if task.is_async:
            return delivery
        self._used_other = True
        return _other_of(delivery, self._other().open())

    async def check(self, task: Definition) -> None:
        """Refuse what can't be called from here."""

    def close(self) -> None:
        """What was opened for sync tasks."""
        if self._used_other:
            self._used_other = False
            self._other().close()


class Invoke:
    """For a Queue; an async task is given its delivery by the `other` session."""

    def __init__(self, session: Session, other: Callable[[], AsyncSession]) -> None:
        self.session: Session = session
        self._other = other
        self._runner: asyncio.Runner | None = None

    def sessions(self) -> tuple[Session, AsyncSession]:
        return self.session, self._other()

    def call(self, task: Definition, arguments: Given, delivery: Delivery | Together[Delivery]) -> BaseException | None:
        """What it raised."""
        context = contextvars.copy_context()
        if not self._needs_loop(task):
            return context.run(self._here, task, arguments, delivery)
        return self._run(self._in_loop(task, arguments, delivery), context)

    def _here(self, task: Definition, arguments: Given, delivery: Delivery | Together[Delivery]) -> BaseException | None:
        running.set(lambda: delivery)

        def expire() -> None:
            delivery.expired = True

        with Overtime(task.timeout, clock_of(self.session.setup), expire) as overtime:
            error = _raised(lambda: _call(task, arguments))
        return overtime.late() if error is None else error

    async def _in_loop(
        self, task: Definition, arguments: Given, delivery: Delivery | Together[Delivery]
    ) -> BaseException | None:
        aio = _other_of(delivery, await self._other().open())
        attempt = Attempt(self.session.setup, task, arguments, _each(aio)[0], aio if task.is_async else delivery)
        try:
            return await attempt.run()
        finally:
            _share_ends(delivery, aio)
            _share_value(delivery, aio if task.is_async else delivery)

    def _needs_loop(self, task: Definition) -> bool:
        return task.is_async or bool(self.session.setup.middleware)

    def tell_dead(self, task: Definition, delivery: Delivery, reason: str) -> BaseException | None:
        """Before its message becomes a dead letter. What on_dead raised."""
        if task.failing.on_dead is None:
            return None
        if task.is_async or task.failing.is_async:
            return self._run(self._told_in_loop(task, delivery, reason), contextvars.copy_context())
        return _raised(lambda: self._tell(task, delivery, reason))

    def _tell(self, task: Definition, delivery: Delivery, reason: str) -> None:
        """Of a sync task, by a sync function, which may return something to be awaited nevertheless."""
        on_dead = task.failing.on_dead
        result = None if on_dead is None else on_dead(delivery, reason)
        if inspect.isawaitable(result):
            self._run(_awaited(result), contextvars.copy_context())

    async def _told_in_loop(self, task: Definition, delivery: Delivery, reason: str) -> BaseException | None:
        seen = _other_of(delivery, await self._other().open()) if task.is_async else delivery
        try:
            return await _told(task, seen, reason)
        finally:
            _share_ends(delivery, seen)

    def _run(self, work: Coroutine[Any, Any, BaseException | None], context: contextvars.Context) -> BaseException | None:
        """In a loop, which is one for all: what handlers open belongs to it."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(work, context=context)
        except (asyncio.CancelledError, GeneratorExit) as error:  # the handler's own: Ctrl-C is a KeyboardInterrupt here
            return error

    def check(self, task: Definition) -> None:
        """Refuse what can't be called from here."""
        if self._needs_loop(task) and asyncio._get_running_loop() is not None:
            what = f"{task.name}() is async" if task.is_async else "Middleware is async"
            raise ConfigError(
                f"{what}, and advance() of a sync queue can't run it inside an event loop. "
                "Await that of the async queue: `await queue.aio.testing.advance(…)`."
            )

    def close(self) -> None:
        """What was opened for async tasks."""
        runner, self._runner = self._runner, None
        if runner is None:
            return

        def end() -> None:
            with runner:
                runner.run(self._other().close())

        if asyncio._get_running_loop() is None:
            end()
        else:  # as when the fixture is async: two loops can't run in one thread
            with ThreadPoolExecutor(1) as thread:
                thread.submit(end).result()


class Attempt:
    """One call in a loop: inside the middleware, with an eye on its timeout."""

    def __init__(
        self,
        setup: Setup,
        task: Definition,
        arguments: Given,
        delivery: AsyncDelivery,  # as middleware sees it
        seen: Any,  # as the handler does, which may have a batch of them
    ) -> None:
        self._setup = setup
        self._task = task
        self._arguments = arguments
        self._delivery = delivery
        self._seen = seen
        self._runner: asyncio.Task[Any] | None = None
        self._stopped = False  # for its timeout
        self._told = False  # its middleware was told that it took too long

    async def run(self) -> BaseException | None:
        """What it raised. A cancellation from outside goes up."""
        loop = asyncio.get_running_loop()
        runner = self._runner = asyncio.current_task()
        running.set(lambda: self._seen)
        error: BaseException | None = None
        overtime = self._overtime = Overtime(
            self._task.timeout, clock_of(self._setup), lambda: loop.call_soon_threadsafe(self._stop)
        )
        try:
            with overtime:
                await self._through(self._setup.middleware)
            if isinstance(self._arguments, Unread) and not (self._delivery.ended or _each(self._seen)[0].ended):
                error = self._arguments  # middleware sees it, and can't undo it
        except KeyboardInterrupt:
            raise
        except asyncio.CancelledError as raised:
            if runner is not None and runner.cancelling() > self._stopped:
                raise  # not the handler's own doing
            error = overtime.late() or raised
        except BaseException as raised:
            error = readable(raised)
        finally:
            self._runner = None
        if self._stopped and runner is not None:
            runner.uncancel()
        return overtime.late() if error is None else error

    def _stop(self) -> None:
        """As a worker does: an async handler is cancelled, a sync one can see it in current().expired."""
        if self._runner is None or self._told:
            return
        self._expire()
        if self._task.is_async:
            self._stopped = True
            self._runner.cancel()

    async def _through(self, middleware: Sequence[Middleware]) -> None:
        """The first of them is outermost."""
        inner: Callable[[], Awaitable[None]] = self._function
        for each in reversed(middleware):
            inner = partial(each, self._delivery, inner)
        await inner()

    async def _function(self) -> None:
        """As middleware sees it: what takes too long raises TimeoutError."""
        if isinstance(self._arguments, Unread):
            raise self._arguments
        try:
            if self._task.is_async:
                await self._task.run(**self._arguments)
            else:
                work = partial(_raised, partial(_call, self._task, self._arguments))
                error = await seen_through(asyncio.ensure_future(asyncio.to_thread(work)), lambda _: self._expire())
                if error is not None:
                    raise error
        except asyncio.CancelledError:
            if self._stopped and (late := self._overtime.late()) is not None:
                raise late from None
            raise
        if (late := self._overtime.late()) is not None:
            self._told = True
            raise late

    def _expire(self) -> None:
        self._delivery.expired = self._seen.expired = True


class Overtime:
    """Around a handler. Real time is watched by a thread, since a test may have stopped the time that event loops see."""

    def __init__(self, timeout: float | None, clock: Clock, expire: Callable[[], object]) -> None:
        self._timeout = timeout
        self._clock = clock
        self._expire = expire
        self._began = clock.now_ns()
        self._rang = False
        self._over = False
        self._lock = threading.Lock()
        self._timer = None if timeout is None else threading.Timer(timeout, self._ring)

    def _ring(self) -> None:
        with self._lock:
            if not self._over:
                self._rang = True
                self._expire()

    def __enter__(self) -> Self:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def late(self) -> TimeoutError | None:
        """What the attempt failed with, when it took too long."""
        if self._timeout is None or not (self._rang or self._clock.now_ns() - self._began >= self._timeout * 1000 * MS):
            return None
        return TimeoutError(f"took longer than its timeout of {self._timeout:g} s")


def _each(delivery: Any) -> Sequence[Any]:
    return delivery if isinstance(delivery, Together) else [delivery]


def _other_of(delivery: Any, opened: Any) -> Any:
    """A delivery, or those of a batch, in the other colour, which is open."""
    made = [opened.delivery(each.claimed, each.body, each.now, each.at_work) for each in _each(delivery)]
    return Together(made) if isinstance(delivery, Together) else made[0]


def _share_ends(own: Any, others: Any) -> None:
    """What the handler has ended in its colour has ended."""
    for each, other in zip(_each(own), _each(others), strict=True):
        each.ended = each.ended or other.ended


def clock_of(setup: Setup) -> Clock:
    return setup.clock or SystemClock()


def _call(task: Definition, arguments: Given) -> None:
    if isinstance(arguments, Unread):
        raise arguments
    task.call(arguments)


def _raised(work: Callable[[], object]) -> BaseException | None:
    """Handed back, not raised: a SystemExit would end the loop."""
    try:
        work()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return bearable(error)
    return None


async def _told(task: Definition, seen: Any, reason: str) -> BaseException | None:
    """What on_dead raised."""
    running.set(lambda: seen)
    try:
        await task.failing.tell(seen, reason)
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise
    except BaseException as error:
        return readable(error)
    return None


async def _awaited(result: Awaitable[Any]) -> None:
    await result


async def _in_own_task(work: Coroutine[Any, Any, BaseException | None]) -> BaseException | None:
    """What it raised. One that cancels itself has failed; a cancellation of the caller goes up."""
    try:
        return await asyncio.get_running_loop().create_task(work)
    except asyncio.CancelledError as error:
        mine = asyncio.current_task()
        if mine is not None and mine.cancelling():
            raise
        return error


def _share_value(delivery: Any, seen: Any) -> None:
    """What the handler returned, of one delivery."""
    if not isinstance(delivery, Together):
        delivery.returned = returned_of(seen)

"""How a task is called while time travels, in each colour: sync ones in a thread of an event loop, async ones in a loop."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from bide.clock import SystemClock
from bide.errors import ConfigError
from bide.logs import Log
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.opened import AsyncOpened
from bide.queue.aio.session import AsyncSession
from bide.queue.deliveries import internals
from bide.queue.run.call import Handlers, OnDeadStep, raised
from bide.queue.run.message import Batch, Handling, Taken
from bide.queue.run.threads import Threads
from bide.queue.run.timeout import MovedWatch
from bide.queue.setup import Setup
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.session import Session
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.outcome import Outcome

_on_dead = OnDeadStep(Log("bide.testing"), None)
Ends: TypeAlias = Sequence[tuple[Outcome, BaseException | None]]
"""What becomes of each message of a call, and what there is to say of it."""


class AsyncInvoke:
    """For an AsyncQueue; a sync task is given its delivery by the `other` session."""

    def __init__(self, session: AsyncSession, other: Callable[[], Session]) -> None:
        self.session: AsyncSession = session
        self._other = other
        self._used_other = False
        self._taken = Taken(self._in_sync)

    def sessions(self) -> tuple[AsyncSession, Session]:
        return self.session, self._other()

    def handling(self, task: Definition, delivery: AsyncDelivery) -> Handling:
        return Handling.of(delivery, task, self._taken)

    async def call(self, called: Handling) -> Ends:
        """Call the handler of a message, or of a batch."""
        watch = _watch(self.session.setup, asyncio.get_running_loop().call_soon_threadsafe)
        handlers = _handlers(self.session.setup, watch)
        error = await _in_own_task(_raised_by(handlers, watch, called))
        return list(_ends(handlers, called, error))

    async def tell_dead(self, handling: Handling, became: Outcome) -> None:
        """Before its message becomes a dead letter."""
        if handling.task.failing.on_dead is not None:
            await _in_own_task(_told(handling, became))

    def _in_sync(self, delivery: AsyncDelivery) -> Delivery:
        self._used_other = True
        return self._other().open().delivery(internals(delivery))

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
        self._taken = Taken(lambda delivery: delivery)

    def sessions(self) -> tuple[Session, AsyncSession]:
        return self.session, self._other()

    def handling(self, task: Definition, delivery: Any) -> Handling:
        """Of this colour; those who are called in a loop get another one."""
        return Handling.of(delivery, task, self._taken)

    def call(self, called: Handling) -> Ends:
        """Call the handler of a message, or of a batch."""
        context, setup = contextvars.copy_context(), self.session.setup
        if not self._needs_loop(called.task):
            handlers = _handlers(setup, _watch(setup, lambda stop, handling: stop(handling)))
            error = context.run(handlers.raised_here, called)
            return list(_ends(handlers, called, error))
        other = self._other_of(called)
        watch = _watch(setup, self._loop().get_loop().call_soon_threadsafe)
        handlers = _handlers(setup, watch)
        error = self._run(_raised_by(handlers, watch, other), context)
        return list(_ends(handlers, other, error))

    def tell_dead(self, handling: Handling, became: Outcome) -> None:
        """Before its message becomes a dead letter."""
        failing = handling.task.failing
        if failing.on_dead is None:
            return
        if not (handling.task.is_async or failing.is_async):
            _on_dead.told_here(handling, became, lambda result: self._run(_awaited(result)))
            return
        self._run(_told(self._other_of(handling), became), contextvars.copy_context())

    def _other_of(self, called: Handling) -> Handling:
        """The same for a loop, with deliveries of the other colour."""
        opened = self._run(self._other().open())
        made = [_aio(opened, each) for each, _ in called.each(None)]
        return Batch(made) if isinstance(called, Batch) else made[0]

    def _needs_loop(self, task: Definition) -> bool:
        return task.is_async or bool(self.session.setup.middleware)

    def _loop(self) -> asyncio.Runner:
        """One for all: what handlers open belongs to it."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner

    def _run(self, work: Coroutine[Any, Any, Any], context: contextvars.Context | None = None) -> Any:
        try:
            return self._loop().run(work, context=context)
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


def _watch(setup: Setup, tell: Callable[..., object]) -> MovedWatch:
    return MovedWatch(setup.clock or SystemClock(), tell)


def _handlers(setup: Setup, watch: MovedWatch) -> Handlers:
    told = setup.subscriptions
    return Handlers(_in_new_thread, setup.middleware, watch, lambda: False, subscriptions=told, by_chance=False)


def _in_new_thread(work: Callable[[], object]) -> "asyncio.Future[None]":
    threads = Threads(1, asyncio.get_running_loop())
    try:
        if not threads.ready():
            raise RuntimeError("A thread for a sync handler can't be started.")
        return threads.run(work)
    finally:
        threads.close()  # it ends when it has done its work


async def _raised_by(handlers: Handlers, watch: MovedWatch, called: Handling) -> BaseException | None:
    """In a task of its own: what the handler raised. A cancellation from outside goes up."""
    runner = called.runner = asyncio.current_task()
    assert runner is not None
    error: BaseException | None = None
    try:
        await handlers.call(called)
        handlers.returned(called)
    except BaseException as by:
        error = raised(by, runner)
    finally:
        called.runner = None
        called.silence()
    if watch.cancelled:
        runner.uncancel()
    if isinstance(error, asyncio.CancelledError) and runner.cancelling():
        raise error
    return error


def _ends(handlers: Handlers, called: Handling, error: BaseException | None) -> Iterator[tuple[Outcome, BaseException | None]]:
    for each in called.each(error):
        became, why = handlers.became(*each)
        assert became is not None, "no lease is lost while time stands still"
        yield became, why


async def _told(handling: Handling, became: Outcome) -> None:
    """In a task of its own."""
    await _on_dead.told(handling, became)
    runner = asyncio.current_task()
    if runner is not None and runner.cancelling():
        raise asyncio.CancelledError


async def _awaited(result: Awaitable[Any]) -> None:
    await result


async def _in_own_task(work: Coroutine[Any, Any, BaseException | None]) -> BaseException | None:
    """What it gives, or how it ended itself. A cancellation of the caller goes up."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        return await task
    except (asyncio.CancelledError, GeneratorExit) as error:
        mine = asyncio.current_task(task.get_loop())
        if not task.done() or (mine is not None and mine.cancelling()):
            raise
        return error


def _aio(opened: AsyncOpened, handling: Handling) -> Handling:
    own: Any = handling.delivery
    return Handling.of(opened.delivery(internals(own)), handling.task, Taken(lambda _: own), handling.given)

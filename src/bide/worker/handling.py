"""One message under way: its handler is called, and what comes of that is told once."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from bide.blocking import seen_through
from bide.engines.aio import AsyncEngine
from bide.engines.base import End, Hold, Ref
from bide.errors import BideError
from bide.logs import Log
from bide.queue import AsyncDelivery, Delivery
from bide.queue.beats import Beat, Places
from bide.queue.deliveries import running
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.middleware import Middleware
from bide.queue.tasks.outcome import DONE, RELEASED, Outcome, outcome, unread
from bide.raised import readable
from bide.worker.ending import end_fork
from bide.worker.telling import about, name, tell
from bide.worker.threads import Threads

_log = Log("bide.worker")
Why: TypeAlias = Literal["lost", "timeout", "stop", "place"]

HEED = 5.0  # seconds that a handler has after its timeout to come to an end


class Shared(Protocol):
    """A batch that a message is handled in."""

    def one_stops(self, why: Why, *, first: bool) -> None: ...


class Taken(NamedTuple):
    """What the messages of one claim have in common."""

    beat: Beat  # that keeps their leases
    slot: int  # where the claim log has the claim
    in_sync: Callable[[AsyncDelivery], Delivery]
    unkept: Callable[[Beat, Hold], object]  # is told of a message whose lease is to be renewed no longer
    kept: Callable[[Hold, int], int]  # is told of a lease that is extended: for how long it is to be


class Handling:
    __slots__ = (
        "_sync_delivery",
        "alarm",
        "aside",
        "batch",
        "deadline",
        "delivery",
        "doomed",
        "over",
        "places",
        "runner",
        "stuck",
        "taken",
        "task",
        "told",
        "why",
    )

    def __init__(self, delivery: AsyncDelivery, task: Definition, taken: Taken) -> None:
        self.delivery: AsyncDelivery = delivery
        self.task: Definition = task
        self.taken: Taken = taken
        self.why: Why | None = None  # it was told to stop
        self.told: bool = False  # its end has been decided
        self.stuck: bool = False  # it goes on long after its timeout
        self.runner: asyncio.Task[None] | None = None
        self.aside: bool = False  # it waits for the engine without a place
        self.alarm: asyncio.TimerHandle | None = None  # for its timeout
        self.deadline: float | None = None  # when that is over, by time.monotonic()
        self.over: float | None = None  # when its handler came to an end, if that ran in a thread
        self.doomed: Outcome | None = None  # its last attempt killed its process: it is buried, and never released
        self.places: Places | None = None  # in the gates of its task
        self.batch: Shared | None = None  # that it is handled in
        self._sync_delivery: Delivery | None = None
        delivery.kept = taken.kept
        delivery.most = task.attempts(delivery.claimed)

    def __str__(self) -> str:
        return name(self.delivery)

    def arguments(self) -> dict[str, Any]:
        """What the handler is called with. Raises Unread."""
        known = self.delivery.arguments
        return self.task.arguments.of_message(self.delivery.body) if known is None else known

    @property
    def ended(self) -> bool:
        """Whether the handler has ended the delivery by itself."""
        return self.delivery.ended or (self._sync_delivery is not None and self._sync_delivery.ended)

    @property
    def ending(self) -> bool:
        """Whether it has done so, or is about to and waits for the answer."""
        return self.delivery.ending or (self._sync_delivery is not None and self._sync_delivery.ending) or self.ended

    def stop(self, why: Why) -> None:
        """Tell the handler to stop: an async one is cancelled, a sync one can see it in current().expired."""
        first = self.first_told(why)
        self.expire()
        if self.batch is not None:
            self.batch.one_stops(why, first=first)
        elif self.runner is not None and (self.task.is_async or why == "stop"):
            self.runner.cancel()

    def first_told(self, why: Why) -> bool:
        """Keep why it was told to stop; whether it was not told before."""
        first = self.why is None
        if first:
            self.why = why
        return first

    def begin_by(self, deadline: float) -> None:
        """Its handler is called, which has so long."""
        self.deadline = self.delivery.deadline = deadline

    def begins_work(self) -> None:
        """Its handler is called, and somebody listens to events."""
        self.delivery.at_work = time.monotonic()

    def was_late(self) -> None:
        """Its handler has returned after its timeout, and was not told to stop."""
        self.first_told("timeout")
        self.expire()

    def silence(self) -> None:
        """Its handler has come to an end: what comes after it has no timeout, and the alarm names the handling."""
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None

    def stick(self) -> None:
        self.stuck = True

    def expire(self) -> None:
        self.delivery.expired = True
        if self._sync_delivery is not None:
            self._sync_delivery.expired = True

    def present(self) -> Any:
        """The delivery in the colour of the handler. Once the handler has ended it, its lease is not renewed any more: in the
        handler's own transaction the end may be long before the commit, and holds the message until then.
        """
        if not self.task.is_async and self._sync_delivery is None:
            self._sync_delivery = self.taken.in_sync(self.delivery)
            self._sync_delivery.hold, self._sync_delivery.kept = self.delivery.hold, self.delivery.kept
            self._sync_delivery.deadline, self._sync_delivery.most = self.delivery.deadline, self.delivery.most
            if self.delivery.expired:
                self._sync_delivery.expired = True
        present = self._sync_delivery or self.delivery
        unkept, beat, hold = self.taken.unkept, self.taken.beat, self.delivery.hold

        def ended() -> None:
            unkept(beat, hold)

        present.on_end(ended, _nothing)
        return present


def _nothing() -> None:
    """The worker itself ends what its handler drops."""


class Handlers:
    """How handlers are called: in the loop or in a thread, inside the middleware, with an eye on the time."""

    def __init__(
        self,
        threads: Threads,
        middleware: Sequence[Middleware],
        unheeded: Callable[[Handling], None],
        ending: Callable[[], bool],
        engine: AsyncEngine,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._middleware = tuple(reversed(middleware))
        self._unheeded = unheeded
        self._ending = ending
        self._engine = engine
        self._owner = os.getpid()

    def ready(self, handling: Handling) -> bool:
        """Whether its handler can be called now: the machine may have no thread to give."""
        return handling.task.is_async or self._threads.ready()

    def call(self, handling: Handling) -> Awaitable[None]:
        """Begin to call its handler: the rest is to be awaited."""
        task = handling.task
        if self._middleware:
            return self._inside(handling)
        arguments = handling.arguments()
        self._begins(handling)
        if not task.is_async:
            return self._in_thread(handling, arguments)
        awaitable: Awaitable[None] = task.run(**arguments)
        return awaitable

    def returned(self, handling: Handling) -> None:
        """Its handler has returned. If the event loop was blocked, its alarm may not have rung: then the clock tells."""
        late = handling.deadline is not None and time.monotonic() >= handling.deadline
        if late and handling.why is None and not self._left(handling):
            handling.was_late()

    def _left(self, handling: Handling) -> float:
        """Seconds that were left when it ended in its thread, which a blocked loop hears of later. 0: it has not, or late."""
        over, deadline = handling.over, handling.deadline
        return 0.0 if over is None or deadline is None else max(0.0, deadline - over)

    def _begins(self, handling: Handling) -> None:
        running.set(handling.present)
        if handling.delivery.at_work is not None:
            handling.begins_work()
        if (timeout := handling.task.timeout) is not None:
            self._set_alarm(handling, timeout)

    def _set_alarm(self, handling: Handling, timeout: float) -> None:
        handling.begin_by(time.monotonic() + timeout)
        handling.alarm = self._loop.call_later(timeout, self._time_out, handling)

    def _leaves_thread(self, handling: Handling) -> None:
        """Middleware goes on after it with the time that was left in its thread, however late the loop heard of its end."""
        if left := self._left(handling):
            handling.over = None
            handling.silence()
            self._set_alarm(handling, left)

    def became(self, handling: Handling, error: BaseException | None) -> tuple[Outcome | None, BaseException | None]:
        """What the engine is to be told, and what there is to say of it; None when the lease was lost."""
        if os.getpid() != self._owner:
            end_fork(error)
        if error is None:
            return (DONE, None) if handling.why in (None, "stop", "place") else _failed(handling, asyncio.CancelledError())
        if isinstance(error, Unread):
            return unread(error, handling.delivery.claimed, handling.delivery.now), error
        if isinstance(error, asyncio.CancelledError) and handling.why is None and self._ending():
            handling.why = "stop"  # the loop shuts down, and cancels all that is in it at once
        return _failed(handling, error)

    async def told_dead(self, handling: Handling, became: Outcome | None) -> Outcome | None:
        """What becomes of a message once its task was told that it is to be a dead letter, if it is and wants to know.

        It is told before the engine is: else nobody would, if this process died in between.
        """
        failing, delivery = handling.task.failing, handling.delivery
        if failing.on_dead is None or handling.ended:
            return became
        if became is None:
            reason = await self._buried(handling)
        else:
            reason = (became.error or "") if became.buries(delivery.attempt, delivery.max_attempts) else None
        if reason is None:
            return became
        runner = asyncio.current_task(self._loop)
        cancelled = runner.cancelling() if runner is not None else 0
        try:
            await failing.tell(handling.present(), reason)
        except (Exception, asyncio.CancelledError, SystemExit) as raised:
            error = readable(raised)
            if isinstance(error, asyncio.CancelledError) and runner is not None and runner.cancelling() > cancelled:
                return (
                    None if became is None else handling.doomed or RELEASED
                )  # the worker stops, and another one tells it; the doomed must not run again
            _log.error("The on_dead of %s failed for message %s", handling.task.name, delivery.id, exc_info=error)
        return became

    async def _buried(self, handling: Handling) -> str | None:
        """Why a message whose lease was lost in its last attempt is a dead letter, if it is: the engine has buried it."""
        if handling.delivery.attempt < handling.delivery.max_attempts or not self._engine.capabilities.lookup:
            return None
        try:
            [found] = await self._engine.get([Ref(handling.delivery.id)])
        except BideError as error:
            _log.warning("%s may be a dead letter without a call of on_dead: %s", handling, error)
            return None
        return (found.last_error or "") if found is not None and found.state == "dead" else None

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
        self._leaves_thread(handling)
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

        await seen_through(self._threads.run(call), cancelled)

    def _time_out(self, handling: Handling) -> None:
        if self._left(handling):
            return
        if handling.why != "timeout":  # else its middleware has been told, and may be about to end it
            handling.stop("timeout")
        handling.alarm = self._loop.call_later(HEED, self._look_again, handling)
        _log.warning(
            "%s has reached its timeout of %g s: its handler is told to stop",
            handling,
            handling.task.timeout,
            extra=about(handling.delivery),
        )

    def _look_again(self, handling: Handling) -> None:
        if handling.runner is not None and not handling.runner.done():
            handling.stick()
            self._unheeded(handling)


def given_up(handling: Handling) -> Outcome | None:
    """What becomes of a message whose handler does not end, and can't be waited for any more."""
    if handling.doomed is not None:
        return handling.doomed
    if handling.why == "stop":
        return RELEASED
    became, error = _failed(handling, asyncio.CancelledError())
    if error is not None:
        tell(handling.delivery, became, error)
    return became


def left_over(under_way: Iterable[Handling]) -> list[End]:
    """The ends of those whose handlers go on at the end of a grace: for another thread, when the loop does not go any more."""
    ends = []
    for each in under_way:
        if not each.told and not each.ending:
            each.why = each.why or "stop"
            each.expire()
            became = given_up(each)
            ends += [] if became is None else [each.delivery.end(*became)]
    return ends


def _overtime(handling: Handling) -> TimeoutError:
    return TimeoutError(f"took longer than its timeout of {handling.task.timeout:g} s")


def _failed(handling: Handling, error: BaseException) -> tuple[Outcome | None, BaseException | None]:
    """What becomes of a message whose handler raised, or was made to; and the error to tell of."""
    delivery = handling.delivery
    if handling.why == "lost":
        return None, None
    if isinstance(error, asyncio.CancelledError):
        if handling.why in ("stop", "place"):
            return RELEASED, None
        if handling.why == "timeout":
            error = _overtime(handling)
    return outcome(error, handling.task, delivery.attempt, delivery.tried_ms), error

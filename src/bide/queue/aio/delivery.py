# unasync: ../sync/delivery.py
"""A delivery: a message with its lease, and the ways to end it."""

import time
from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import Any

from bide.clock import moment
from bide.core.backoff import DEFAULT
from bide.core.times import check_longest, duration_ms, lease_ms
from bide.engines.aio import AsyncEngine
from bide.engines.base import End, Ended, Verdict
from bide.errors import LeaseLost
from bide.logs import Log
from bide.queue.batching import AsyncBatching
from bide.queue.deliveries import STOPS, Internals, Raised, depends_on, planned_of
from bide.raised import error_text, readable
from bide.types import Duration

_log = Log("bide.delivery")


class AsyncDelivery:
    """A message that you hold until its lease ends. End it once: with one of the methods, or at the end of its `with` block.

    Each method raises LeaseLost if this delivery has ended, or if another receiver has the message.
    """

    __slots__ = ("__weakref__", "_engine", "_internals", "_settles")

    def __init__(self, internals: Internals, engine: AsyncEngine, settles: AsyncBatching[End, Ended]) -> None:
        self._internals = internals
        self._engine = engine
        self._settles = settles

    @property
    def expired(self) -> bool:
        """In a handler: its timeout has passed, or its lease was lost, and it should stop."""
        inside = self._internals
        return inside.expired or (inside.deadline is not None and time.monotonic() >= inside.deadline)

    @property
    def body(self) -> Any:
        return self._internals.body

    @property
    def id(self) -> str:
        return self._internals.claimed.id

    @property
    def topic(self) -> str:
        return self._internals.claimed.topic

    @property
    def key(self) -> str | None:
        return self._internals.claimed.key

    @property
    def headers(self) -> Mapping[str, str]:
        return self._internals.claimed.headers

    @property
    def due(self) -> int:
        return self._internals.claimed.due

    @property
    def due_at(self) -> datetime:
        return moment(self._internals.claimed.due)

    @property
    def planned_at(self) -> datetime | None:
        """The instant that a schedule has planned this message for; None for a message that was sent otherwise."""
        planned = planned_of(self._internals.claimed.headers)
        return None if planned is None else moment(planned)

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The ids of the messages that this message has waited for, with `depends_on=`."""
        return depends_on(self._internals.claimed.headers)

    @property
    def attempt(self) -> int:
        return self._internals.claimed.attempt

    @property
    def max_attempts(self) -> int:
        return self._internals.most

    @property
    def token(self) -> str:
        """The fencing token. It rises with each delivery of the message, compared as text."""
        return self._internals.claimed.token

    @property
    def lateness(self) -> float:
        """Seconds from the due time to this delivery, by the engine's clock."""
        return (self._internals.now - self._internals.claimed.due) / 1000

    async def ack(self, *, connection: object | None = None) -> None:
        """End the message: its work is done.

        connection: join the caller's transaction, if the engine can. The work and the ack are then committed together. If this
        raises LeaseLost, roll back: another receiver has the message and does the work. After a rollback, the delivery is still
        held, but its lease is not renewed any more: the message comes back when that ends, or call one of these methods again.
        """
        await self._end("done", connection=connection)

    async def retry(self, delay: Duration | None = None, *, error: object = None, connection: object | None = None) -> None:
        """Try again after `delay`, or after a delay that grows with each attempt. After its last attempt, bury the message.

        connection: as in `ack`.
        """
        wait = DEFAULT(self._internals.claimed.attempt) if delay is None else self._wait(delay)
        await self._end("retry", wait, error, connection)

    async def release(self, delay: Duration = 0, *, connection: object | None = None) -> None:
        """Give the message back. This delivery does not count as an attempt.

        connection: as in `ack`.
        """
        await self._end("release", self._wait(delay), connection=connection)

    async def bury(self, reason: str, *, connection: object | None = None) -> None:
        """Make the message a dead letter now.

        connection: as in `ack`.
        """
        await self._end("dead", 0, reason, connection)

    async def extend(self, lease: Duration) -> None:
        """Extend the lease: it ends this long from now.

        Where bide renews the lease, as for handlers and in `listen`, it lasts at least this long, and is renewed after that as
        long as the message is yours. There, this never makes it end sooner than it does by itself.
        """
        wanted, inside = lease_ms(lease), self._internals
        if inside.kept is not None:
            wanted = inside.kept(inside.hold, wanted)
        [held] = await self._engine.extend([inside.hold], wanted)
        if not held:
            inside.mark_ended()
            raise self._lost("extend")

    def _wait(self, delay: Duration) -> int:
        wait = duration_ms(delay)
        check_longest(wait, self._engine.capabilities.max_delay)
        return wait

    async def _end(self, verdict: Verdict, delay: int = 0, error: object = None, connection: object | None = None) -> None:
        inside = self._internals
        inside.ending = True
        try:
            raised = Raised(readable(error)) if isinstance(error, BaseException) else None
            end = inside.end(verdict, delay, None if error is None else error_text(error), raised=raised)
            if connection is None:
                answer = await self._settles.add(end)
            else:
                [answer] = await self._engine.settle([end], connection=connection)
        except BaseException:
            inside.ending = False
            raise
        inside.mark_ended()
        if answer == "lost":
            raise self._lost(verdict)

    def _lost(self, what: str) -> LeaseLost:
        return LeaseLost(
            f"{what} came too late for message {self.id}: this delivery had ended, or its lease had and the message was "
            "taken back. Nothing was changed. If work takes longer than its lease, use a longer one, extend(), or listen()."
        )

    async def __aenter__(self) -> "AsyncDelivery":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Ack the message. After an Exception, log it, retry the message later, and suppress the exception.

        A cancellation or Ctrl-C gives the message back and is passed on. If the block has ended the delivery, nothing happens
        here. If the lease was lost in the meantime, that is logged.
        """
        error = None if error is None else readable(error)
        handled = isinstance(error, Exception)
        if handled:
            _log.error("Message %s of %s failed in attempt %d", self.id, self.topic, self.attempt, exc_info=error)
        if self._internals.ended:
            return handled
        try:
            if error is None:
                await self.ack()
            elif isinstance(error, STOPS):
                await self.release()
            else:
                await self.retry(error=error)
        except LeaseLost as lost:
            _log.warning("%s", lost)
        return handled

    def __del__(self) -> None:
        inside = self._internals
        if inside.on_drop is not None and not inside.ended:
            inside.on_drop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.topic}, attempt {self.attempt}>"

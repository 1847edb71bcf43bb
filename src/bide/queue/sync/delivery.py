# Generated from ../aio/delivery.py by tools/unasync.py; change that file instead.
"""A delivery: a message with its lease, and the ways to end it."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any

from bide.clock import moment
from bide.core.backoff import DEFAULT
from bide.core.codec import JSON
from bide.core.times import check_longest, duration_ms, lease_ms
from bide.engines.base import Claimed, End, Ended, Hold, Verdict
from bide.engines.sync import Engine
from bide.errors import LeaseLost
from bide.logs import Log
from bide.queue.batching import Batching
from bide.queue.deliveries import STOPS, UNREAD, Noted, Raised, depends_on, planned_of
from bide.raised import error_text, readable
from bide.types import Duration

_log = Log("bide.delivery")


class Delivery:
    """A message that you hold until its lease ends. End it once: with one of the methods, or at the end of its `with` block.

    Each method raises LeaseLost if this delivery has ended, or if another receiver has the message.
    """

    returned: Any  # by its handler; there is none before, and only of tasks that keep it

    __slots__ = (
        "__weakref__",
        "_body",
        "_engine",
        "_expired",
        "_on_drop",
        "_on_end",
        "_settles",
        "arguments",
        "at_work",
        "claimed",
        "deadline",
        "ended",
        "ending",
        "hold",
        "kept",
        "most",
        "now",
        "returned",
    )

    def __init__(
        self,
        claimed: Claimed,
        body: Any,
        now: int,
        engine: Engine,
        settles: Batching[End, Ended],
        arguments: dict[str, Any] | None = None,
    ) -> None:
        """`arguments`: of its handler, where these were read from JSON and its body was not."""
        self._body: Any = body
        self.arguments: dict[str, Any] | None = arguments
        self.ended: bool = False  # by one of the verbs, or because its lease was seen to be lost
        self.ending: bool = False  # one of the verbs is on its way, and its answer will tell if the lease was lost
        self.deadline: float | None = None  # in a handler: when its timeout has passed, by time.monotonic()
        self._expired = False
        self.claimed: Claimed = claimed
        self.most: int = claimed.max_attempts  # or as many as its task gives it
        self.hold: Hold = Hold(claimed.topic, claimed.id, claimed.token)  # as an engine identifies the delivery
        self.kept: Callable[[Hold, int], int] | None = None  # of a lease that is renewed: for how long it is to be extended
        self.now: int = now
        self.at_work: float | None = None  # since when, by time.monotonic(), if somebody listens to events
        self._engine = engine
        self._settles = settles
        self._on_end: Callable[[], None] | None = None
        self._on_drop: Callable[[], None] | None = None

    @property
    def expired(self) -> bool:
        """In a handler: its timeout has passed, or its lease was lost, and it should stop."""
        return self._expired or (self.deadline is not None and time.monotonic() >= self.deadline)

    @expired.setter
    def expired(self, value: bool) -> None:
        self._expired = value

    @property
    def body(self) -> Any:
        if self._body is UNREAD:
            self._body = JSON.decode(self.claimed.body)
        return self._body

    @property
    def id(self) -> str:
        return self.claimed.id

    @property
    def topic(self) -> str:
        return self.claimed.topic

    @property
    def key(self) -> str | None:
        return self.claimed.key

    @property
    def headers(self) -> Mapping[str, str]:
        return self.claimed.headers

    @property
    def due(self) -> int:
        return self.claimed.due

    @property
    def due_at(self) -> datetime:
        return moment(self.claimed.due)

    @property
    def planned_at(self) -> datetime | None:
        """The instant that a schedule has planned this message for; None for a message that was sent otherwise."""
        planned = planned_of(self.claimed.headers)
        return None if planned is None else moment(planned)

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The ids of the messages that this message has waited for, with `depends_on=`."""
        return depends_on(self.claimed.headers)

    @property
    def attempt(self) -> int:
        return self.claimed.attempt

    @property
    def max_attempts(self) -> int:
        return self.most

    @property
    def token(self) -> str:
        """The fencing token. It rises with each delivery of the message, compared as text."""
        return self.claimed.token

    @property
    def lateness(self) -> float:
        """Seconds from the due time to this delivery, by the engine's clock."""
        return (self.now - self.claimed.due) / 1000

    @property
    def tried_ms(self) -> int:
        """Milliseconds from the message's first attempt to this delivery; 0 in the first. Releases do not change it."""
        return 0 if self.claimed.began is None else self.now - self.claimed.began

    def ack(self, *, connection: object | None = None) -> None:
        """End the message: its work is done.

        connection: join the caller's transaction, if the engine can. The work and the ack are then committed together. If this
        raises LeaseLost, roll back: another receiver has the message and does the work. After a rollback, the delivery is still
        held, but its lease is not renewed any more: the message comes back when that ends, or call one of these methods again.
        """
        self._end("done", connection=connection)

    def retry(self, delay: Duration | None = None, *, error: object = None, connection: object | None = None) -> None:
        """Try again after `delay`, or after a delay that grows with each attempt. After its last attempt, bury the message.

        connection: as in `ack`.
        """
        wait = DEFAULT(self.claimed.attempt) if delay is None else self._wait(delay)
        self._end("retry", wait, error, connection)

    def release(self, delay: Duration = 0, *, connection: object | None = None) -> None:
        """Give the message back. This delivery does not count as an attempt.

        connection: as in `ack`.
        """
        self._end("release", self._wait(delay), connection=connection)

    def bury(self, reason: str, *, connection: object | None = None) -> None:
        """Make the message a dead letter now.

        connection: as in `ack`.
        """
        self._end("dead", 0, reason, connection)

    def extend(self, lease: Duration) -> None:
        """Extend the lease: it ends this long from now.

        Where bide renews the lease, as for handlers and in `listen`, it lasts at least this long, and is renewed after that as
        long as the message is yours. There, this never makes it end sooner than it does by itself.
        """
        wanted = lease_ms(lease)
        if self.kept is not None:
            wanted = self.kept(self.hold, wanted)
        [held] = self._engine.extend([self.hold], wanted)
        if not held:
            self.mark_ended()
            raise self._lost("extend")

    def _wait(self, delay: Duration) -> int:
        wait = duration_ms(delay)
        check_longest(wait, self._engine.capabilities.max_delay)
        return wait

    def _end(self, verdict: Verdict, delay: int = 0, error: object = None, connection: object | None = None) -> None:
        self.ending = True
        try:
            raised = Raised(readable(error)) if isinstance(error, BaseException) else None
            end = self.end(verdict, delay, None if error is None else error_text(error), raised=raised)
            if connection is None:
                answer = self._settles.add(end)
            else:
                [answer] = self._engine.settle([end], connection=connection)
        except BaseException:
            self.ending = False
            raise
        self.mark_ended()
        if answer == "lost":
            raise self._lost(verdict)

    def _lost(self, what: str) -> LeaseLost:
        return LeaseLost(
            f"{what} came too late for message {self.id}: this delivery had ended, or its lease had and the message was "
            "taken back. Nothing was changed. If work takes longer than its lease, use a longer one, extend(), or listen()."
        )

    def end(
        self,
        verdict: Verdict,
        delay: int = 0,
        error: str | None = None,
        aside: bool = False,
        called: bool = True,
        anew: bool = False,
        *,
        raised: Raised | None = None,
    ) -> End:
        """What an engine takes to end this delivery; of one that failed, with a record of the attempt.

        A delay that is too long for the engine becomes its longest: what a handler has decided must not fail now.
        """
        claimed = self.claimed
        if verdict == "retry" and claimed.attempt >= self.most:  # the engine may know of more
            verdict = "dead"
        noted = None if self.at_work is None else Noted(claimed, self.now, time.monotonic() - self.at_work)
        if verdict == "done":
            return End(claimed.topic, claimed.id, claimed.token, verdict, noted=noted)
        delay = min(delay, self._engine.capabilities.max_delay)
        began = trace = None
        put_off = verdict == "release" and delay and called and not aside
        if verdict == "retry" or put_off:  # else it is as if it had not been received
            began = self.now if claimed.began is None or anew else claimed.began
        if verdict in ("retry", "dead"):
            trace = (raised or Raised(None)).record(claimed.attempt, self.now, error)
        attempts = self.most if verdict == "retry" and self.most > claimed.max_attempts else None
        return End(claimed.topic, claimed.id, claimed.token, verdict, delay, error, aside, began, trace, attempts, noted)

    def on_end(self, tell: Callable[[], None], dropped: Callable[[], None]) -> None:
        """Call `tell` once when this delivery ends, or `dropped` if it is dropped without being ended.

        The garbage collector calls `dropped`, in any thread and at any time, so it must take no lock.
        """
        self._on_end, self._on_drop = tell, dropped

    def mark_ended(self) -> None:
        """Mark the delivery as ended or lost, so that its lease is no longer renewed."""
        self.ended = True
        on_end, self._on_end, self._on_drop = self._on_end, None, None
        if on_end is not None:
            on_end()

    def __enter__(self) -> "Delivery":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        """Ack the message. After an Exception, log it, retry the message later, and suppress the exception.

        A cancellation or Ctrl-C gives the message back and is passed on. If the block has ended the delivery, nothing happens
        here. If the lease was lost in the meantime, that is logged.
        """
        error = None if error is None else readable(error)
        handled = isinstance(error, Exception)
        if handled:
            _log.error("Message %s of %s failed in attempt %d", self.id, self.topic, self.attempt, exc_info=error)
        if self.ended:
            return handled
        try:
            if error is None:
                self.ack()
            elif isinstance(error, STOPS):
                self.release()
            else:
                self.retry(error=error)
        except LeaseLost as lost:
            _log.warning("%s", lost)
        return handled

    def __del__(self) -> None:
        if self._on_drop is not None and not self.ended:
            self._on_drop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.topic}, attempt {self.attempt}>"

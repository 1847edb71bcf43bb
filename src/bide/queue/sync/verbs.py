# Generated from ../aio/verbs.py by tools/unasync.py; change that file instead.
"""The verbs for messages, as users call them: arguments are checked, engines are asked, answers are unwrapped."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from bide.core import options
from bide.core.backoff import USUAL, Backoff
from bide.core.when import duration_ms, lease_ms
from bide.engines.base import MAX_BATCH
from bide.errors import BadMessage, ConfigError, EngineError, Exists, PartlySent
from bide.queue.outgoing import move, ref
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.receiving import listen
from bide.queue.sync.task import Task
from bide.queue.sync.topics import Topics
from bide.queue.tasks.bound import P, R
from bide.queue.tasks.definition import Definition, Unknown
from bide.types import (
    CancelResult,
    Duration,
    IfExists,
    Outgoing,
    Priority,
    RescheduleResult,
    SendOptions,
    Sent,
)


class Verbs(Topics):
    """All that Queue can do."""

    def send(
        self,
        topic: str,
        body: object = None,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        if_exists: IfExists = "keep",
        priority: Priority = "normal",
        expires_in: Duration | None = None,
        max_attempts: int | None = None,
        headers: Mapping[str, str] | None = None,
        operation: str | None = None,
        connection: object | None = None,
    ) -> Sent:
        """Have a message delivered at a time: now, after a `delay`, or `at` an aware datetime.

        key: your name for it while it has not ended; `if_exists` says what happens when one has it already.
        expires_in: so long after its due time it is dropped if nobody took it. max_attempts: 3 unless you say so.
        operation: sending again with the same one within 10 minutes gives the first answer; OutcomeUnknown carries
        the one to use. connection: joins the caller's transaction, where the engine can.

        Raises BadMessage for what can't be sent, Exists with if_exists="error", EngineError when the engine fails.
        """
        new = self._setup.envelope.message(
            topic,
            body,
            self._setup.now_ms(),
            delay=delay,
            at=at,
            key=key,
            if_exists=if_exists,
            priority=priority,
            expires_in=expires_in,
            max_attempts=max_attempts,
            headers=headers,
            operation=operation,
        )
        engine = self._engine()
        if connection is None:
            sent = self._puts.add(new)
        else:
            [sent] = engine.put([new], connection=connection)
        if sent.outcome == "exists":
            raise Exists(f"Message {sent.id} of {topic} has the key {key!r} and has not ended.", sent)
        return sent

    def send_many(
        self,
        topic: str,
        items: Iterable[Outgoing | object],
        *,
        operation: str | None = None,
        connection: object | None = None,
    ) -> list[Sent]:
        """Send bodies, or Outgoing(…) with options of their own; each is answered for itself, in order.

        All are checked before the first is sent. They go in parts of 1,000, each whole or not at all; when a later
        part fails, PartlySent has what was accepted, and sending all again with the same `operation` repeats nothing.
        With `connection=`, all are part of the caller's transaction.
        """
        new = self._setup.envelope.messages(topic, items, self._setup.now_ms(), operation)
        engine = self._engine()
        sent: list[Sent] = []
        for first in range(0, len(new), MAX_BATCH):
            try:
                sent += engine.put(new[first : first + MAX_BATCH], connection=connection)
            except (EngineError, BadMessage) as error:
                if not sent:
                    raise
                raise PartlySent(f"{len(sent):,} of {len(new):,} messages were accepted, then: {error}", sent, error) from error
        return sent

    def cancel(
        self,
        message: str | Sent | None = None,
        *,
        topic: str | None = None,
        key: str | None = None,
        connection: object | None = None,
    ) -> CancelResult:
        """End a message that is pending, by its id or by topic and key. CANCELLED: it will never be delivered.

        connection: joins the caller's transaction, where the engine can; CANCELLED is then true from its commit on.
        """
        which = ref(message, topic, key)
        engine = self._engine()
        if connection is None:
            return self._cancels.add(which)
        return engine.cancel([which], connection=connection)[0]

    def reschedule(
        self,
        message: str | Sent | None = None,
        *,
        topic: str | None = None,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        connection: object | None = None,
    ) -> RescheduleResult:
        """Give a pending message a new time. MOVED: it is due then, and only then.

        connection: joins the caller's transaction, where the engine can; MOVED is then true from its commit on.
        """
        new = move(ref(message, topic, key), delay, at, self._setup.now_ms())
        engine = self._engine()
        if connection is None:
            return self._moves.add(new)
        return engine.reschedule([new], connection=connection)[0]

    # receiving

    def receive(self, *topics: str, limit: int = 1, wait: Duration = 0, lease: Duration = "30s") -> list[Delivery]:
        """Take up to `limit` messages that are due; with `wait`, sleep up to so long for the first.

        You hold them for `lease`, and nobody renews it: end each before that, or extend() it.
        """
        names = options.topics(topics)
        most, held, patience = options.count(limit, "limit", MAX_BATCH), lease_ms(lease), duration_ms(wait, "wait")
        intake = self._taking()
        return intake.take(names, most, held, patience / 1000)

    def listen(self, *topics: str, limit: int = 10, lease: Duration = "15s") -> Generator[Delivery, None, None]:
        """Messages as they fall due, for ever: `for d in queue.listen("t"): with d: …`

        At most `limit` are held at once. A lease is renewed, by a thread, until its delivery ends or is dropped.
        """
        names = options.topics(topics)
        return listen(self._taking, names, options.count(limit, "limit", MAX_BATCH), lease_ms(lease))

    def ack_many(self, deliveries: Iterable[Delivery], *, connection: object | None = None) -> list[bool]:
        """Ack a batch in one call. False for a delivery that had ended or whose lease was lost: nothing changed there.

        connection: joins the caller's transaction, where the engine can, as in `Delivery.ack`.
        """
        each = list(deliveries)
        engine = self._engine()
        acked: list[bool] = []
        for first in range(0, len(each), MAX_BATCH):
            part = each[first : first + MAX_BATCH]
            answers = engine.settle([delivery.end("done") for delivery in part], connection=connection)
            for delivery in part:
                delivery.mark_ended()
            acked += [answer != "lost" for answer in answers]
        return acked

    # tasks

    def task(
        self,
        topic: str | None = None,
        *,
        aliases: Sequence[str] = (),
        max_attempts: int = options.MAX_ATTEMPTS,
        backoff: Backoff = USUAL,
        timeout: Duration | None = None,
        unknown: Unknown = "retry",
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Make the function below the handler of a topic: `@queue.task("order.cancel")`.

        A worker calls it, async or not, with the arguments that were sent. Without a topic it is "module.function".
        aliases: further topics that it handles, such as a name it had before. backoff: how long to wait between
        attempts, as in exponential("1s", cap="10m"), or a function from the number of the attempt that failed to a wait.
        timeout: how long an attempt may take; none unless given. unknown: what becomes of a message with arguments that
        the function has not got. "retry": another worker may run a newer release, so it is a failed attempt. "ignore":
        they are dropped.

        Raises ConfigError for a function that can't be a task, and when the topic has another function already.
        """

        if callable(topic):
            raise ConfigError("Write @queue.task() with parentheses, or with a topic: @queue.task('order.cancel').")

        def decorate(function: Callable[P, R]) -> Task[P, R]:
            definition = Definition(
                function,
                topic=topic,
                aliases=aliases,
                max_attempts=max_attempts,
                backoff=backoff,
                timeout=timeout,
                unknown=unknown,
            )
            return Task(self, self._setup.tasks.add(definition))

        return decorate

    def _bound(self, definition: Definition, chosen: SendOptions) -> Task[..., Any]:
        """A task of another queue, to be sent through this one."""
        return Task(self, definition, chosen)

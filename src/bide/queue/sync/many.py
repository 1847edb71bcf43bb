# Generated from ../aio/many.py by tools/unasync.py; change that file instead.
"""The verbs for many messages at once, for sends that nobody waits for, and for kept results."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Never

from bide.blocking import Apart
from bide.core.backoff import DEFAULT
from bide.core.times import check_longest, duration_ms
from bide.engines.base import End, Ended
from bide.errors import BadOption, ConfirmTimeout, OutcomeUnknown
from bide.queue.answers import Collected
from bide.queue.deliveries import Internals, all_internals
from bide.queue.envelope import ref
from bide.queue.results import which
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.parts import in_parts
from bide.queue.sync.session import Session
from bide.queue.tasks.habits import MESSAGES, no_option
from bide.raised import error_text
from bide.types import CancelResult, Duration, Flushed, IfExists, Info, Priority, Sent


class ManyVerbs:
    """What Queue can do with many messages at once."""

    session: Session

    def ack_many(self, deliveries: Iterable[Delivery], *, connection: object | None = None) -> list[bool]:
        """Ack deliveries. The result is False for one that had ended, or whose lease was lost.

        connection: join the caller's transaction, if the engine can, as in `Delivery.ack`.
        """
        known = all_internals(deliveries, "ack_many")
        return self._end([(each, each.end("done")) for each in known], connection)

    def retry_many(
        self,
        deliveries: Iterable[Delivery],
        delay: Duration | None = None,
        *,
        error: object = None,
        connection: object | None = None,
    ) -> list[bool]:
        """Try deliveries again after `delay`, or each after a delay that grows with its attempts, as in `Delivery.retry`. The
        result is False for one that had ended, or whose lease was lost.
        """
        known, wait = all_internals(deliveries, "retry_many"), None if delay is None else duration_ms(delay)
        check_longest(wait or 0, self.session.setup.source.capabilities.max_delay)
        why = error_text(error)
        ends = [(each, each.end("retry", DEFAULT(each.claimed.attempt) if wait is None else wait, why)) for each in known]
        return self._end(ends, connection)

    def cancel_many(self, messages: Iterable[str | Sent | Info], *, connection: object | None = None) -> list[CancelResult]:
        """Cancel pending messages, by their ids: the result of each, in order.

        connection: join the caller's transaction, if the engine can. The results take effect with its commit.
        """
        if isinstance(messages, str | bytes):  # each of its characters would be an id that nothing has
            raise BadOption(f"messages is a {type(messages).__name__}. Give a list: cancel_many([sent, 'an id']).")
        return self.session.cancel_many([ref(each, None, None) for each in messages], connection)

    def _end(self, ends: Sequence[tuple[Internals, End]], connection: object | None) -> list[bool]:
        self.session.open()  # also for none: a closed queue says so

        def settle(part: Sequence[tuple[Internals, End]]) -> list[bool]:
            try:
                answers: Sequence[Ended | None] = self.session.settle([end for _, end in part], connection)
            except OutcomeUnknown as error:
                answers, all_done = error.answers or [None] * len(part), isinstance(error, ConfirmTimeout)
                error.answers, error.done = _held(answers), _held(error.done)
                for (delivery, _), answer in zip(part, answers, strict=True):
                    if all_done or answer is not None:
                        delivery.mark_ended()
                raise
            for delivery, _ in part:
                delivery.mark_ended()
            return [answer != "lost" for answer in answers]

        return in_parts(settle, ends, Collected(len(ends)))


def _held(answers: Sequence[object | None]) -> list[bool | None]:
    """Whether each lease was still held, as far as is known."""
    return [None if answer is None else answer != "lost" for answer in answers]


class LaterVerbs:
    """What Queue can do in the background."""

    session: Session

    def later(
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
        max_wait: Duration | None = None,
        unique_for: Duration | None = None,
        **others: Never,
    ) -> None:
        """Send a message in the background, and return at once: for code that must not wait, also when the engine is away.

        The options are those of `send`. A delay counts from this call. A thread sends what was taken, all that has gathered in
        one call, and again after an error; nothing is sent twice. Until then it is in this process only: `flush`, `close` and
        the normal end of the process send the rest, and log what could not be sent in five seconds. A process that is killed
        loses it.

        Raises BadMessage for an argument that can't be used, QueueFull when 10,000 messages or 64 MiB wait already, and
        Unavailable when the queue is closed or no thread can be started.
        """
        if others:
            raise BadOption(no_option(min(others), MESSAGES))
        new = self.session.setup.envelope.message(
            topic,
            body,
            delay=delay,
            at=at,
            key=key,
            if_exists=if_exists,
            priority=priority,
            expires_in=expires_in,
            max_attempts=max_attempts,
            headers=headers,
            operation=operation,
            max_wait=max_wait,
            unique_for=unique_for,
        )
        self.session.later(new)

    def flush(self, wait: Duration = "5s") -> Flushed:
        """Wait until all that `later` took has been sent, at most so long. Returns how many wait, were sent, and were lost."""
        seconds = duration_ms(wait, "wait") / 1000
        return Apart(lambda: self.session.setup.later.flush(seconds)).done()


class ResultVerbs:
    """What Queue can do with the results that tasks with keep= return."""

    session: Session

    def result(self, message: str | Sent, *, timeout: Duration | None = None) -> Any:
        """Return what the task returned for a message, of a task with `keep=`. Wait until it is done, at most for `timeout`.

        - timeout: 0 looks once; without one, wait as long as it takes.

        Raises ResultPending if the message is not done in time, ResultFailed if it is a dead letter, ResultCancelled if it was
        cancelled or purged or has expired, ResultNotKept if what the task returned was too large, and ResultUnknown if there
        never was such a message or its time is over. All of them are NoResult. Raises BadOption if this queue has the message's
        task, and that has no `keep=`.
        """
        return self.session.result(which(message), timeout)

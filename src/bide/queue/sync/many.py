# Generated from ../aio/many.py by tools/unasync.py; change that file instead.
"""The queue's verbs for many messages at once: a call for each thousand, and an answer for each message."""

from collections.abc import Iterable, Sequence

from bide.core.backoff import DEFAULT
from bide.core.times import check_longest, duration_ms
from bide.engines.base import End, Ended
from bide.errors import BadOption, ConfirmTimeout, OutcomeUnknown
from bide.queue.collected import Collected
from bide.queue.envelope import ref
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.parts import in_parts
from bide.queue.sync.session import Session
from bide.raised import error_text
from bide.types import CancelResult, Duration, Info, Sent


class ManyVerbs:
    """What Queue can do with many messages at once."""

    session: Session

    def ack_many(self, deliveries: Iterable[Delivery], *, connection: object | None = None) -> list[bool]:
        """Ack deliveries. The result is False for one that had ended, or whose lease was lost.

        connection: join the caller's transaction, if the engine can, as in `Delivery.ack`.
        """
        each = list(deliveries)
        return self._end(each, [delivery.end("done") for delivery in each], connection)

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
        each, wait = list(deliveries), None if delay is None else duration_ms(delay)
        check_longest(wait or 0, self.session.setup.source.capabilities.max_delay)
        why = error_text(error)
        ends = [delivery.end("retry", DEFAULT(delivery.attempt) if wait is None else wait, why) for delivery in each]
        return self._end(each, ends, connection)

    def cancel_many(self, messages: Iterable[str | Sent | Info], *, connection: object | None = None) -> list[CancelResult]:
        """Cancel pending messages, by their ids: the result of each, in order.

        connection: join the caller's transaction, if the engine can. The results take effect with its commit.
        """
        if isinstance(messages, str | bytes):  # each of its characters would be an id that nothing has
            raise BadOption(f"messages is a {type(messages).__name__}. Give a list: cancel_many([sent, 'an id']).")
        return self.session.cancel_many([ref(each, None, None) for each in messages], connection)

    def _end(self, deliveries: list[Delivery], ends: list[End], connection: object | None) -> list[bool]:
        self.session.open()  # also for none: a closed queue says so

        def settle(part: Sequence[tuple[Delivery, End]]) -> list[bool]:
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

        return in_parts(settle, list(zip(deliveries, ends, strict=True)), Collected(len(ends)))


def _held(answers: Sequence[object | None]) -> list[bool | None]:
    """Whether each lease was still held, as far as is known."""
    return [None if answer is None else answer != "lost" for answer in answers]

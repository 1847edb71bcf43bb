"""Operations: each is recorded before it begins, and again once its outcome is known."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import msgspec

from bide.core.options import MAX_ATTEMPTS
from bide.core.times import duration_ms, instant_ms
from bide.engines.base import MAX_BATCH, Claim, Claimed, End, Ended, Hold
from bide.errors import (
    BadMessage,
    ConfigError,
    EngineError,
    Exists,
    LeaseLost,
    OutcomeUnknown,
    PartlySent,
    QueueFull,
    Unavailable,
    Unsupported,
)
from bide.prove.record import RecordLog, Result
from bide.queue import AsyncDelivery, Delivery
from bide.queue.deliveries import planned_of
from bide.queue.envelope import with_dependencies
from bide.types import CancelResult, Duration, Outgoing, RescheduleResult, Sent

T = TypeVar("T", Delivery, AsyncDelivery)
R = TypeVar("R", CancelResult, RescheduleResult)
A = TypeVar("A", Ended, bool)
C = TypeVar("C", bound=int)
NOTHING_DONE = (BadMessage, ConfigError, Exists, LeaseLost, QueueFull, Unavailable, Unsupported)

_encode = msgspec.json.Encoder(order="deterministic", enc_hook=repr, decimal_format="string").encode


def digest(value: object) -> str:
    """The same for two bodies, or for two mappings of headers, that are the same as JSON."""
    return hashlib.blake2b(_encode(value), digest_size=6).hexdigest()


def tag_of(body: Any) -> str | None:
    """The tag that a send put into its body; of several that were merged, the first one's."""
    if isinstance(body, list):
        return tag_of(body[0]) if body else None
    tag = body.get("tag") if isinstance(body, Mapping) else None
    return tag if isinstance(tag, str) else None


def tags_of(body: Any) -> list[str] | None:
    """Those of all sends that were merged into a body."""
    return [tag_of(each) or "" for each in body] if isinstance(body, list) else None


def ms(duration: Duration | None) -> int | None:
    return None if duration is None else duration_ms(duration)


def held(delivery: Claimed | End | Hold | Delivery | AsyncDelivery) -> dict[str, Any]:
    """The fields that name a delivery."""
    return {"id": delivery.id, "topic": delivery.topic, "token": delivery.token}


class Operation:
    """A context manager. Without an `ok`, the outcome is unknown, or `fail` if the error promises that nothing was done."""

    def __init__(self, log: RecordLog, op: str, **fields: Any) -> None:
        self._log = log
        self._op = op
        self._ended = False
        self.call: int = log.new_call()
        log.write(op, "invoke", self.call, **fields)

    def end(self, result: Result, **fields: Any) -> None:
        """Record the outcome. Only the first call counts."""
        if not self._ended:
            self._ended = True
            self._log.write(self._op, result, self.call, **fields)

    def end_by(self, error: BaseException | None) -> None:
        failed = isinstance(error, NOTHING_DONE)
        self.end("fail" if failed else "unknown", outcome=None if error is None else type(error).__name__)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end_by(error)


class SendOperation(Operation):
    """Send its `body`, which holds the tag."""

    def __init__(
        self,
        log: RecordLog,
        topic: str,
        tag: str,
        message: Outgoing,
        operation: str | None = None,
        batch: int | None = None,
        needs: Sequence[str] | None = None,
    ) -> None:
        self.tag = tag
        self.message = message
        headers = message.headers or {}
        super().__init__(
            log,
            "send",
            topic=topic,
            tag=tag,
            key=message.key,
            body=digest(message.body),
            headers=digest(headers if needs is None else with_dependencies(headers, needs)),
            delay=None if message.at is not None else duration_ms(message.delay or 0),
            at=None if message.at is None else instant_ms(message.at),
            expires_in=ms(message.expires_in),
            max_attempts=message.max_attempts or MAX_ATTEMPTS,
            if_exists=None if message.key is None else message.if_exists,
            operation=operation,
            batch=batch,
            needs=needs,
        )

    @property
    def body(self) -> Any:
        return self.message.body

    def ok(self, sent: Sent) -> Sent:
        self.end("ok", id=sent.id, due=sent.due, outcome=sent.outcome)
        return sent


class BatchOperation:
    """The sends of one send_many. Send its `messages`."""

    def __init__(self, sends: Sequence[SendOperation]) -> None:
        self._sends = sends
        self.messages: list[Outgoing] = [each.message for each in sends]

    def ok(self, sent: list[Sent]) -> list[Sent]:
        for each, answer in zip(self._sends, sent, strict=True):
            each.ok(answer)
        return sent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """After PartlySent: what it names was sent, the next part failed with its error, and later parts were not tried."""
        done, tried = 0, len(self._sends)
        if isinstance(error, PartlySent):
            for each, answer in zip(self._sends, error.sent, strict=False):
                each.ok(answer)
            done, error = len(error.sent), error.error
        if isinstance(error, EngineError | BadMessage):
            tried = done + max(MAX_BATCH, len(error.operations) if isinstance(error, OutcomeUnknown) else 0)
        for each in self._sends[done:tried]:
            each.end_by(error)
        for each in self._sends[tried:]:
            each.end("fail", outcome="not tried")


class ChangeOperation(Operation):
    """Cancel or reschedule. An answer that nothing was changed is recorded as `fail`."""

    def ok(self, answer: R) -> R:
        self.end("ok" if answer else "fail", outcome=answer.value)
        return answer


class CallsOperation:
    """Messages that are called by one call of an engine, with an answer for each."""

    def __init__(self, ops: Sequence[ChangeOperation]) -> None:
        self._ops = ops

    def ok(self, answers: list[RescheduleResult]) -> list[RescheduleResult]:
        for op, answer in zip(self._ops, answers, strict=True):
            op.ok(answer)
        return answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for op in self._ops:
            op.end_by(error)


class CountOperation(Operation):
    """Requeue or purge."""

    def ok(self, count: C) -> C:
        self.end("ok", count=int(count))
        return count


class EndOperation(Operation):
    """A call without an answer: it happened, or it raised."""

    def ok(self) -> None:
        self.end("ok")


class SettingClock(Operation):
    """Set the clock of the server."""

    def ok(self, now: int) -> None:
        """now: what the clock shows then, in ms since the epoch."""
        self.end("ok", now=now)


class ReceiveOperation(Operation):
    def __init__(self, log: RecordLog, op: str, *, lease: int, **fields: Any) -> None:
        super().__init__(log, op, lease=lease, **fields)
        self._lease = lease

    def delivered(self, delivery: Delivery | AsyncDelivery) -> None:
        write_delivered(self._log, delivery, self._lease, self.call)

    def ok(self, deliveries: list[T]) -> list[T]:
        """Record each delivery, then the end of the receive."""
        for each in deliveries:
            self.delivered(each)
        self.end("ok", count=len(deliveries))
        return deliveries

    def claimed(self, claim: Claim) -> Claim:
        """The same for a claim of an engine."""
        for each in claim.messages:
            write_claimed(self._log, each, claim.now, self._lease, self.call)
        self.end("ok", count=len(claim.messages))
        return claim


class Each(Generic[A]):
    """One call of an engine for several deliveries, with an answer for each."""

    def __init__(self, ops: Sequence[EndOperation]) -> None:
        self._ops = ops

    def ok(self, answers: list[A]) -> list[A]:
        for op, answer in zip(self._ops, answers, strict=True):
            if answer in ("lost", False):
                op.end("fail", outcome=LeaseLost.__name__)
            else:
                op.ok()
        return answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for op in self._ops:
            op.end_by(error)


class Returned(Operation):
    """A handler that returns something, or a caller that reads it."""

    def ok(self, value: object = None) -> None:
        self.end("ok", value=digest(value))


class HandlerOperation(Returned):
    """A handler at work. An error means that it has not done its work."""

    def end_by(self, error: BaseException | None) -> None:
        self.end("fail", outcome=None if error is None else type(error).__name__)


class Fault(Operation):
    def __init__(self, log: RecordLog, kind: str, what: str) -> None:
        self._kind = kind
        super().__init__(log, "fault", kind=kind, note=what or None)

    def landed(self, observed: str) -> None:
        """The fault took effect. `observed`: how that was seen."""
        self.end("ok", kind=self._kind, note=observed)


def write_delivered(log: RecordLog, delivery: Delivery | AsyncDelivery, lease: int, call: int = 0) -> None:
    now = delivery.due + round(delivery.lateness * 1000)
    _write_delivery(log, delivery, delivery.body, now, lease, call)


def write_claimed(log: RecordLog, claimed: Claimed, now: int, lease: int, call: int = 0, *, again: bool = False) -> None:
    """Record a message that an engine handed out. Its body has to be JSON."""
    _write_delivery(log, claimed, msgspec.json.decode(claimed.body), now, lease, call, again=again)


def _write_delivery(
    log: RecordLog,
    given: Claimed | Delivery | AsyncDelivery,
    body: object,
    now: int,
    lease: int,
    call: int,
    *,
    again: bool = False,
) -> None:
    log.write(
        "deliver",
        "ok",
        call,
        **held(given),
        key=given.key,
        tag=tag_of(body),
        body=digest(body),
        tags=tags_of(body),
        headers=digest(given.headers),
        planned=planned_of(given.headers),
        due=given.due,
        now=now,
        attempt=given.attempt,
        max_attempts=given.max_attempts,
        lease=lease,
        again=again,
    )

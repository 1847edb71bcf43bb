"""One operation under way: written down before it begins, and again when it is known how it ended."""

import hashlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

from bide.engines.base import MAX_BATCH, Claim, Claimed, Ended
from bide.errors import BadMessage, ConfigError, EngineError, Exists, LeaseLost, PartlySent, QueueFull, Unavailable, Unsupported
from bide.queue import AsyncDelivery, Delivery
from bide.testing.history.record import Log, Result
from bide.types import CancelResult, RescheduleResult, Sent

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
    """The tag that a send put into its body."""
    tag = body.get("tag") if isinstance(body, Mapping) else None
    return tag if isinstance(tag, str) else None


def held(delivery: Delivery | AsyncDelivery) -> dict[str, Any]:
    """What a delivery is known by."""
    return {"id": delivery.id, "topic": delivery.topic, "token": delivery.token}


class Operation:
    """A context: left without a word about its end, the operation is unknown, or failed if its error promises that."""

    def __init__(self, log: Log, op: str, call: int | None = None, **fields: Any) -> None:
        self._log = log
        self._op = op
        self._ended = False
        self.call: int = log.new_call() if call is None else call
        log.write(op, "invoke", self.call, **fields)

    def end(self, result: Result, **fields: Any) -> None:
        """Write down how it ended; only the first word counts."""
        if not self._ended:
            self._ended = True
            self._log.write(self._op, result, self.call, **fields)

    def end_by(self, error: BaseException | None) -> None:
        failed = isinstance(error, NOTHING_DONE)
        self.end("fail" if failed else "unknown", outcome=None if error is None else type(error).__name__)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end_by(error)


class Sending(Operation):
    """Its `body` is what to send."""

    def __init__(self, log: Log, call: int, tag: str, body: object, headers: Mapping[str, str], **fields: Any) -> None:
        self.tag = tag
        self.body = body
        super().__init__(log, "send", call, tag=tag, body=digest(body), headers=digest(headers), **fields)

    def ok(self, sent: Sent) -> Sent:
        self.end("ok", id=sent.id, due=sent.due, outcome=sent.outcome)
        return sent


class Batch:
    """The sends of one send_many."""

    def __init__(self, sends: Sequence[Sending]) -> None:
        self._sends = sends
        self.bodies: list[object] = [each.body for each in sends]

    def ok(self, sent: list[Sent]) -> list[Sent]:
        for each, answer in zip(self._sends, sent, strict=True):
            each.ok(answer)
        return sent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """What PartlySent says was sent was, the error behind it is of the part that follows, and no later one was tried."""
        done, tried = 0, len(self._sends)
        if isinstance(error, PartlySent):
            for each, answer in zip(self._sends, error.sent, strict=False):
                each.ok(answer)
            done, error = len(error.sent), error.error
        if isinstance(error, EngineError | BadMessage):
            tried = done + MAX_BATCH
        for each in self._sends[done:tried]:
            each.end_by(error)
        for each in self._sends[tried:]:
            each.end("fail", outcome="not tried")


class Changing(Operation):
    """Cancel or reschedule: when the answer is that nothing was changed, it failed."""

    def ok(self, answer: R) -> R:
        self.end("ok" if answer else "fail", outcome=answer.value)
        return answer


class Counting(Operation):
    """Requeue or purge."""

    def ok(self, count: C) -> C:
        self.end("ok", count=int(count))
        return count


class Ending(Operation):
    """What answers nothing: it happened, or it raised."""

    def ok(self) -> None:
        self.end("ok")


class Receiving(Operation):
    def __init__(self, log: Log, op: str, *, lease: int, **fields: Any) -> None:
        super().__init__(log, op, lease=lease, **fields)
        self._lease = lease

    def delivered(self, delivery: Delivery | AsyncDelivery) -> None:
        write_delivered(self._log, delivery, self._lease, self.call)

    def ok(self, deliveries: list[T]) -> list[T]:
        """What came: all of it is written down before the operation has ended."""
        for each in deliveries:
            self.delivered(each)
        self.end("ok", count=len(deliveries))
        return deliveries


class Claiming(Operation):
    """What an engine is asked to hand out."""

    def __init__(self, log: Log, *, lease: int, **fields: Any) -> None:
        super().__init__(log, "receive", lease=lease, **fields)
        self._lease = lease

    def ok(self, claim: Claim) -> Claim:
        for each in claim.messages:
            write_claimed(self._log, each, claim.now, self._lease, self.call)
        self.end("ok", count=len(claim.messages))
        return claim


class Each(Generic[A]):
    """What an engine is asked to do with several deliveries by one call: each is answered for itself."""

    def __init__(self, ops: Sequence[Ending]) -> None:
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for op in self._ops:
            op.end_by(error)


class Handling(Operation):
    """A handler at work: left by an error, it has not done it."""

    def ok(self) -> None:
        self.end("ok")

    def end_by(self, error: BaseException | None) -> None:
        self.end("fail", outcome=None if error is None else type(error).__name__)


class Fault(Operation):
    def __init__(self, log: Log, kind: str, what: str) -> None:
        self._kind = kind
        super().__init__(log, "fault", kind=kind, note=what or None)

    def landed(self, observed: str) -> None:
        """It took effect: what was seen of it."""
        self.end("ok", kind=self._kind, note=observed)


def write_delivered(log: Log, delivery: Delivery | AsyncDelivery, lease: int, call: int = 0) -> None:
    log.write(
        "deliver",
        "ok",
        call,
        **held(delivery),
        key=delivery.key,
        tag=tag_of(delivery.body),
        body=digest(delivery.body),
        headers=digest(delivery.headers),
        due=delivery.due,
        now=delivery.due + round(delivery.lateness * 1000),
        attempt=delivery.attempt,
        max_attempts=delivery.max_attempts,
        lease=lease,
    )


def write_claimed(log: Log, claimed: Claimed, now: int, lease: int, call: int = 0, *, again: bool = False) -> None:
    """What an engine hands out. The body has to be JSON."""
    body = msgspec.json.decode(claimed.body)
    log.write(
        "deliver",
        "ok",
        call,
        id=claimed.id,
        topic=claimed.topic,
        token=claimed.token,
        key=claimed.key,
        tag=tag_of(body),
        body=digest(body),
        headers=digest(claimed.headers),
        due=claimed.due,
        now=now,
        attempt=claimed.attempt,
        max_attempts=claimed.max_attempts,
        lease=lease,
        again=again,
    )

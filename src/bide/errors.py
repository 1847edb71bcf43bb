"""Every error that bide raises, in one tree.

BideError
├── ConfigError            the configuration is wrong
│   ├── UnknownEngine      the URL's scheme is not an engine
│   ├── MissingExtra       the engine's driver is not installed
│   ├── BadUrl             the URL is not valid
│   └── WrongLoop          an AsyncQueue is used in a second event loop
├── Unsupported            this engine can't do that
├── BadMessage             an argument can't be used; nothing was changed
│   ├── BadTopic
│   ├── BadTime            a delay, time or lease
│   ├── TooLarge           the body is larger than the limit
│   ├── BadBody            the body can't be encoded or decoded
│   └── BadOption          any other argument
├── EngineError            the engine failed
│   ├── Unavailable        not reached, or closed; nothing was done
│   ├── OutcomeUnknown     the answer was lost: it may or may not have happened
│   │   └── ConfirmTimeout done, but its safety was not confirmed in time
│   ├── QueueFull          nothing was stored; the queue or topic can be drained
│   ├── SchemaMismatch     the stored data belongs to another release or program
│   └── PartlySent         a part of a large batch was accepted
├── LeaseLost              this delivery has ended, or another receiver has the message
├── Locked                 somebody else holds the lock
├── LockLost               the lock could not be renewed in time
├── NoResult               a message has no result to give
│   ├── ResultPending      not in time: it is still to be done (a TimeoutError too)
│   ├── ResultFailed       it is a dead letter
│   ├── ResultCancelled    it was cancelled or purged, has expired, or was handled without keep=
│   ├── ResultNotKept      it is done, but what its task returned could not be kept
│   └── ResultUnknown      it never was, or the time for which results are kept is over
└── Exists                 another message holds the key (if_exists="error")
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bide.types import Sent


class BideError(Exception):
    """The base class of all errors."""


class ConfigError(BideError):
    """The queue's configuration is wrong; the text names the setting."""


class UnknownEngine(ConfigError):
    """The URL's scheme is not an engine of this release."""


class MissingExtra(ConfigError):
    """The engine's driver is not installed; the text has the pip command."""


class BadUrl(ConfigError):
    """The URL is not valid."""


class WrongLoop(ConfigError):
    """An AsyncQueue belongs to the event loop that used it first."""


class Unsupported(BideError):
    """This engine can't do that; nothing was changed."""


class BadMessage(BideError, ValueError):
    """An argument can't be used; nothing was changed."""


class BadTopic(BadMessage):
    """A topic is 1 to 128 characters of A-Z a-z 0-9 . _ -"""


class BadTime(BadMessage):
    """A delay, time or lease can't be used."""


class TooLarge(BadMessage):
    """The encoded body is larger than the limit."""


class BadBody(BadMessage):
    """The body can't be encoded, or the stored body can't be decoded."""


class BadOption(BadMessage):
    """Another argument can't be used."""


class EngineError(BideError):
    """The engine failed."""


class Unavailable(EngineError):
    """The engine can't be reached, or the queue is closed; nothing was done."""


class OutcomeUnknown(EngineError):
    """The engine's answer was lost: the change may or may not have happened.

    Send again with `operation`: the engine then acts once at most. For a batch, `operations` has one for each message, in
    order, or "" for one whose result is in `answers`: it was accepted, so don't send it again. On RabbitMQ, which remembers
    no operations, it is None: sending again may send twice.
    """

    def __init__(
        self,
        message: str,
        operation: str | None = None,
        *,
        operations: "Sequence[str]" = (),
        answers: "Sequence[Any]" = (),
        done: "Sequence[Any]" = (),
    ) -> None:
        """`answers`: of a batch of an engine, those of the parts that were done; None for others.

        `done`: the same, with those that were done and not confirmed.
        """
        super().__init__(message)
        self.operation: str | None = operation or (operations[0] if len(operations) == 1 else None)
        self.operations: Sequence[str] = operations
        self.answers: Sequence[Any] = answers
        self.done: Sequence[Any] = done


class ConfirmTimeout(OutcomeUnknown):
    """The change was made, but its safety was not confirmed in time: a failover may undo it. Of a batch, all was done."""


class QueueFull(EngineError):
    """The engine is full, or a topic with `most_pending`, or the buffer of `later`; nothing was stored.

    Stored messages can still be received. Only a PostgreSQL server whose disk is full needs room before.
    """


class SchemaMismatch(EngineError):
    """The stored data belongs to another release or another program."""


class PartlySent(EngineError):
    """A part of a large batch failed: `sent` was accepted, and `error` stopped the rest."""

    def __init__(self, message: str, sent: "Sequence[Sent]", error: BaseException) -> None:
        super().__init__(message)
        self.sent: list[Sent] = list(sent)
        self.error: BaseException = error


class LeaseLost(BideError):
    """This delivery has ended, or another receiver has its message; nothing was changed."""


class Locked(BideError):
    """Somebody else holds the lock `name`.

    remaining: seconds until it is free, unless its holder renews it; None if nobody holds it, and others wait for it.
    retry_after: whole seconds after which to try again, as in HTTP's Retry-After: 1 to 5, since most holders leave earlier.
    """

    def __init__(self, message: str, name: str = "", remaining: float | None = None) -> None:
        super().__init__(message)
        self.name: str = name
        self.remaining: float | None = remaining
        self.retry_after: int = max(1, min(5, math.ceil(remaining or 0)))


class LockLost(BideError):
    """The lock could not be renewed in time: somebody else may have it."""


class NoResult(BideError):
    """A message has no result to give; each of its kinds says why."""


class ResultPending(NoResult, TimeoutError):
    """The message was not done in time: it is still to be done."""


class ResultFailed(NoResult):
    """The message is a dead letter. `error` is that of its last attempt."""

    def __init__(self, message: str, error: str | None) -> None:
        super().__init__(message)
        self.error: str | None = error


class ResultCancelled(NoResult):
    """The message was cancelled or purged, has expired, or was handled by a worker whose task has no keep=."""


class ResultNotKept(NoResult):
    """The message is done, but what its task returned could not be kept: it was too large, or had no form in the codec."""


class ResultUnknown(NoResult):
    """There never was such a message of a task with keep=, or the time for which its result was kept is over."""


class Exists(BideError):
    """Another message holds this key; `sent` is that message."""

    def __init__(self, message: str, sent: "Sent") -> None:
        super().__init__(message)
        self.sent: Sent = sent

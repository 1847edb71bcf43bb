"""Every error that bide raises, in one tree.

BideError
├── ConfigError            the queue can't be made or used this way
│   ├── UnknownEngine      the URL names no engine
│   ├── MissingExtra       the engine's driver is not installed; the text has the pip line
│   ├── BadUrl             the URL can't be read
│   └── WrongLoop          an AsyncQueue met a second event loop
├── Unsupported            this engine can't do that, and does not pretend to
├── BadMessage             something handed to a verb can't be used; nothing was changed
│   ├── BadTopic
│   ├── BadTime            a delay, instant or lease
│   ├── TooLarge           the body is over the limit
│   ├── BadBody            the body can't be encoded or decoded
│   └── BadOption          any other argument
├── EngineError            the engine could not do it
│   ├── Unavailable        not reached, nothing done
│   ├── OutcomeUnknown     it may or may not have happened
│   ├── ConfirmTimeout     done, but not confirmed as safe as was asked
│   ├── QueueFull          the engine takes no more; what it holds can be drained
│   ├── SchemaMismatch     the stored layout belongs to another release or another program
│   └── PartlySent         part of a large batch was accepted
├── LeaseLost              this delivery is no longer yours to end
└── Exists                 the key is taken (if_exists="error")
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bide.types import Sent


class BideError(Exception):
    """The base of them all."""


class ConfigError(BideError):
    """The queue can't be made or used this way."""


class UnknownEngine(ConfigError):
    """The URL names no engine that this release has."""


class MissingExtra(ConfigError):
    """The engine's driver is not installed; the text has the pip line."""


class BadUrl(ConfigError):
    """The URL can't be read."""


class WrongLoop(ConfigError):
    """An AsyncQueue belongs to the event loop that used it first."""


class Unsupported(BideError):
    """This engine can't do that; nothing was done."""


class BadMessage(BideError, ValueError):
    """Something handed to a verb can't be used; nothing was changed."""


class BadTopic(BadMessage):
    """A topic is 1 to 128 characters of A-Z a-z 0-9 . _ -"""


class BadTime(BadMessage):
    """A delay, instant or lease that can't be used."""


class TooLarge(BadMessage):
    """The encoded body is over the limit."""


class BadBody(BadMessage):
    """The body can't be encoded, or what is stored can't be decoded."""


class BadOption(BadMessage):
    """Any other argument that can't be used."""


class EngineError(BideError):
    """The engine could not do it."""


class Unavailable(EngineError):
    """The engine was not reached, or the queue is closed; nothing was done."""


class OutcomeUnknown(EngineError):
    """The answer did not come: it may or may not have happened.

    `operation` is what to send again with: the engine then acts once at most. Of a batch, `operations` has one for each
    message, in its order.
    """

    def __init__(self, message: str, operation: str | None = None, *, operations: "Sequence[str]" = ()) -> None:
        super().__init__(message)
        self.operation: str | None = operation or (operations[0] if len(operations) == 1 else None)
        self.operations: Sequence[str] = operations


class ConfirmTimeout(EngineError):
    """It was done, but not confirmed in time to be as safe as was asked for."""


class QueueFull(EngineError):
    """The engine takes no more; what it holds can still be drained."""


class SchemaMismatch(EngineError):
    """What is stored was laid out by another release or another program."""


class PartlySent(EngineError):
    """A large batch failed on the way: `sent` was accepted, `error` ended the rest."""

    def __init__(self, message: str, sent: "Sequence[Sent]", error: BaseException) -> None:
        super().__init__(message)
        self.sent: list[Sent] = list(sent)
        self.error: BaseException = error


class LeaseLost(BideError):
    """This delivery has ended, or its message was handed to somebody else; nothing was changed."""


class Exists(BideError):
    """A message that has not ended holds this key; `sent` tells which."""

    def __init__(self, message: str, sent: "Sent") -> None:
        super().__init__(message)
        self.sent: Sent = sent

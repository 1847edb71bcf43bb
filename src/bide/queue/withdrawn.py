"""What a cancel has made of messages that waited in an outbox: of one, or of all that have the same key."""

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from bide.engines.base import Ref, Stored
from bide.engines.guard.hooks import BadHook
from bide.errors import BadMessage, BideError, ConfirmTimeout, OutcomeUnknown, QueueFull, Unavailable, Unsupported
from bide.types import CancelResult, Sent

Brought: TypeAlias = Sent | BideError | None  # of one that is handed on: the queue's answer or error, or that it has expired
Told: TypeAlias = CancelResult | BideError
AWAY = (BadHook, QueueFull, Unavailable)  # the queue has taken nothing, but may have it from a relay


class Lot:
    """One message, or all that wait with a key."""

    def __init__(self, which: Ref, waiting: Sequence[Stored]) -> None:
        self.which: Ref = which
        self.waiting: deque[Stored] = deque(waiting)  # in the order in which they were sent
        self.results: list[CancelResult] = []
        self.failed: BideError | None = None
        self.asked: bool = False  # whether it was told what became of it
        self._lost = False
        self._short: BideError | None = None
        self._stays: BideError | None = None

    @property
    def keyed(self) -> bool:
        return self.which.id is None

    @property
    def doubtful(self) -> bool:
        """Whether what waits has to stay, as it can be cancelled again only by its id."""
        return self._lost or (self.failed is not None and not isinstance(self.failed, AWAY))

    def fail(self, error: BideError) -> None:
        """The queue's engine did."""
        self.failed = self.failed or error

    def lose(self, error: BideError) -> None:
        """The outbox failed."""
        self._lost = True
        self.failed = self.failed or error

    def fall_short(self, error: BideError) -> None:
        """What was done is not confirmed."""
        self._short = self._short or error

    def stay(self, error: BideError) -> None:
        """What was cancelled in the queue could not be taken out of the outbox."""
        self._stays = self._stays or error

    def told(self) -> Told:
        """What is pending decides, as in the queue, where one with its key may run."""
        order = (CancelResult.CANCELLED, CancelResult.RUNNING, CancelResult.DEAD)
        result = next((each for each in order if each in self.results), CancelResult.GONE)
        if self.failed is not None:
            return self._failure(self.failed, result)
        if self._stays is not None and result is CancelResult.CANCELLED:
            text = f"It is cancelled in the queue, but it could not be taken out of the outbox: cancel it again. {self._stays}"
            return _caused(OutcomeUnknown(text, done=[result]), self._stays)
        if self._short is not None:
            return _caused(ConfirmTimeout(str(self._short), done=[result]), self._short.__cause__)
        return result

    def _failure(self, error: BideError, result: CancelResult) -> BideError:
        some = result is CancelResult.CANCELLED
        if some and isinstance(error, AWAY) and not self._lost:
            text = (
                "What waited in the outbox is cancelled there. Whether the queue has it, or another message with its key, is "
                f"not known: cancel again by the key. {error}"
            )
            return _caused(OutcomeUnknown(text), error)
        if some or isinstance(error, OutcomeUnknown):  # its answers are of others, too
            return _caused(OutcomeUnknown(str(error)), error)
        return error


def again(told: Told) -> Told:
    """What is said of a message that is named a second time."""
    done = told.done if isinstance(told, OutcomeUnknown) else [told]
    return CancelResult.GONE if CancelResult.CANCELLED in done else told


def reason(error: BideError) -> BideError:
    """Why a part of a batch has failed, if others were done. One that is refused may take others along."""
    cause = error.__cause__
    if isinstance(error, OutcomeUnknown) and (
        isinstance(cause, BadMessage) or (error.answers and isinstance(cause, QueueFull | Unavailable))
    ):
        return cause
    return error


def is_refused(error: BideError) -> bool:
    """Whether the queue can never take the message; one that a hook has spoilt may be there."""
    return isinstance(error, BadMessage | Unsupported) and not isinstance(error, BadHook)


def _caused(error: BideError, cause: BaseException | None) -> BideError:
    error.__cause__ = cause
    return error

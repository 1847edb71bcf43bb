"""What a cancel has made of messages that waited in an outbox."""

from collections import deque
from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

from bide.engines.base import Ref, Stored
from bide.engines.guard.hooks import BadHook
from bide.errors import BadMessage, BideError, ConfirmTimeout, OutcomeUnknown, QueueFull, Unavailable, Unsupported
from bide.types import CancelResult, Sent

Brought: TypeAlias = Sent | BideError | None  # of one that is handed on: the queue's answer or error, or that it has expired
Failures: TypeAlias = dict[Hashable, list[BideError]]  # of each part of the queue, in one call of the user
Told: TypeAlias = CancelResult | BideError
ORDER = (CancelResult.CANCELLED, CancelResult.RUNNING, CancelResult.DEAD)


class Fate:
    """What became of one message."""

    def __init__(self, result: CancelResult | None = None, error: BideError | None = None) -> None:
        """`error`: why the result is not known, or not confirmed."""
        self.result: CancelResult | None = result
        self.error: BideError | None = error
        self._asked = False

    @property
    def final(self) -> bool:
        """Whether nothing is left of the message that could be delivered."""
        return self.result is not None and self.result is not CancelResult.RUNNING

    def told(self) -> Told:
        """It is cancelled once, however often it is named."""
        asked, self._asked, error, result = self._asked, True, self.error, self.result
        if result is CancelResult.CANCELLED and asked:
            return CancelResult.GONE
        if error is None:
            return CancelResult.GONE if result is None else result
        if result is None and not isinstance(error, OutcomeUnknown):
            return error
        kind = ConfirmTimeout if isinstance(error, ConfirmTimeout) else OutcomeUnknown
        told = kind(str(error), done=[] if result is None else [result])  # its own answers are of others, too
        told.__cause__ = error.__cause__ if isinstance(error, OutcomeUnknown) else error
        return told


class Sought:
    """One message, or all that wait with a key."""

    def __init__(self, which: Ref) -> None:
        self.which: Ref = which
        self.waiting: deque[Withdrawn] = deque()  # in the order in which they were sent
        self.fates: dict[str, Fate] = {}  # by their ids
        self.there: Fate = Fate()  # of what the queue has with the key
        self.failed: BideError | None = None  # the queue's: what is left of it is not handed on

    @property
    def keyed(self) -> bool:
        return self.which.id is None

    def add(self, stored: Stored) -> None:
        if stored.id not in self.fates:
            self.fates[stored.id] = Fate()
            self.waiting.append(Withdrawn(self, stored, self.fates[stored.id]))

    def told(self) -> Told:
        """Of all of them. What is pending decides, as in the queue, where one with its key may run."""
        fates = [*self.fates.values(), self.there]
        results = [fate.result for fate in fates]
        best = next((each for each in ORDER if each in results), CancelResult.GONE)
        lost = [fate.error for fate in fates if fate.error is not None and fate.result is None]
        if lost:
            return Fate(None, OutcomeUnknown(str(lost[0])) if best is CancelResult.CANCELLED else lost[0]).told()
        unsure = [fate.error for fate in fates if fate.error is not None]
        unsure.sort(key=lambda each: isinstance(each, ConfirmTimeout))
        return Fate(best, unsure[0] if unsure else None).told()


class Withdrawn(NamedTuple):
    """One of the messages that a name means."""

    named: Sought
    stored: Stored
    fate: Fate

    @property
    def new(self) -> bool:
        """Whether no relay ever had it, so that the queue does not have it."""
        return not self.stored.attempt

    def fail(self, error: BideError) -> None:
        """In the queue. If others of that name may fail alike, they are not tried."""
        self.fate.error = error
        if not is_refused(error):
            self.named.failed = self.named.failed or error

    def leave(self, result: Told) -> None:
        """The queue was not asked. `result`: of taking it out of the outbox."""
        if self.fate.error is not None:
            said = "It is cancelled in the outbox. " if result is CancelResult.CANCELLED else ""
            if self.named.keyed:
                said += "Whether the queue has it, or another message with its key, is not known: cancel again by the key."
            elif result in (CancelResult.CANCELLED, CancelResult.GONE):
                said += "Whether the queue has it is not known."
            else:
                said += "Whether the queue has it is not known, so it stays in the outbox: cancel it again by its id."
            self.fate.error = _because(said, "queue", self.fate.error)

    def end(self, result: Told) -> None:
        """It is done in the queue. `result`: of taking it out of the outbox."""
        why = OutcomeUnknown("A relay has it.") if result is CancelResult.RUNNING else result
        if isinstance(why, BideError) and self.fate.result is CancelResult.CANCELLED:
            text = "It is cancelled in the queue, but it could not be taken out of the outbox: cancel it again."
            self.fate.error = _because(text, "outbox", why)


def reason(error: BideError) -> BideError:
    """Why a part of a batch has failed, if others were done. One that is refused may take others along."""
    cause = error.__cause__
    if isinstance(error, OutcomeUnknown) and (
        isinstance(cause, BadMessage) or (error.answers and isinstance(cause, QueueFull | Unavailable))
    ):
        return cause
    return error


def is_refused(error: BideError) -> bool:
    """Whether the queue can't take the message from this program; one that a hook has spoilt may be there."""
    return isinstance(error, BadMessage | Unsupported) and not isinstance(error, BadHook)


def is_untouched(error: BideError) -> bool:
    """Whether the queue has taken nothing. It may have the message from a relay."""
    return is_refused(error) or isinstance(error, BadHook | QueueFull | Unavailable)


def _because(text: str, of: str, error: BideError) -> OutcomeUnknown:
    told = OutcomeUnknown(f"{text} The {of} says: {error}")
    told.__cause__ = error
    return told

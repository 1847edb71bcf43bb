"""Messages that wait to be sent in the background: what they are after a while, and what one call has made of them."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from bide.engines.base import NewMessage
from bide.errors import BideError, OutcomeUnknown
from bide.logs import Log

_log = Log("bide.later")


class Entry:
    __slots__ = ("new", "taken", "unsure")

    def __init__(self, new: NewMessage, taken: int) -> None:
        self.new: NewMessage = new
        self.taken: int = taken  # ms
        self.unsure: float | None = None  # since when it may have been sent, monotonic


class Done(NamedTuple):
    """What one call did."""

    sent: int = 0
    back: Sequence[Entry] = ()  # to be sent first
    lost: int = 0
    error: BideError | None = None
    last: Sequence[Entry] = ()  # to be sent when all others have been

    def __add__(self, other: "Done") -> "Done":  # type: ignore[override]  # no sum of tuples is wanted
        back, last = [*self.back, *other.back], [*self.last, *other.last]
        return Done(self.sent + other.sent, back, self.lost + other.lost, self.error or other.error, last)


def lost(each: Entry, why: str) -> Done:
    _log.error("A message for %s is lost: %s", each.new.topic, why)
    return Done(lost=1)


def unknown(batch: Sequence[Entry], error: OutcomeUnknown, *, named: bool) -> Done:
    """Sent again under the names that the engine knows them by, so that it takes none twice. Unless they are `named`, it knows
    none: what may have been sent is not sent again.
    """
    sent, back, left = 0, [], Done()
    for place, each in enumerate(batch):
        if place < len(error.answers) and error.answers[place] is not None:
            sent += 1
            continue
        if not named:
            left += lost(each, f"it may have been sent, and would be sent twice: {error}")
            continue
        each.unsure = each.unsure or time.monotonic()
        if place < len(error.operations) and error.operations[place]:
            each.new = replace(each.new, operation=error.operations[place])
        back.append(each)
    return left + Done(sent, back, error=error if back else None)


def late(each: Entry, now: int) -> int:
    """How long ago a message fell due."""
    due = each.taken + each.new.delay if each.new.at is None else max(each.taken, each.new.at)
    return max(0, now - due)


def aged(each: Entry, now: int) -> NewMessage:
    """The message as it is now: its delay and its life count from when it was taken."""
    new = each.new
    life = None if new.expires_in is None else new.expires_in - late(each, now)
    return replace(new, delay=max(0, new.delay - max(0, now - each.taken)), expires_in=life)

"""What a send makes of the message that has its key already: it is moved later, for a while, or their bodies become one list.

A header tells when the first of those was sent that move it later, and needs nothing of what is stored: releases before pass it
on. It comes first and has one length, so that a server can read and write it where the headers are text.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from bide.core.times import Planned, planned_at
from bide.engines.base import NewMessage

FIRST = "bide-first"
_DIGITS = 13
_SPACES = b" \t\r\n"


def marked(headers: Mapping[str, str], first: int = 0) -> Mapping[str, str]:
    """With the time of the first send, in milliseconds; 0 for a server that sets it."""
    return {FIRST: f"{first:0{_DIGITS}}", **{name: each for name, each in headers.items() if name != FIRST}}


def first_sent(headers: Mapping[str, str]) -> int | None:
    text = headers.get(FIRST, "")
    return int(text) if len(text) == _DIGITS and text.isdecimal() and text.isascii() else None


def bounded(new: NewMessage, when: Planned, now: int, held: tuple[int, Mapping[str, str]] | None) -> tuple[NewMessage, Planned]:
    """The message as it is to be stored, and when it is due by itself.

    `held`: attempts and headers of the pending message that it changes. A delivery ends what was sent before.
    """
    assert new.max_wait is not None
    attempt, headers = (0, new.headers) if held is None else held
    first = first_sent(headers) if held is not None and not attempt else None
    if first is None:
        first = now if new.at is not None else when.due - new.delay  # rounded up, as its time is: it is never early
    bound = first + new.max_wait
    return replace(new, headers=marked(new.headers, first)), when if when.due <= bound else Planned(bound, bound, False)


def later_of(new: Planned, held: Planned, now: int, wall: int) -> Planned:
    """The later of two times. If one of them is an instant, so is this: rather late than early."""
    due = max(new.due, held.due)
    if due > wall and (new.instant or held.instant):
        return planned_at(due, now, wall)
    return Planned(due, due, False)


def listed(body: bytes) -> bytes:
    """A list of one JSON body."""
    return b"[%b]" % body


def joined(held: bytes, new: bytes) -> bytes | None:
    """The list that holds what both have; None when the first is no list, or none as bide and most others write it."""
    if held == b"[]":
        return new
    if held[:1] != b"[" or held[-1:] != b"]" or held[-2] in _SPACES:
        return None
    return b"%b,%b" % (held[:-1], new[1:])

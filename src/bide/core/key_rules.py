"""What a send does when another message has its key: one table, and how two times or two bodies become one.

Memory and SQLite follow it through engines/keyed.py. Lua and SQL have the same rules in their own language, and the contract
suite asks every engine for each row.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from bide.core.times import Planned, planned_at

# Of the message that has the key. It waits for its first delivery, or for another one; it is running; or it is running, and
# what is sent now is sent by its own handler.
Holder: TypeAlias = Literal["waiting", "delivered", "running", "own"]
Act: TypeAlias = Literal["kept", "exists", "replaced", "postponed", "merged", "successor"]

RULES: Mapping[str, Mapping[Holder, Act]] = {
    "keep": {"waiting": "kept", "delivered": "kept", "running": "kept", "own": "successor"},
    "error": {"waiting": "exists", "delivered": "exists", "running": "exists", "own": "successor"},
    "replace": {"waiting": "replaced", "delivered": "replaced", "running": "successor", "own": "successor"},
    "later": {"waiting": "postponed", "delivered": "postponed", "running": "successor", "own": "successor"},
    "merge": {"waiting": "merged", "delivered": "successor", "running": "successor", "own": "successor"},
}
SENT_ONCE: Mapping[str, Literal["duplicate", "exists"]] = {"keep": "duplicate", "error": "exists"}  # within unique_for

FIRST = "bide-first"
_DIGITS = 13
_SPACES = b" \t\r\n"


def marked(headers: Mapping[str, str], first: int = 0) -> Mapping[str, str]:
    """With the time of the first of the sends that move a message later, in milliseconds; 0 for a server that sets it.

    The header needs nothing of what is stored: releases before pass it on. It comes first and has one length, so that a server
    can read and write it where the headers are text.
    """
    return {FIRST: f"{first:0{_DIGITS}}", **{name: each for name, each in headers.items() if name != FIRST}}


def first_sent(headers: Mapping[str, str]) -> int | None:
    text = headers[FIRST] if next(iter(headers), None) == FIRST else ""
    return int(text) if len(text) == _DIGITS and text.isdecimal() and text.isascii() else None


def at_most(when: Planned, bound: int) -> Planned:
    """No later than a longest wait allows."""
    return when if when.due <= bound else Planned(bound, bound, False)


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


def gathered(held: bytes, new: bytes, largest: int) -> tuple[Act, bytes]:
    """What merging does to a message that waits, and its body then."""
    body = joined(held, new)
    if body is None:
        return "exists", held
    return ("merged", body) if len(body) <= largest else ("successor", held)

"""A message that each send moves later, and for how long: its header tells when the first of them was sent.

A header needs nothing of what is stored: releases before pass it on. It comes first and has one length, so that a server can
read and write it where the headers are text.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from bide.engines.base import NewMessage

FIRST = "bide-first"
_DIGITS = 13


def marked(headers: Mapping[str, str], first: int = 0) -> Mapping[str, str]:
    """With the time of the first send, in milliseconds; 0 for a server that sets it."""
    return {FIRST: f"{first:0{_DIGITS}}", **{name: each for name, each in headers.items() if name != FIRST}}


def first_sent(headers: Mapping[str, str]) -> int | None:
    text = headers.get(FIRST, "")
    return int(text) if len(text) == _DIGITS and text.isdecimal() and text.isascii() else None


def bounded(new: NewMessage, due: int, now: int, held: tuple[int, int, Mapping[str, str]] | None) -> tuple[NewMessage, int]:
    """The message as it is to be stored, and when it is due.

    `held`: due time, attempts and headers of the pending message that it changes. A delivery ends what was sent before. What is
    later than the bound already stays where it is.
    """
    assert new.max_wait is not None
    due_before, attempt, headers = (0, 0, new.headers) if held is None else held
    first = first_sent(headers) if held is not None and not attempt else None
    if first is None:
        first = now if new.at is not None else due - new.delay  # rounded up, as its time is: it is never early
    return replace(new, headers=marked(new.headers, first)), max(due_before, min(due, first + new.max_wait))

"""Changes of many messages: which a `where` chooses, and how far such a change has come."""

import re
from collections.abc import Hashable, Iterable
from typing import NamedTuple, TypeVar

from bide.core import options
from bide.core.formats import plural
from bide.core.times import duration_ms
from bide.engines.base import Scanned, Stored, Swept, as_one
from bide.errors import BadOption, BideError, ConfirmTimeout, OutcomeUnknown, Unavailable
from bide.types import Page, Stats, Where

C = TypeVar("C", Scanned, Stats, Page, Swept)

PAGE = 200  # messages in one look: their bodies are in memory together


class Choice:
    """A `where`, checked, at an instant."""

    def __init__(self, where: Where | None, now: int) -> None:
        if where is not None and not isinstance(where, Where):
            raise BadOption(
                f"where is a {type(where).__name__}. Write it as Where(error='timeout', key='order:*', older='1h')."
            )
        given = Where() if where is None else where
        key = options.key(given.key)
        self._error = None if given.error is None else options.text(given.error, "error", 1_000).casefold()
        self._key = None if key is None else re.compile(".*".join(map(re.escape, key.split("*"))), re.DOTALL)
        self._latest = None if given.older is None else now - duration_ms(given.older, "older")
        self._earliest = None if given.younger is None else now - duration_ms(given.younger, "younger")

    def takes(self, message: Stored) -> bool:
        return (
            (self._error is None or self._error in (message.last_error or "").casefold())
            and (self._key is None or (message.key is not None and self._key.fullmatch(message.key) is not None))
            and (self._latest is None or message.due < self._latest)
            and (self._earliest is None or message.due > self._earliest)
        )


class Progress(NamedTuple):
    """What a change of many messages has done so far."""

    seen: int = 0  # messages looked at
    asked: int = 0  # of them, those that are meant
    done: int = 0
    keyless: int = 0
    running: int = 0
    missing: tuple[str, ...] = ()  # servers that did not answer: what the others have is done
    refused: tuple[str, ...] = ()  # a sentence of each server that failed otherwise: the same
    unconfirmed: str = ""  # why a failover may undo a part of what is done
    error: BideError | None = None  # of those that failed, if all did that were asked

    def plus(self, other: "Progress") -> "Progress":
        """What both have done together."""
        return Progress(
            self.seen + other.seen,
            self.asked + other.asked,
            self.done + other.done,
            self.keyless + other.keyless,
            self.running + other.running,
            tuple(sorted({*self.missing, *other.missing})),
            tuple(sorted({*self.refused, *other.refused})),
            self.unconfirmed or other.unconfirmed,
            self.error or other.error,
        )

    @property
    def short(self) -> str:
        """What to say if not all that was done is confirmed."""
        return f"not all of it confirmed: {self.unconfirmed} In that case, do the same again." if self.unconfirmed else ""

    @property
    def left(self) -> str:
        """What to say if a part was left as it was."""
        return _left(self.missing, self.refused)

    def check(self) -> None:
        """At the end. Raises OutcomeUnknown if a server did not answer or refused, or its error as it is if no other was asked;
        ConfirmTimeout if all is done and not all confirmed.
        """
        if self.error is not None:
            raise self.error
        if self.left:
            short = f" It is done, but {self.short}" if self.short else ""
            raise OutcomeUnknown(f"{self.left} All else is done, {self.done:,} in all: try again later for the rest.{short}")
        if self.unconfirmed:
            raise ConfirmTimeout(f"All is done, {plural(self.done, 'message')}, but {self.short}")


def _left(missing: Iterable[str], refused: Iterable[str]) -> str:
    """A sentence of each server that did not answer, or refused."""
    told = [*refused]
    silent = [each for each in missing if not any(f"{each} " in one for one in told)]
    named = f"{', '.join(silent)} does not answer and may have some of the messages." if silent else ""
    return " ".join(filter(None, [named, *told]))


def complete(found: C) -> C:
    """What has all that there is: for a caller that decides by it, and does not only show it."""
    refused: Iterable[str] = ()
    if isinstance(found, Scanned | Swept):
        refused = found.refused
    if left := _left(found.missing, refused):
        raise Unavailable(f"{left} Try again later.")
    return found


class LeftOut:
    """The servers that did not answer while many messages were changed, refused, or did not confirm: the rest is done first."""

    def __init__(self) -> None:
        self._servers: set[str] = set()
        self._refused: set[str] = set()
        self.parts: set[Hashable] = set()  # of the engine, that are not asked again
        self.did: bool = False  # whether any part was asked for messages and did not fail
        self._errors: list[BideError] = []
        self._unconfirmed = ""

    @property
    def silent(self) -> bool:
        """Whether one did not answer yet."""
        return bool(self._servers)

    def heard(self, found: C) -> C:
        self._servers.update(found.missing)
        if isinstance(found, Scanned | Swept):
            self._refused.update(found.refused)
        if isinstance(found, Swept):
            self.short(found.unconfirmed)
        return found

    def leave(self, parts: Iterable[Hashable], error: BideError) -> None:
        """These parts of the engine failed: ask for nothing more that they have."""
        self.parts.update(parts)
        self._errors.append(error)
        self._refused.add(str(error))

    def short(self, why: str) -> None:
        """A page was done and not confirmed, unless this is empty."""
        self._unconfirmed = self._unconfirmed or why

    def left_out(self, step: Progress) -> Progress:
        """The last step, which names them."""
        missing, refused = tuple(sorted(self._servers)), tuple(sorted(self._refused))
        error = None if self.did or not self._errors else as_one(self._errors)
        return step._replace(missing=missing, refused=refused, unconfirmed=self._unconfirmed, error=error)


def share(total: int, place: int, count: int, spread: int) -> tuple[int, int]:
    """Of a time over which so many messages are spread, where the part of some of them begins, and how long it is."""
    first, last = (min(each, total) * spread // max(1, total) for each in (place, place + count))
    return first, last - first

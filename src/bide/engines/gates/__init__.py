"""Gates: what locks and limits are made of. The words that their verbs take and answer.

A gate has a name, and is made on first use. It lets so many in at once, or so many in any stretch of time. What is asked
for comes with each call, so that the newest release of a program decides how wide its gates are.
"""

import msgspec

TURN_MS = 5_000  # whoever is called has so long to enter
AGAIN_MS = 1_000  # whoever was called, and has not come, is named again after so long


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Somebody wants a place."""

    gate: str
    holder: str  # the same one enters once, however often it asks
    lease: int  # ms: the place is free again then, unless it is kept
    places: int = 1
    waiter: str | None = None  # who waits for its turn, if there is no place: the id of a message, or a program's name
    asks: int | None = None
    """ms: this waiter asks again before they are over, or else has died, and leaves the line. A message never asks.

    It is noted again when it has asked after a third of them.
    """

    @property
    def is_told(self) -> bool:
        """Whether somebody waits for the answer: a program. A message is called, and needs no time."""
        return self.waiter is None or self.asks is not None


class Entered(msgspec.Struct, frozen=True, gc=False):
    token: str | None  # None: there is no place
    since: int | None = None  # when the waiter began to wait, if it waits
    free_in: int | None = None  # ms until a place is free, unless it is kept for longer; a message that waits is not told


class Held(msgspec.Struct, frozen=True, gc=False):
    """A place that somebody holds; without a token, a waiter's place in the line."""

    gate: str
    holder: str
    token: str | None


class Called(msgspec.Struct, frozen=True, gc=False):
    """It is this waiter's turn: a place is kept for it, for TURN_MS."""

    gate: str
    waiter: str


class Left(msgspec.Struct, frozen=True):
    answers: list[bool]  # whether each held what it left
    called: list[Called]


class Spend(msgspec.Struct, frozen=True, gc=False):
    """Somebody wants to begin so many things, of which `count` may begin in any `window` milliseconds."""

    gate: str
    count: int
    window: int
    want: int = 1
    holder: str | None = None  # of one: now, or an instant to come, which is kept for whoever has this name


class Spent(msgspec.Struct, frozen=True, gc=False):
    at: list[int]  # the instants that were granted, none sooner than the one before
    next_at: int  # the first that is free after them
    now: int  # the engine's

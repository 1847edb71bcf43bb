"""Leases that are kept: which are renewed together, and until when they surely hold."""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bide.engines.base import MAX_BATCH, Hold

BEATS = 3  # a lease


class Beat:
    """Deliveries whose leases are renewed together, such as those of one claim.

    None of them ends before `until`, by the engine's time. `lost` is called, in any thread, for a delivery whose lease is
    not renewed any more: it can't be, or the delivery was dropped.
    """

    __slots__ = ("_renewed", "holds", "lease_ms", "lost", "next", "until")

    def __init__(self, holds: Iterable[Hold], lease_ms: int, until: int, lost: Callable[[Hold], None]) -> None:
        self.holds: dict[Hold, None] = dict.fromkeys(holds)
        self.lease_ms: int = lease_ms
        self.until: int = until
        self.lost: Callable[[Hold], None] = lost
        self.renewed(until)

    def put_off(self, beats: int) -> None:
        self.next: float = time.monotonic() + self.lease_ms / 1000 / beats

    def renewed(self, until: int) -> None:
        """It does not end before `until` now."""
        self.until = max(self.until, until)
        self._renewed = time.monotonic()
        self.put_off(BEATS)

    @property
    def late(self) -> bool:
        """Whether it should have been renewed by now, and was not."""
        return time.monotonic() - self._renewed > self.lease_ms / 1000 / 2


class Asked:
    """A claim whose deliveries will be kept: from when it is made, nobody here may take back what it brings.

    A claim that has a name, `request`, can be looked after before it is answered: its answer may have to wait for an event
    loop that is busy, for longer than a lease.
    """

    __slots__ = ("_made", "lease_ms", "next", "request", "until")

    def __init__(self, request: str | None = None, lease_ms: int = 0) -> None:
        self.request: str | None = request
        self.lease_ms: int = lease_ms
        self.until: int | None = None
        self._made = time.monotonic()
        self.put_off(BEATS)

    def put_off(self, beats: int) -> None:
        self.next: float = time.monotonic() + self.lease_ms / 1000 / beats

    @property
    def late(self) -> bool:
        """Whether it was made so long ago that its leases may have ended."""
        return time.monotonic() - self._made > self.lease_ms / 1000 / BEATS


class Part(NamedTuple):
    """What is renewed in one call: leases of one length, those of a beat together, and no more than a batch."""

    lease_ms: int
    leases: list[tuple[Beat, Hold]]

    @property
    def holds(self) -> list[Hold]:
        return [hold for _, hold in self.leases]


def parts(beats: list[Beat]) -> list[Part]:
    found: list[Part] = []
    open_parts: dict[int, Part] = {}
    for beat in beats:
        part = open_parts.get(beat.lease_ms)
        if part is None or len(part.leases) + len(beat.holds) > MAX_BATCH:
            part = open_parts[beat.lease_ms] = Part(beat.lease_ms, [])
            found.append(part)
        part.leases.extend((beat, hold) for hold in beat.holds)
    return found

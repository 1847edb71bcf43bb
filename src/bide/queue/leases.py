"""Leases, as the heartbeat renews them: of deliveries, of places in gates, and what is done when the worker was away."""

import abc
import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from bide.engines.base import MAX_BATCH, Hold
from bide.engines.gates import Held

BEATS = 3  # a lease
FOREVER = 2**62

Lease: TypeAlias = Hold | Held
PULSE = 1.0  # seconds: how often it says that it is there
LATE = 0.5  # seconds: who is no later than this was not away
HOLD_OFF = 3.0  # seconds that others have to wake up in, and to renew what they hold


class Beat:
    """Leases that are renewed together, such as those of one claim.

    None of them ends before `until`, by the engine's time. `lost` is called, in any thread, for a lease that is not renewed
    any more: it can't be, or its delivery was dropped.
    """

    __slots__ = ("_extended", "_lost", "_renewed", "holds", "lease_ms", "next", "until")

    def __init__(self, holds: Iterable[Lease], lease_ms: int, until: int, lost: Callable[..., None]) -> None:
        """Either all are deliveries, or all are places."""
        self.holds: dict[Lease, None] = dict.fromkeys(holds)
        self.lease_ms: int = lease_ms
        self.until: int = until
        self._lost = lost
        self._extended: dict[Lease, float] = {}  # until when at least, by time.monotonic(), where a user wants that
        self.renewed(until)

    def lost(self, hold: Lease) -> None:
        self._lost(hold)

    def put_off(self, beats: int) -> None:
        self.next: float = time.monotonic() + self.lease_ms / 1000 / beats

    def renewed(self, until: int) -> None:
        """It does not end before `until` now."""
        self.until = max(self.until, until)
        self._renewed = time.monotonic()
        self.put_off(BEATS)

    def extend(self, hold: Lease, until: float) -> None:
        """A user wants this lease to last so long. Renewals must not end it sooner."""
        self._extended[hold] = until

    def extended_beyond(self, hold: Lease, until: float) -> bool:
        """Whether a user wants it to last longer than that."""
        return self._extended.get(hold, 0.0) > until

    def by_length(self) -> Mapping[int, Sequence[Lease]]:
        """Its leases, by how many milliseconds each is to last now: those that were extended up to a lease longer than wanted,
        so that many of them are renewed in one call.
        """
        if not self._extended:
            return {self.lease_ms: list(self.holds)}
        found: dict[int, list[Lease]] = {}
        now = time.monotonic()
        for hold in self.holds:
            leases = math.ceil((self._extended.get(hold, 0.0) - now) * 1000 / self.lease_ms)
            found.setdefault(max(1, leases) * self.lease_ms, []).append(hold)
        return found

    @property
    def late(self) -> bool:
        """Whether it should have been renewed by now, and was not."""
        return time.monotonic() - self._renewed > self.lease_ms / 1000 / 2


class ClaimBeat(Beat, abc.ABC):
    """Those of one claim. They are named once a renewal is due: most of them have ended by then.

    The heartbeat's lock is held around all but `lost`.
    """

    __slots__ = ("_holds", "places")

    def __init__(self, lease_ms: int, until: int, lost: Callable[..., None]) -> None:
        """`lost` is told of the place of a message."""
        super().__init__((), lease_ms, until, lost)
        self.places: dict[Lease, int] | None = None  # by lease, once they are named

    @property
    def holds(self) -> dict[Lease, None]:
        if self.places is None:
            self.places = self.named()
            self._holds = dict.fromkeys(self.places)
        return self._holds

    @holds.setter
    def holds(self, value: dict[Lease, None]) -> None:
        self._holds = value

    @abc.abstractmethod
    def named(self) -> dict[Lease, int]:
        """The leases of what has not ended, and their places."""

    @abc.abstractmethod
    def end(self, places: Sequence[int]) -> bool:
        """What is at these places has ended. Whether that was all."""

    def lost(self, hold: Lease) -> None:
        self._lost(self, (self.places or {})[hold])


class Places(Beat):
    """Places in gates. Their end by the engine's time is nobody's business: nobody takes places back by a time of his own."""

    __slots__ = ("_asked",)

    def __init__(self, held: Iterable[Held], lease_ms: int, lost: Callable[[Held], None], *, asked: float) -> None:
        """`asked`: when they were asked for, or a little before, by time.monotonic()."""
        super().__init__(held, lease_ms, FOREVER, lost)
        self._asked = asked

    @property
    def sure(self) -> bool:
        """Whether none can have ended, as far as this machine's clock tells."""
        return time.monotonic() - self._asked < self.lease_ms / 1000

    @property
    def held(self) -> list[Held]:
        return [each for each in self.holds if isinstance(each, Held)]

    def renewed_since(self, asked: float) -> None:
        self._asked = max(self._asked, asked)


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
        self.next: float = self._made

    def put_off(self, beats: int) -> None:
        self.next = time.monotonic() + self.lease_ms / 1000 / beats

    @property
    def late(self) -> bool:
        """Whether it was made so long ago that its leases may have ended."""
        return time.monotonic() - self._made > self.lease_ms / 1000 / BEATS


class Part(NamedTuple):
    """What is renewed in one call: leases of one length, and no more than a batch."""

    lease_ms: int
    leases: list[tuple[Beat, Lease]]

    @property
    def holds(self) -> list[Hold]:
        return [lease for _, lease in self.leases if isinstance(lease, Hold)]

    @property
    def held(self) -> list[Held]:
        return [lease for _, lease in self.leases if isinstance(lease, Held)]


def parts(beats: list[Beat]) -> list[Part]:
    found: list[Part] = []
    open_parts: dict[tuple[bool, int], Part] = {}
    for beat in beats:
        for length, holds in beat.by_length().items():
            kind = isinstance(beat, Places), length
            part = open_parts.get(kind)
            if part is None or len(part.leases) + len(holds) > MAX_BATCH:
                part = open_parts[kind] = Part(length, [])
                found.append(part)
            part.leases.extend((beat, hold) for hold in holds)
    return found


class ClaimBegan(NamedTuple):
    """When a claim began."""

    at: float  # monotonic
    seen: int  # the engine's time, as it was known then
    heard: float  # when that was told, monotonic


_KIND = getattr(time, "CLOCK_BOOTTIME", None)  # counts the seconds of a suspension too, where the system can
_now = time.monotonic if _KIND is None else functools.partial(time.clock_gettime, _KIND)


class Absence:
    """It compares the engine's time with that of this machine, and says which leases may be taken back.

    After an absence those that ended meanwhile are left alone for a while. Whoever holds them renews them on waking up.
    """

    def __init__(self) -> None:
        self._seen = 0  # the engine's time, when it was told last; 0 until it was told first
        self._at = 0.0  # when that was
        self._there = 0.0  # when there was a sign of life last
        self._left = 0  # by the engine's time: until when it was surely not away
        self._until = 0.0  # the end of the hold-off

    def pulse(self) -> None:
        """It is there; to be called at intervals, also while it rests."""
        now = _now()
        if self._seen and now > self._there + PULSE + LATE:
            self._left, self._until = self._known(), now + HOLD_OFF
        self._there = now

    def hear(self, engine_ms: int) -> None:
        """The engine has told its time."""
        self.pulse()
        if self._seen and engine_ms > (known := self._known()):
            self._left, self._until = known, self._there + HOLD_OFF
        self._seen, self._at = engine_ms, self._there

    def ended_by(self) -> int | None:
        """Leases that ended until then, by the engine's time, may be taken back; None: all that have ended."""
        if not self._seen:
            return None
        self.pulse()
        return self._left if self._there < self._until else self._known()

    def _known(self) -> int:
        """The engine's time can't be any further, unless there was an absence."""
        return self._seen + round((self._there - self._at + PULSE + LATE) * 1000)

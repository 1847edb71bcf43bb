"""What a relay of an outbox puts off for a while, most of all what is for parts of the queue's engine that do not answer."""

import math
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from bide.engines.base import SWEEP, Claimed, End, Hold, NewMessage, Verdict
from bide.errors import OutcomeUnknown, QueueFull, Unavailable
from bide.logs import Log

Kept: TypeAlias = tuple[Claimed, NewMessage]

SOON, LATER = 500, 10_000  # ms until the next try while the queue's engine is away, or after a rest
MOST = 20_000  # ms of a rest, which grows as long as the part stays away
LONG = 10_000  # ms: what is put off for so long, others may try first
OTHERS = SWEEP + 2  # seconds for which they may: in which an idle relay looks after the outbox and gets its turn

_log = Log("bide.outbox")


class Rest(NamedTuple):
    until: float  # by time.monotonic()
    pause: int  # ms
    why: str
    size: int  # bytes: smaller ones may find room, and do not wait for its end


class Rests:
    """Of the parts that have not answered, or have no room."""

    def __init__(self, part_of: Callable[[NewMessage], Hashable]) -> None:
        self._part_of = part_of
        self._all: dict[Hashable, Rest] = {}

    def begin(self, kept: Sequence[Kept], error: OutcomeUnknown | QueueFull | Unavailable, ms: int, size: int = 0) -> None:
        """Try nothing of that size for so long at the parts that these are for, and for longer each time until they take it;
        unless there is only one part.
        """
        now = time.monotonic()
        for part in {self._part_of(new) for _, new in kept} - {None}:
            before = self._all.get(part)
            if before is None or before.until <= now:
                pause = ms if before is None else max(ms, min(2 * before.pause, MOST))
                self._all[part] = Rest(now + pause / 1000, pause, str(error), size)
            elif size < before.size:
                self._all[part] = before._replace(size=size)

    def answered(self, kept: Sequence[Kept]) -> None:
        """The parts that these are for have taken them."""
        if self._all:
            for _, new in kept:
                part = self._part_of(new)
                rest = self._all.get(part)
                if rest is not None and len(new.body) >= rest.size:
                    self._all.pop(part, None)

    def of(self, kept: Sequence[Kept], now: float) -> list[Rest | None]:
        """Of the part that each of these is for, if it is for these."""
        resting = {part: rest for part, rest in list(self._all.items()) if rest.until > now}
        if not resting:
            return [None] * len(kept)
        found = [resting.get(self._part_of(new)) for _, new in kept]
        return [
            rest if rest is None or len(new.body) >= rest.size else None for (_, new), rest in zip(kept, found, strict=True)
        ]


class Away:
    """What one relay puts off, since the part that it is for does not answer."""

    def __init__(self, rests: Rests) -> None:
        self._rests = rests
        self._told_at = -math.inf  # by time.monotonic(): when the log said so
        self.left: OutcomeUnknown | QueueFull | Unavailable | None = None  # why some were put off

    def answering(self, kept: Sequence[Kept], ends: list[End]) -> Sequence[Kept]:
        """Without those whose part rests. The ends of these are added to the list."""
        now = time.monotonic()
        there: list[Kept] = []
        for each, rest in zip(kept, self._rests.of(kept, now), strict=True):
            if rest is None:
                there.append(each)
                continue
            ends.append(end_of(each[0], "release", SOON + round(1000 * (rest.until - now))))
            if self.left is None:
                self.left = Unavailable(f"Some messages stay in the outbox, and are tried again later: {rest.why}")
        return there

    def put_off(self, kept: Sequence[Kept], ends: list[End], error: OutcomeUnknown | Unavailable, ms: int) -> None:
        """None of the parts that these are for has answered. Raises if there is only one part."""
        self._rests.begin(kept, error, ms)
        if self.answering(kept, ends):
            raise error
        self.tell(error, ms)

    def tell(self, error: OutcomeUnknown | QueueFull | Unavailable, ms: int) -> None:
        """Some are put off. The log says so at most once in so long."""
        now = time.monotonic()
        if now >= self._told_at + ms / 1000:
            self._told_at = now
            _log.warning("Some messages stay in the outbox, and are tried again: %s", error)
        self.left = error


class Late(NamedTuple):
    hold: Hold
    until: float  # by time.monotonic()
    long: bool
    shared: bool


class PutOff:
    """What one relay keeps leased, so that claims pass over it until it is tried again."""

    def __init__(self) -> None:
        self._all: dict[str, Late] = {}
        self.soon: float = math.inf  # the first end of a lease
        self._late = math.inf  # and of one that is long

    def add(self, holds: Sequence[Hold], ms: int, *, shared: bool) -> None:
        """`shared`: another relay may be able to hand them on."""
        until, long = time.monotonic() + ms / 1000, shared and ms >= LONG
        self._all |= {hold.id: Late(hold, until, long, shared) for hold in holds}
        if long:
            self._late = min(self._late, until)
        else:
            self.soon = min(self.soon, until)

    def upkeep(self, at: float) -> float:
        """When to take back leases that are over, or that instant, if it comes first.

        What was put off for long is left to others for a while: they may reach what this relay does not.
        """
        return min(self.soon, self._late + OTHERS if at > self._late - SOON / 1000 else at)

    def taken_back(self, at: float) -> None:
        """Those whose lease was over at that instant."""
        self._all = {id: each for id, each in self._all.items() if each.until > at}
        self._look()

    def shared(self) -> list[Hold]:
        """What others may have at once, as this relay ends. They are no longer here."""
        all, self._all = self._all, {}
        self._look()
        return [each.hold for each in all.values() if each.shared]

    def _look(self) -> None:
        self.soon = min((each.until for each in self._all.values() if not each.long), default=math.inf)
        self._late = min((each.until for each in self._all.values() if each.long), default=math.inf)


def end_of(claimed: Claimed, verdict: Verdict = "done", delay: int = 0, error: str | None = None) -> End:
    return End(claimed.topic, claimed.id, claimed.token, verdict, delay, error)


def put_aside(left: Sequence[Claimed], ms: int, *, full: bool) -> list[End]:
    """For so long, in which others are tried. `full`: large ones, which may be why there is no room, for longer."""
    large = large_of(len(each.body) for each in left) if full else math.inf
    return [end_of(each, "release", ms + LATER * (len(each.body) >= large)) for each in left]


def large_of(sizes: Iterable[int]) -> int:
    """From which size on some of these are large: so few tries find what there is room for."""
    return (max(sizes, default=0) + 1) // 2

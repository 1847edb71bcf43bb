"""What a relay of an outbox puts off for a while, most of all for parts that do not answer, and what it sends together."""

import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from bide.engines.base import SWEEP, Claimed, End, Hold, NewMessage, Verdict, as_one
from bide.errors import BideError, QueueFull
from bide.logs import Log
from bide.queue.outbox import Name

Kept: TypeAlias = tuple[Claimed, NewMessage]
T = TypeVar("T")

SOON, LATER = 500, 10_000  # ms until the next try while the queue's engine is away, or after a rest
MOST = 20_000  # ms of a rest, which grows as long as the part stays away
NO_DOUBT, SILENCE = -2, -1  # less than any size
FORGOTTEN = 60.0  # seconds after a rest
LONG = 10_000  # ms: what is put off for so long, others may try first
OTHERS = SWEEP + 2  # seconds for which they may: in which an idle relay looks after the outbox and gets its turn

_log = Log("bide.outbox")


class Rest(NamedTuple):
    until: float  # by time.monotonic()
    pause: int  # ms
    why: BideError


class Rests:
    """Of the parts that have not answered, or have no room: by the size from which on they take nothing, or SILENCE."""

    def __init__(self, part_of: Callable[[NewMessage], Hashable]) -> None:
        self._part_of = part_of
        self._all: dict[Hashable, dict[int, Rest]] = {}

    def begin(self, kept: Sequence[Kept], error: BideError, ms: int) -> None:
        """Try nothing for so long at the parts that these are for, and for longer each time until they answer; unless there is
        only one part.
        """
        for part in {self._part_of(new) for _, new in kept} - {None}:
            self._begin(part, SILENCE, error, ms)

    def fill(self, each: Kept, error: QueueFull, ms: int) -> None:
        """The same for what is as large as this one, or larger; also if there is only one part."""
        part = self._part_of(each[1])
        self._all.get(part, {}).pop(SILENCE, None)
        self._begin(part, _size(each), error, ms)

    def suspect(self, kept: Sequence[Kept], error: QueueFull) -> None:
        """Of these, for which there was no room together, the largest of each part are not sent together with others again."""
        largest: dict[Hashable, int] = {}
        for each in kept:
            part = self._part_of(each[1])
            largest[part] = max(_size(each), largest.get(part, 0))
        now = time.monotonic()
        for part, size in largest.items():
            rests = self._all.setdefault(part, {})
            rests.pop(SILENCE, None)
            if size not in rests or rests[size].until + FORGOTTEN < now:
                rests[size] = Rest(now, 0, error)

    def _begin(self, part: Hashable, size: int, why: BideError, ms: int) -> None:
        rests, now = self._all.setdefault(part, {}), time.monotonic()
        before = rests.get(size)
        if before is not None and before.until + FORGOTTEN < now:
            before = None
        if before is None or before.until <= now:
            pause = ms if before is None else max(ms, min(2 * before.pause, MOST))
            rests[size] = Rest(now + pause / 1000, pause, why)
        for larger, rest in list(rests.items()):
            if larger > size > SILENCE and rest.pause:  # it was refused by itself, and would take the room meanwhile
                rests[larger] = rest._replace(until=max(rest.until, now + LATER / 1000))

    def answered(self, kept: Sequence[Kept]) -> None:
        """The parts that these are for have taken them."""
        if self._all:
            for each in kept:
                rests = self._all.get(self._part_of(each[1]), {})
                for size in [size for size in rests if size <= _size(each)]:
                    del rests[size]

    def of(self, kept: Sequence[Kept], now: float) -> list[Rest | None]:
        """The longest one that each of these has to wait for."""
        if not self._all:
            return [None] * len(kept)
        found = [[rest for _, rest in self._for(each) if rest.until > now] for each in kept]
        return [max(rests, key=lambda rest: rest.until, default=None) for rests in found]

    def doubt(self, each: Kept) -> int:
        """SILENCE, if it is not known that there is an answer now; the size from which on there may be no room; or NO_DOUBT.
        These are not sent together.
        """
        since = time.monotonic() - FORGOTTEN
        return max((size for size, rest in self._for(each) if rest.until > since), default=NO_DOUBT)

    def _for(self, each: Kept) -> list[tuple[int, Rest]]:
        rests = self._all.get(self._part_of(each[1])) if self._all else None
        return [(size, rest) for size, rest in rests.items() if size <= _size(each)] if rests else []


def _size(each: Kept) -> int:
    """0 for less than a kB, 1 for less than two, 2 for less than four, …"""
    return (len(each[1].body) >> 10).bit_length()


def small_first(kept: Sequence[Kept]) -> list[Kept]:
    """But those with one key in their order."""
    largest: dict[tuple[str, str], int] = {}
    sizes: list[int] = []
    for each in kept:
        size, new = _size(each), each[1]
        if new.key is not None:
            size = largest[new.topic, new.key] = max(size, largest.get((new.topic, new.key), 0))
        sizes.append(size)
    return [kept[at] for at in sorted(range(len(kept)), key=sizes.__getitem__)]


class Lately(Generic[T]):
    """What was noted of messages that a relay put off, by their ids: until it should have had them again for a while."""

    def __init__(self) -> None:
        self._all: dict[str, tuple[T, float]] = {}
        self._look_at = -math.inf

    def note(self, id: str, told: T, ms: int) -> None:
        """`ms`: for which it is put off."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + FORGOTTEN
            self._all = {id: each for id, each in self._all.items() if each[1] > now}
        self._all[id] = told, now + ms / 1000 + FORGOTTEN

    def get(self, id: str, otherwise: T) -> T:
        return self._all.get(id, (otherwise,))[0]

    def forget(self, ids: Iterable[str]) -> None:
        if self._all:
            for id in ids:
                self._all.pop(id, None)

    def __iter__(self) -> Iterator[T]:
        now = time.monotonic()
        return iter([told for told, until in self._all.values() if until > now])


class Away:
    """What one relay puts off, since the part that it is for does not answer or has no room, or since it is not confirmed."""

    def __init__(self, rests: Rests) -> None:
        self._rests = rests
        self._told_at = -math.inf  # by time.monotonic(): when the log said so
        self._left = Lately[tuple[type[BideError], str]]()  # why each of them was: not the error, which holds their bodies

    def answering(self, kept: Sequence[Kept], ends: list[End]) -> Sequence[Kept]:
        """Without those whose part rests. The ends of these are added to the list."""
        now = time.monotonic()
        there: list[Kept] = []
        for each, rest in zip(kept, self._rests.of(kept, now), strict=True):
            if rest is None:
                there.append(each)
            else:
                ends.append(self.put_off(each[0], rest.why, SOON + round(1000 * (rest.until - now))))
        return there

    def put_off(self, claimed: Claimed, error: BideError, ms: int) -> End:
        """For so long. The log says so now and then."""
        now = time.monotonic()
        if now >= self._told_at + LATER / 1000:
            self._told_at = now
            _log.warning("Some messages stay in the outbox, and are tried again: %s", error)
        kind = next(each for each in type(error).__mro__ if each.__module__ == BideError.__module__)
        self._left.note(claimed.id, (kind, str(error)), ms)
        return end_of(claimed, "release", ms)

    def claimed(self, all: Sequence[Claimed]) -> None:
        """They are tried again, or have ended."""
        self._left.forget(each.id for each in all)

    @property
    def left(self) -> BideError | None:
        """Why some were put off and not tried again: first of all, if not for want of room."""
        last = {issubclass(kind, QueueFull): kind(text) for kind, text in dict.fromkeys(self._left)}
        return as_one([last[lacks_room] for lacks_room in sorted(last)]) if last else None

    @property
    def lacks_room(self) -> bool:
        """Whether that is why some were."""
        return any(issubclass(kind, QueueFull) for kind, _ in self._left)


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


def put_aside(left: Sequence[Claimed], ms: int, *, apart: bool) -> list[End]:
    """For so long, in which others are tried. `apart`: the largest, which may be why there is no room, is tried by itself."""
    largest = max((len(each.body) for each in left), default=0)
    return [end_of(each, "release", ms + LATER * (apart and len(each.body) == largest)) for each in left]


class Halves:
    """Of one claim. Each message is looked at a few times only, however many calls there are."""

    def __init__(self, kept: Sequence[Kept], rests: Rests, away: Away) -> None:
        self._rests = rests
        self._away = away
        self._groups = [kept] if kept else []  # of those that have no end, what may be sent together; the first one last
        self._doubtful: list[Sequence[Kept]] = []  # groups of which nothing is sure to be taken
        self._asked: Sequence[Kept] = ()  # in the last call
        self._refused: list[Sequence[Kept]] = []  # of these, what was refused together
        self._open = {claimed.id for claimed, _ in kept}
        self._known = 0  # how many ends
        self._stays: dict[Name, str] = {}  # of each name, the first that stays: it keeps back later ones
        self._names = {claimed.id: Name(new.topic, new.key) for claimed, new in kept if new.key is not None}
        self._earlier: dict[str, str] = {}  # of each that has one, the one before it of its name
        last: dict[Name, str] = {}
        for id, name in self._names.items():
            if name in last:
                self._earlier[id] = last[name]
            last[name] = id

    def refused(self, some: Sequence[Kept]) -> None:
        """These were, together: each half is sent by itself."""
        self._refused.append(some)

    def next(self, ends: list[End]) -> Sequence[Kept]:
        """All of a group that is sure to find an answer and room, as far as is known; else what may find no answer; else one
        that may find no room. Empty when all have their ends. The ends of what can't be sent now are added to the list.
        """
        self._sort_out(ends)
        self._asked = self._sure(ends)
        if not self._asked and self._doubtful:  # more may be known by now
            self._groups, self._doubtful = self._doubtful[::-1], []
            self._asked = self._sure(ends) or self._doubted()
        return self._asked

    def _sort_out(self, ends: Sequence[End]) -> None:
        """What has no end yet after a call is tried again."""
        for end in ends[self._known :]:
            self._open.discard(end.id)
            if end.verdict == "release":
                self._stick(end.id)
        self._known = len(ends)
        apart = {claimed.id for some in self._refused for claimed, _ in some}
        if left := [each for each in self._asked if each[0].id in self._open and each[0].id not in apart]:
            self._groups.append(left)
        for some in self._refused:
            half = (len(some) + 1) // 2
            self._groups += [some[half:], some[:half]]
        self._refused = []

    def _sure(self, ends: list[End]) -> Sequence[Kept]:
        """Of the first group that has such."""
        while self._groups:
            sure, doubtful, ids = list[Kept](), list[Kept](), set[str]()
            for each in self._groups.pop():
                claimed, _ = each
                name = self._names.get(claimed.id)
                if name in self._stays and self._stays[name] < claimed.id:
                    ends.append(end_of(claimed, "release", SOON))
                elif not self._away.answering([each], ends):
                    self._stick(claimed.id)
                elif self._rests.doubt(each) == NO_DOUBT and self._is_next(claimed.id, ids):
                    sure.append(each)
                    ids.add(claimed.id)
                else:
                    doubtful.append(each)
            if doubtful:
                self._doubtful.append(doubtful)
            if sure:
                return sure
        return ()

    def _doubted(self) -> Sequence[Kept]:
        for at, group in enumerate(self._doubtful):
            silent, ids = list[Kept](), set[str]()
            for each in group:
                if self._rests.doubt(each) <= SILENCE and self._is_next(each[0].id, ids):
                    silent.append(each)
                    ids.add(each[0].id)
            if silent:
                self._doubtful[at] = [each for each in group if each[0].id not in ids]
                return silent
        full = small_first(sorted((each for group in self._doubtful for each in group), key=lambda each: each[0].id))
        self._doubtful = [[each for each in group if each is not full[0]] for group in self._doubtful]
        return full[:1]

    def _stick(self, id: str) -> None:
        if (name := self._names.get(id)) is not None:
            self._stays[name] = min(id, self._stays.get(name, id))

    def _is_next(self, id: str, together: set[str]) -> bool:
        """Whether nothing of its name has to be sent before it, but what is sent with it."""
        earlier = self._earlier.get(id)
        return earlier is None or earlier not in self._open or earlier in together

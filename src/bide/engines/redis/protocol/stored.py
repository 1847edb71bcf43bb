"""Counts and pages of what is stored: what the scripts are told, and what they answer.

A page is found first, by scripts that tell only when a message is due and its id, and then shown. Messages come by stage,
instant, shard and id: pending ones and leased ones by due time, dead ones by when they died. The ids of one due time are
in the order of sending, as far as a shard knows it.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

from bide.engines.base import Scanned, Stored, Window
from bide.engines.redis.protocol import Arg
from bide.engines.redis.protocol.encoding import LOCAL, NO_LEASE, Lease, full_id, stored
from bide.errors import BadOption
from bide.types import State, Stats

TOPICS = 50  # that one script is asked to count at most


class TopicCounts:
    """Counts of topics, which may take several scripts. All of them count at the time of the first."""

    def __init__(self, topics: Iterable[str], window: Window | None) -> None:
        self._left: list[str] = list(topics)
        self._window: Sequence[int] = (window.start, window.end, window.parts) if window else (0, 0, 0)
        self._at: int | None = None
        self._mark: bytes = b""
        self.found: dict[str, Stats] = {}

    def args(self) -> list[Arg] | None:
        """What to ask next; None when all is counted."""
        if not self._left:
            return None
        return ["" if self._at is None else self._at, *self._window, self._mark, *self._left[:TOPICS]]

    def hear(self, reply: Sequence[Any]) -> None:
        now, counted, self._mark = reply
        self._at = int(now) if self._at is None else self._at
        for told in counted:
            topic = self._left.pop(0)
            if told:
                self.found[topic] = _stats(self._at, told)


def _stats(now: int, told: Sequence[Any]) -> Stats:
    scheduled, ready, leased, dead, dropped, paused, oldest, following, timeline = told
    return Stats(
        scheduled=scheduled,
        ready=ready,
        leased=leased,
        dead=dead,
        dead_dropped=dropped,
        paused=bool(paused),
        oldest_overdue=(now - int(oldest)) / 1000 if oldest else None,
        next_due=int(following) if following else None,
        timeline=timeline,
    )


PENDING, LEASED, DEAD = 1, 2, 3

_STAGES: dict[State | None, tuple[int, ...]] = {
    None: (PENDING, LEASED, DEAD),
    "scheduled": (PENDING,),
    "ready": (PENDING,),
    "leased": (LEASED,),
    "dead": (DEAD,),
}
_FOUND = Struct(f"6s6s{LOCAL}s")  # due time or time of death, end of the lease, id
_BAD_MARK = BadOption("after is not the mark of a page: give back a page's own .after, or None for the first.")
_OTHER_MARK = BadOption("after is the mark of a page of another queue: begin again with None.")


class PageMark(NamedTuple):
    """The last message of a page, or the beginning of a stage."""

    stage: int
    instant: int
    shard: int
    local: bytes

    def text(self) -> str:
        return f"{self.shard}.{self.stage}.{self.instant}.{self.local.hex()}"


def read_mark(after: str, most: int) -> PageMark:
    try:
        shard, stage, instant, local = after.split(".")
        mark = PageMark(int(stage), int(instant), int(shard), bytes.fromhex(local))
    except ValueError:
        raise _BAD_MARK from None
    if (
        mark.stage not in (PENDING, LEASED, DEAD)
        or not 0 <= min(mark[:3]) <= max(mark[:3]) < 2**53
        or len(mark.local) not in (0, LOCAL)
    ):
        raise _BAD_MARK
    if mark.shard > most:
        raise _OTHER_MARK
    return mark


class FoundMessage(NamedTuple):
    """A message that a script has met."""

    instant: int
    shard: int
    local: bytes
    topic: str  # its number
    lease: Lease


class Search:
    """The first messages of one stage behind a mark on one shard, which may take several scripts."""

    def __init__(self, topic: str, state: State | None, mark: PageMark, limit: int, shard: int) -> None:
        self._topic = topic
        self._state: str = state or ""
        self._mark = mark
        self._limit = limit
        self.shard: int = shard
        self._at: int | None = None
        self._stopped: Sequence[Arg] | None = [b"0"] if mark.stage == LEASED else [0, 0, 0]
        self._found: dict[bytes, FoundMessage] = {}

    @property
    def verb(self) -> str:
        return "leased" if self._mark.stage == LEASED else "scan"

    def args(self) -> list[Arg] | None:
        """What to ask next; None when all is found."""
        if self._stopped is None:
            return None
        last = self.found[-1].instant if len(self._found) == self._limit else ""
        asked: list[Arg] = [self._topic, self._limit, *self._behind(), last, *self._stopped]
        if self._mark.stage != LEASED:
            asked[:1] = ["" if self._at is None else self._at, self._topic, self._state]
        return asked

    def _behind(self) -> tuple[int, bytes]:
        """An instant, and an id of that instant: what comes behind these, on this shard, comes behind the mark."""
        mark = self._mark
        if self.shard == mark.shard:
            return mark.instant, mark.local
        return mark.instant + (self.shard < mark.shard), b""

    def hear(self, reply: Sequence[Any]) -> None:
        now, topic, text, stopped, *told = reply
        claims = told[0] if told else None
        self._at = int(now) if self._at is None else self._at
        self._stopped = stopped or None
        for place, (due, end, local) in enumerate(_FOUND.iter_unpack(text)):
            lease = NO_LEASE if claims is None else _lease(end, *claims[2 * place : 2 * place + 2])
            self._found[local] = FoundMessage(int.from_bytes(due, "big"), self.shard, local, topic.decode(), lease)
        self._found = {each.local: each for each in self.found}

    @property
    def found(self) -> list[FoundMessage]:
        return sorted(self._found.values())[: self._limit]


class TopicPage:
    """A page of a topic: where to look for what comes next, and what of it belongs on the page."""

    def __init__(
        self, topic: str, state: State | None, limit: int, after: str | None, shards: Sequence[int], most: int
    ) -> None:
        """`most`: the highest number of a shard that there is or was."""
        stages = _STAGES[state]
        self._topic = topic
        self._state: State | None = state
        self._limit = limit
        self._shards = shards
        self._shown: list[Stored] = []
        self._mark: PageMark = _begin(stages[0]) if after is None else read_mark(after, most)
        self._stages: list[int] = [stage for stage in stages if stage >= self._mark.stage]
        self._more = False  # whether there is something behind the mark, as far as is known

    def searches(self) -> list[Search]:
        """One for each shard; none when the page is complete."""
        room = self._limit - len(self._shown)
        if not self._stages or (self._more and not room):
            return []
        if self._mark.stage != self._stages[0]:
            self._mark = _begin(self._stages[0])
        state: State | None = "dead" if self._mark.stage == DEAD else self._state
        return [Search(self._topic, state, self._mark, room + 1, shard) for shard in self._shards]

    def choose(self, searches: Iterable[Search]) -> list[FoundMessage]:
        """Those that come next, in order."""
        found = sorted(each for search in searches for each in search.found)
        chosen = found[: self._limit - len(self._shown)]
        self._more = len(found) > len(chosen)
        if not self._more:
            self._stages.pop(0)
        elif chosen:
            last = chosen[-1]
            self._mark = PageMark(self._mark.stage, last.instant, last.shard, last.local)
        return chosen

    def show(self, messages: Iterable[Stored | None]) -> None:
        self._shown += [each for each in messages if each is not None]

    def page(self) -> Scanned:
        return Scanned(self._shown, self._mark.text() if self._stages else None)


def _begin(stage: int) -> PageMark:
    return PageMark(stage, 0, 0, b"")


def _lease(end: bytes, request: bytes, number: bytes) -> Lease:
    return Lease(int.from_bytes(end, "big"), request.decode(errors="replace"), int(number))


def shown(found: FoundMessage, name: str, now: int, told: Sequence[Any]) -> Stored | None:
    """A message of a page, unless it has moved since it was found."""
    if not told:
        return None
    message = stored(found.shard, name, now, told[1], found.lease)
    again = told[1][3].partition(b" ")[2]
    moved = message.state in ("scheduled", "ready") and int(again or message.due) != found.instant
    return None if moved or (told[1][3] == b"leased") != bool(found.lease.end) else message


class Lookup:
    """What is stored about messages, of which one script may tell but some."""

    def __init__(self, named: Sequence[Sequence[Arg]]) -> None:
        self._named = named
        self.now: int = 0
        self.told: list[Sequence[Any]] = []

    def args(self) -> list[Arg] | None:
        """What to ask next; None when all is told."""
        left = self._named[len(self.told) :]
        return [len(left), *(part for each in left for part in each)] if left else None

    def hear(self, reply: Sequence[Any]) -> None:
        self.now = int(reply[0])
        self.told += reply[1:]

    def leased(self) -> dict[int, bytes]:
        """Full ids of those that are leased, by their position."""
        return {
            i: full_id(told[1][0].decode(), told[1][1]) for i, told in enumerate(self.told) if told and told[1][3] == b"leased"
        }

    def stored(self, shard: int, leases: Mapping[bytes, Lease]) -> list[Stored | None]:
        leased = self.leased()
        return [
            stored(shard, told[0].decode(), self.now, told[1], leases.get(leased.get(i, b""), NO_LEASE)) if told else None
            for i, told in enumerate(self.told)
        ]


class LeaseHolders:
    """Who leases messages, since when and until when, which may take several scripts."""

    def __init__(self, fulls: Iterable[bytes]) -> None:
        self._left: set[bytes] = set(fulls)
        self._cursor = b"0"
        self._begun = False
        self.found: dict[bytes, Lease] = {}

    def args(self) -> list[Arg] | None:
        """What to ask next; None when all is found, or there is nothing more to look at."""
        if not self._left or (self._begun and self._cursor == b"0"):
            return None
        return [self._cursor, *sorted(self._left)]

    def hear(self, reply: Sequence[Any]) -> None:
        self._begun = True
        _, self._cursor, found = reply
        for full, end, request, number in zip(*(found[place::4] for place in range(4)), strict=True):
            self.found[full] = Lease(int(end), request.decode(errors="replace"), int(number))
        self._left -= self.found.keys()

"""A topic and its messages: pending ones in heaps by due time, one for each priority.

A heap is faster here than the timing wheel of bide.timers (`python -m benchmarks memory_schedule` prints both). A message
that moves or ends leaves its old entry in the heap; such entries are dropped when they come to the top, or all at once
when they outnumber the others.

Messages and claims are Structs that the garbage collector does not visit: a million of them would slow everything down.
So they must never be part of a reference cycle, and name each other by id.
"""

import heapq
from collections.abc import Iterator

import msgspec

from bide.core.times import Planned, reached_at
from bide.engines.base import Claimed, NewMessage, Stored, claim_time
from bide.types import State, Stats

PENDING, LEASED, DEAD, ENDED = range(4)
OLDEST_EVERY = 8  # every eighth message handed out is the oldest, whatever its priority


class HeldClaim(msgspec.Struct, gc=False):
    """One claim, with the messages that it delivered."""

    token: str
    request: str | None
    ids: list[str]
    live: int  # of them, how many are still held
    at: int  # when it was made


class Message(msgspec.Struct, gc=False):
    id: str
    content: NewMessage
    due: int
    since: int  # its due time before retry or release moved it: its expiry counts from it
    key: str | None
    entry: int  # of its entries in the topic's heaps, the one that counts; also the order of sending
    stage: int = PENDING
    attempt: int = 0
    claim: HeldClaim | None = None  # while leased
    lease_until: int | None = None
    last_error: str | None = None
    died: int = 0
    began: int | None = None  # its first attempt, once that has failed, put it off or ended with its lease
    traces: bytes = b""  # records of attempts that failed
    instant: bool = False  # its due time is one, by the wall clock

    @property
    def planned(self) -> Planned:
        return Planned(self.due, self.since, self.instant)

    def plan(self, planned: Planned) -> None:
        self.due, self.since, self.instant = planned

    def ready(self, now: int, wall: int) -> bool:
        return self.due <= (wall if self.instant else now)

    def claimed(self, token: str) -> Claimed:
        content = self.content
        return Claimed(
            self.id, content.topic, content.body, content.headers, self.key, self.due, self.since, self.attempt,
            content.max_attempts, token, self.began,
        )  # fmt: skip

    @property
    def expires(self) -> int | None:
        life = self.content.expires_in
        return None if life is None else self.since + life

    def expired(self, now: int) -> bool:
        life = self.content.expires_in
        return life is not None and self.since + life <= now

    def state(self, now: int, wall: int) -> State:
        if self.stage == LEASED:
            return "leased"
        if self.stage == DEAD:
            return "dead"
        return "ready" if self.ready(now, wall) else "scheduled"

    def stored(self, now: int, wall: int) -> Stored:
        content = self.content
        return Stored(
            id=self.id,
            topic=content.topic,
            state=self.state(now, wall),
            due=self.due,
            attempt=self.attempt,
            max_attempts=content.max_attempts,
            key=self.key,
            level=content.level,
            body=content.body,
            headers=content.headers,
            last_error=self.last_error,
            lease_until=self.lease_until,
            expires=self.expires,
            request=None if self.claim is None else self.claim.request,
            leased_since=None if self.claim is None else claim_time(self.claim.token, now),
            since=self.since,
            token=None if self.claim is None else self.claim.token,
        )


Entry = tuple[int, int, Message]


class Topic:
    def __init__(self, name: str) -> None:
        self.name: str = name
        self.paused: bool = False
        self.keys: dict[str, Message] = {}
        self.leased: dict[str, Message] = {}
        self.dead: dict[str, Message] = {}  # in the order of death
        self.dead_dropped: int = 0
        self.pending: int = 0
        self._heaps: tuple[list[Entry], list[Entry], list[Entry]] = ([], [], [])
        self._held: list[Entry] = []  # a heap of instants that engine time has passed, and a clock that was set back has not
        self._count = 0

    @property
    def idle(self) -> bool:
        """Whether it can be dropped without losing anything."""
        return not (self.pending or self.leased or self.dead or self.paused or self.dead_dropped)

    def add(self, message: Message) -> bool:
        """Take in a pending message; True when it is now the first of its priority."""
        heap = self._heaps[message.content.level]
        first = not heap or message.due < heap[0][0]
        heapq.heappush(heap, (message.due, message.entry, message))
        self.pending += 1
        return first

    def forget(self) -> None:
        """A pending message has moved or ended: its entry does not count any more."""
        self.pending -= 1
        if sum(map(len, self._all_heaps)) > 2 * self.pending + 1_000:
            for heap in self._all_heaps:
                heap[:] = [entry for entry in heap if _counts(entry)]
                heapq.heapify(heap)

    def first_due(self, now: int, wall: int) -> int | None:
        """When the first of what is pending is to be handed out."""
        self._hold_back(now, wall)
        heads = [heap[0][0] for heap in self._heaps if heap and _head_counts(heap)]
        if self._held:
            heads.append(reached_at(self._held[0][0], now, wall))
        return min(heads, default=None)

    def take(self, now: int, wall: int) -> Message | None:
        """Take out the message that is to be handed out next. It is no longer pending."""
        self._hold_back(now, wall)
        heap = self._next_heap(now)
        if heap is None:
            return None
        self.pending -= 1
        return heapq.heappop(heap)[2]

    def _hold_back(self, now: int, wall: int) -> None:
        """Keep apart the instants for which it is too early yet, as far as they come first; and bring back the others."""
        while self._held and (not _counts(self._held[0]) or _let_go(self._held[0][2], now, wall)):
            entry = heapq.heappop(self._held)
            heapq.heappush(self._heaps[entry[2].content.level], entry)
        for heap in self._heaps if wall < now else ():
            while heap and _head_counts(heap) and heap[0][0] <= now and not _let_go(heap[0][2], now, wall):
                heapq.heappush(self._held, heapq.heappop(heap))

    @property
    def _all_heaps(self) -> tuple[list[Entry], ...]:
        return *self._heaps, self._held

    def _next_heap(self, now: int) -> list[Entry] | None:
        due = [heap for heap in self._heaps if heap and _head_counts(heap) and heap[0][0] <= now]
        if not due:
            return None
        if len(due) == 1:
            return due[0]
        self._count += 1
        return min(due) if self._count % OLDEST_EVERY == 0 else due[0]

    def entries(self) -> Iterator[Entry]:
        """All that is pending, in no order."""
        for heap in self._all_heaps:
            yield from filter(_counts, heap)

    def stats(self, now: int, wall: int) -> Stats:
        self._hold_back(now, wall)
        ready = sum(_ready(heap, now, wall) for heap in self._heaps)
        first = min((heap[0][0] for heap in self._heaps if heap and _head_counts(heap)), default=None)
        if ready or self._held:
            next_due = min((due for due, _, each in self.entries() if not each.ready(now, wall)), default=None)
        else:
            next_due = first
        return Stats(
            scheduled=self.pending - ready,
            ready=ready,
            leased=len(self.leased),
            dead=len(self.dead),
            dead_dropped=self.dead_dropped,
            paused=self.paused,
            oldest_overdue=(now - first) / 1000 if ready and first is not None else None,
            next_due=next_due,
        )


def _counts(entry: Entry) -> bool:
    message = entry[2]
    return message.stage == PENDING and message.entry == entry[1]


def _let_go(message: Message, now: int, wall: int) -> bool:
    """Whether it is handed out, or ends."""
    return message.ready(now, wall) or message.expired(now)


def _head_counts(heap: list[Entry]) -> bool:
    while heap and not _counts(heap[0]):
        heapq.heappop(heap)
    return bool(heap)


def _ready(heap: list[Entry], now: int, wall: int) -> int:
    """How many are due. A heap's parent is never due after its children: the search ends where nothing is due."""
    found, left = 0, [0]
    while left:
        index = left.pop()
        if index < len(heap) and heap[index][0] <= now:
            found += _counts(heap[index]) and heap[index][2].ready(now, wall)
            left += (2 * index + 1, 2 * index + 2)
    return found

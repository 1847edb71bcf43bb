"""The words of the seam: what its verbs take and answer, and what an engine may be able to do."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from bide.clock import Clock
from bide.core.times import MAX_DELAY_MS, Planned, planned, planned_at
from bide.engines.gates import Called
from bide.errors import BideError, OutcomeUnknown
from bide.types import State, Stats

E = TypeVar("E", bound=Exception)

MAX_BATCH = 1_000  # messages in one call, so that no server is held up by one of them
OPERATION_MS = 600_000  # how long an operation is remembered
ANY_PART: Sequence[int] = ()  # of an engine with several, where any will do
SWEEP = 5.0  # seconds: a lost wake-up, or a lease that has ended, is noticed no later

Verdict: TypeAlias = Literal["done", "retry", "release", "dead"]
Origin: TypeAlias = Literal["now", "due", "since"]
Ended: TypeAlias = Literal["done", "scheduled", "dead", "expired", "lost"]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do. Calls for what it can't do raise Unsupported."""

    accepted: str  # what is true of a message once put has returned
    cancel: bool = True  # cancel and reschedule
    lookup: bool = True  # get
    keys: bool = True  # key and if_exists
    idempotent: bool = True  # operation
    fencing: bool = True  # an old token is refused
    extend: bool = True
    attempts: bool = True  # counted, and limited by max_attempts
    inspect: bool = True  # scan, stats, and purge of any state; then there is `dead`, too
    dead: bool = True  # dead letters can be listed, requeued and purged: scan and purge of that state, and requeue
    pause: bool = True
    priority: bool = True
    gates: bool = True  # locks, and limits over all workers
    traces: bool = True  # records of attempts that failed are kept; others pass over them
    results: bool = True  # what tasks return is kept, and messages may wait for others
    past: bool = True  # a message may be put with the attempts that it has had elsewhere, or as a dead letter
    ordered: bool = True  # due order is exact; otherwise a backlog may come in the order of sending
    instants: bool = True  # `at` waits for the server's clock, as it stands; otherwise for engine time, which may be ahead
    transactional: bool = False  # connection= joins the caller's transaction
    wake: bool = True  # wait returns for a message sent by anybody; otherwise only by time
    persistent: bool = True  # outlives the process
    tick: int = 1  # ms: times are rounded up to it
    max_delay: int = MAX_DELAY_MS
    max_body: int = 2**30
    max_topics: int = 2**31  # in one claim
    together: int = (
        1  # messages that one purge by ids, a cancel of what was seen, or a reschedule on a condition does as a whole
    )
    colours: frozenset[str] = frozenset({"sync", "async"})


class Past(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """What a message has lived through elsewhere, before it is put here."""

    attempt: int = 0
    error: str | None = None
    traces: Sequence[bytes] = ()  # records of attempts that failed, oldest first, as `get` tells them
    dead: bool = False  # it is put as a dead letter, which holds no key: requeue gives it back if it is free


class NewMessage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A message to be put. Times are milliseconds. One that is stored as it is, is not read by a release that lacks a field."""

    topic: str
    body: bytes
    delay: int = 0  # from the engine's now
    at: int | None = None  # an instant, in place of a delay
    key: str | None = None
    if_exists: str = "keep"
    level: int = 1  # of priority: 0 high, 1 normal, 2 low
    expires_in: int | None = None  # from its due time
    max_attempts: int = 3
    headers: Mapping[str, str] = {}  # each its own: a hook may add to them
    operation: str | None = None
    within: str | None = None  # the id of the running message whose handler sends this, under that message's own key
    max_wait: int | None = None  # with if_exists later: never due later than this after the first of such sends
    unique_for: int | None = None  # no other such send of its topic and key is accepted so long, whatever becomes of it
    largest: int = 262_144  # bytes, with if_exists merge: a list that would be larger is left as it is, and this one follows
    past: Past | None = None  # with if_exists keep alone: where the message comes from another queue


def operation_of(new: NewMessage) -> str:
    """What an engine remembers an operation by: it belongs to its topic and key. No line break is in any of them."""
    return f"{new.topic}\n{new.key or ''}\n{new.operation}"


def period_of(new: NewMessage) -> str:
    """The same of the time for which a message is the only one of its key: an operation that has no name."""
    return f"{new.topic}\n{new.key}\n"


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A message that was handed out."""

    id: str
    topic: str
    body: bytes
    headers: Mapping[str, str]
    key: str | None
    due: int
    since: int  # when it first fell due in this life
    attempt: int
    max_attempts: int
    token: str
    began: int | None = None  # its first attempt since it was last given a time, as far as an end has told; None: this one


class Claim(msgspec.Struct, frozen=True):
    messages: Sequence[Claimed]
    now: int  # the engine's, when it handed them out
    next_due: int | None  # when this caller should claim again if nothing wakes it: past, when it left something behind
    more: bool = False  # the claim stopped at its own bounds, or a part of the engine fails: claim again at once
    upkeep: int | None = None  # no upkeep is needed before, and wait sweeps by itself; None: not known, and callers sweep
    wake: float | None = None  # next_due by time.monotonic(), where the engine can tell it to the microsecond


class Ref(msgspec.Struct, frozen=True, gc=False):
    """A message by its id, or by its topic and key."""

    id: str | None = None
    topic: str | None = None
    key: str | None = None


class Seen(msgspec.Struct, frozen=True, gc=False):
    """A pending message as the caller saw it: it is left alone if it has changed."""

    due: int
    body: bytes | None = None  # None: it may be another


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A message, by its id, that must be pending and due then: else nothing is done."""

    id: str
    due: int


class Move(msgspec.Struct, frozen=True, gc=False):
    """A new time for a message: a delay, or an instant."""

    ref: Ref
    delay: int = 0
    at: int | None = None
    origin: Origin = "now"  # what the delay counts from: the engine's now, its due time, or since when it waits
    seen: int | None = None  # its due time as it was seen: if it has another, it is left alone, and the answer is gone

    def planned(self, was: Planned, floor: int, ceiling: int, wall: int) -> Planned:
        """Of a message with these times, when now is between floor and ceiling. What is told from an instant is one, too."""
        if self.origin == "now":
            return planned(self.delay, self.at, floor, ceiling, wall)
        due = min((was.due if self.origin == "due" else was.since) + self.delay, floor + MAX_DELAY_MS)
        return planned_at(due, floor, wall) if was.instant and due > wall else Planned(due, due, False)


class End(msgspec.Struct, frozen=True, gc=False):
    """The end of a delivery."""

    topic: str
    id: str
    token: str
    verdict: Verdict
    delay: int = 0  # for retry and release
    error: str | None = None  # for retry and dead
    aside: bool = False  # for release: it is called back, and the delay is only the longest that it waits for that
    began: int | None = None  # for retry and release: when the first attempt began, which later deliveries are told
    trace: bytes | None = None  # for retry and dead: a record of this attempt, of at most traces.LONGEST bytes
    attempts: int | None = None  # for retry: so many in all has the message now, which it keeps when it comes back
    noted: Any = None  # what its receiver knows of the delivery, for those who listen to events; engines pass over it


class Hold(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A delivery whose lease is to be extended. Each is a key of its own, whatever it holds: that takes no time."""

    topic: str
    id: str
    token: str


class Stored(msgspec.Struct, frozen=True, gc=False):
    """All that is stored about a message."""

    id: str
    topic: str
    state: State
    due: int
    attempt: int
    max_attempts: int
    key: str | None
    level: int
    body: bytes
    headers: Mapping[str, str]
    last_error: str | None
    lease_until: int | None
    expires: int | None
    request: str | None = None  # of what is leased: the name of the claim that holds it, where it has one
    leased_since: int | None = None  # when that claim was, where the engine can tell
    traces: Sequence[bytes] = ()  # records of attempts that failed, oldest first; only get tells them
    since: int | None = None  # when it first fell due in this life, where the engine can tell
    token: str | None = None  # of what is leased, where the engine can tell


def claim_time(number: int | str, now: int) -> int | None:
    """When a claim was, by its number: its time, or one more than the last number, which is higher after many claims."""
    since = int(number)
    return since if since <= now else None


class Scanned(msgspec.Struct, frozen=True):
    messages: Sequence[Stored]
    after: str | None
    missing: Sequence[str] = ()  # servers that did not answer: what they have is left out
    refused: Sequence[str] = ()  # a sentence of each of them that answered that it can't do it now


class Window(msgspec.Struct, frozen=True):
    """A stretch of time in so many equal parts."""

    start: int
    end: int
    parts: int
    about: bool = False  # of more than 10,000 messages of a topic in it, an engine may give an estimate


class Tended(msgspec.Struct, frozen=True):
    """What one piece of upkeep did."""

    returned: int = 0  # leases that had ended
    buried: int = 0  # of them, after the last attempt
    expired: int = 0
    dropped: int = 0  # dead letters too old or too many
    more: bool = False
    called: tuple[Called, ...] = ()  # waiters at gates, which the caller has to tell that it is their turn
    next_in: int | None = None  # ms until gates need upkeep again, as far as is known now

    def __add__(self, other: "Tended") -> "Tended":
        return Tended(
            self.returned + other.returned,
            self.buried + other.buried,
            self.expired + other.expired,
            self.dropped + other.dropped,
            self.more or other.more,
            self.called + other.called,
            min((each for each in (self.next_in, other.next_in) if each is not None), default=None),
        )


class Swept(msgspec.Struct, frozen=True):
    """What one page of requeue or purge did."""

    count: int
    more: bool
    keyless: int = 0  # of those requeued, how many came back without their key: a newer message holds it
    missing: Sequence[str] = ()  # servers that did not answer, of an engine that has several: what they have was left as it is
    unconfirmed: str = ""  # all was done, and this says why a part of it may be undone by a failover
    refused: Sequence[str] = ()  # a sentence of each server that failed: the rest of what it has was left, as far as is known

    def __add__(self, other: "Swept") -> "Swept":
        """What two parts of an engine did of one page."""
        return Swept(
            self.count + other.count,
            self.more or other.more,
            self.keyless + other.keyless,
            tuple(sorted({*self.missing, *other.missing})),
            self.unconfirmed or other.unconfirmed,
            tuple(sorted({*self.refused, *other.refused})),
        )


def as_one(errors: Sequence[E]) -> E:
    """What to raise where several parts failed, and none was done: it tells of each. OutcomeUnknown, if one of them is."""
    first = next((each for each in errors if isinstance(each, OutcomeUnknown)), errors[0])
    told = dict.fromkeys(map(str, errors))
    if len(told) == 1 or not isinstance(first, BideError):
        return first
    return type(first)(" ".join(told))


class Finding(msgspec.Struct, frozen=True):
    """One thing that `bide doctor` reports about the server or file of a queue."""

    name: str
    value: str
    level: Literal["ok", "warn", "bad"] = "ok"
    advice: str = ""
    where: str = ""  # of several servers those that it is about; empty when it is about all


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue was asked for, read and checked: what an engine is made from."""

    url: str  # as given; may hold a password, so it is never shown
    for_test: bool = False  # a test has moved the queue here
    named: bool = True  # False: nobody gave a URL, and this is the file that is used then
    namespace: str = "bide"
    client: object | None = None
    clock: Clock | None = None
    dead_for: int = 30 * 86_400_000  # ms that dead letters are kept
    dead_max: int = 100_000  # dead letters a topic
    confirm: str = "memory"  # when a write counts as accepted: then, or with "aof" or "replicas:N" a little later


def total(counts: Collection[Stats], topics: Mapping[str, Stats], parts: int = 0) -> Stats:
    """The counts of several topics, or of several parts of a topic, together. `parts`: of the window that was asked for."""
    return Stats(
        scheduled=sum(each.scheduled for each in counts),
        ready=sum(each.ready for each in counts),
        leased=sum(each.leased for each in counts),
        dead=sum(each.dead for each in counts),
        dead_dropped=sum(each.dead_dropped for each in counts),
        paused=any(each.paused for each in counts),
        oldest_overdue=max((each.oldest_overdue for each in counts if each.oldest_overdue is not None), default=None),
        next_due=min((each.next_due for each in counts if each.next_due is not None), default=None),
        topics=topics,
        timeline=[sum(each.timeline[part] for each in counts) for part in range(parts)],
        about=any(each.about for each in counts),
        missing=sorted({server for each in counts for server in each.missing}),
    )

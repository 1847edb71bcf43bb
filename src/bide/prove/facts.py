"""The facts of a history: operations with their begin and end, grouped by the message that they were about.

`began` and `ended` bound when an operation took effect, in nanoseconds of the machine's monotonic clock. What is
unknown has no end: it may have happened at any time since, or never.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from bide.prove.record import Result

NEVER = 2**63
ROLLBACK = "rollback"
"""The fault of a server that goes back to an older state. It begins when accepted changes may be forgotten, and lands when
the server is back in its older state."""
LOST_CLAIMS = "lost claims"
"""The fault of a server that may forget claims, renewals and gates, and nothing else: a failover of confirmed writes."""
RESHARD = "reshard"
"""What the kinds of faults begin with in which a queue gets another number of shards."""


class TimeSpan(Protocol):
    @property
    def began(self) -> int: ...
    @property
    def ended(self) -> int: ...


def before(first: TimeSpan, second: TimeSpan) -> bool:
    """Whether the first was certainly over when the second began."""
    return first.ended < second.began


class Send(msgspec.Struct, gc=False, kw_only=True):
    """One message that somebody tried to send; tries under one tag, or one operation, are one send."""

    began: int
    ended: int
    result: Result
    topic: str
    key: str | None
    tag: str
    body: str
    headers: str
    delay: int | None
    at: int | None
    expires_in: int | None
    max_attempts: int
    if_exists: str | None
    operation: str | None
    batch: str | None
    needs: Sequence[str] | None = None  # it is due when these are done, or else when it says
    tries: int = 1
    last: int = 0  # when the last try began
    id: str | None = None  # once it is known
    due: int | None = None
    outcome: str | None = None
    repeated: bool = False  # another send of the same operation was there first: this one's body is not stored

    @property
    def stored(self) -> bool:
        """Whether its body may have come into the queue."""
        return self.result != "fail" and not self.repeated and self.outcome not in ("kept", "duplicate", "exists")


class DeliveryFacts(msgspec.Struct, gc=False, kw_only=True):
    began: int  # the receive that it came from; 0 when that is not known
    ended: int
    took: int  # ms, that receive
    topic: str
    key: str | None
    tag: str | None
    body: str | None
    headers: str | None
    due: int
    now: int
    token: str
    attempt: int
    max_attempts: int
    lease: int
    call: int  # of the receive; with the process it names it
    process: str
    foreign: bool  # of a topic that was not asked for
    tags: Sequence[str] | None  # of all that was merged into it
    planned: int | None  # by a schedule: nobody has sent it
    again: bool  # asked for again, by the successor of a dead process


class Act(msgspec.Struct, gc=False, kw_only=True):
    """Anything else that was done to a message, or to a topic."""

    op: str
    began: int
    ended: int
    result: Result
    token: str | None = None
    topic: str | None = None
    key: str | None = None
    delay: int | None = None
    at: int | None = None
    lease: int | None = None
    state: str | None = None
    count: int = 0
    outcome: str | None = None
    value: str | None = None

    @property
    def happened(self) -> bool:
        return self.result == "ok"

    @property
    def possible(self) -> bool:
        return self.result != "fail"


class Handled(msgspec.Struct, gc=False, kw_only=True):
    """A worker's handler at work on a delivery. It has failed if it was left by an error."""

    began: int
    ended: int
    result: Result
    token: str
    topic: str
    gates: dict[str, int]
    planned: int | None
    needs: Sequence[str]
    value: str | None


class ClockSet(msgspec.Struct, gc=False, kw_only=True):
    """Somebody set the wall clock of the server, in this time."""

    began: int
    ended: int
    now: int | None  # ms, what it showed then; None: nobody knows


class Receive(msgspec.Struct, gc=False, kw_only=True):
    """A receive or a listen: some of its deliveries may be in no record."""

    began: int
    ended: int
    process: str
    call: int
    topics: frozenset[str]
    room: int | None  # how many deliveries may have been unseen; None: any number


class LeftMessage(msgspec.Struct, gc=False, kw_only=True):
    """A message that the queue held in the end."""

    topic: str
    key: str | None
    tag: str | None
    body: str | None
    headers: str | None
    due: int
    attempt: int
    state: str
    planned: int | None = None


class MessageFacts:
    """All that is known of one id."""

    __slots__ = ("acts", "deliveries", "handled", "id", "left", "sends")

    def __init__(self, id: str) -> None:
        self.id: str = id
        self.sends: list[Send] = []  # those that may have made or replaced it
        self.deliveries: list[DeliveryFacts] = []
        self.acts: list[Act] = []
        self.handled: list[Handled] = []
        self.left: LeftMessage | None = None

    @property
    def topic(self) -> str:
        of: Send | DeliveryFacts | LeftMessage | None = self.left or (self.sends or self.deliveries or [None])[0]
        return of.topic if of is not None else ""

    @property
    def accepted(self) -> bool:
        return any(send.result == "ok" for send in self.sends)

    def done(self, *ops: str) -> Iterator[Act]:
        return (act for act in self.acts if act.op in ops and act.happened)


class LastLook(msgspec.Struct):
    """The last look at what is left."""

    began: int
    ended: int
    drained: bool
    counts: dict[str, dict[str, int]] | None  # by topic, then by state


class Facts:
    def __init__(self) -> None:
        self.messages: dict[str, MessageFacts] = {}
        self.sends: dict[str, Send] = {}  # by tag
        self.keyed: dict[tuple[str, str], list[Send]] = {}  # by topic and key
        self.split: list[tuple[Send, str]] = []  # sends that were answered with another id, too
        self.topics: dict[str, list[Act]] = {}  # pause, resume, requeue and purge
        self.by_key: dict[tuple[str, str], list[Act]] = {}  # cancel and reschedule
        self.unseen: list[Receive] = []  # listens, and receives whose answer was lost
        self.answered: list[Receive] = []
        self.workers: set[str] = set()  # processes that have written down what their handlers did
        self.faults: dict[str, list[Act]] = {}  # by kind
        self.clocks: list[ClockSet] = []
        self.look: LastLook | None = None
        self.left: dict[str, LeftMessage] = {}
        self.records = 0
        self.operations = 0
        self.unknown = 0
        self.tries = 0  # of sends
        self.recovered = 0  # unknown sends that came out
        self.begin = NEVER
        self.end = 0

    def message(self, id: str) -> MessageFacts:
        found = self.messages.get(id)
        if found is None:
            found = self.messages[id] = MessageFacts(id)
        return found

    def of_topic(self, topic: str, *ops: str) -> list[Act]:
        return [act for act in self.topics.get(topic, ()) if act.op in ops]

    def rolled_back(self, since: int, until: int, *also: str) -> bool:
        """Whether the server went back to an older state in that time, or had begun to. `also`: other kinds of faults."""
        back = (fault for kind in (ROLLBACK, *also) for fault in self.faults.get(kind, ()) if fault.happened)
        return any(fault.began <= until and since <= fault.ended for fault in back)

    def resharded(self, until: int) -> bool:
        """Whether the queue had begun to get other shards by then."""
        faults = (fault for kind, acts in self.faults.items() if kind.startswith(RESHARD) for fault in acts)
        return any(fault.began <= until for fault in faults)

    def forgotten(self, done: TimeSpan) -> bool:
        """Whether it may have been undone since by a server that went back."""
        return self.rolled_back(done.began, done.ended)

    def may_be_made_again(self, send: Send) -> bool:
        """Whether it may have been made, seen and lost before a replica had confirmed it: claims are not confirmed."""
        return self.rolled_back(send.began, max(send.ended, send.last), LOST_CLAIMS)

    def partly_answered(self) -> list[Receive]:
        """Receives during faults. One that asks several servers is answered although the answer of one of them was lost."""
        faults = [fault for acts in self.faults.values() for fault in acts]
        return [
            each for each in self.answered if any(fault.began <= each.ended and each.began <= fault.ended for fault in faults)
        ]

    def requeues(self, message: MessageFacts) -> Iterator[Act]:
        """The requeues that may have revived it after it was dead."""
        for act in (*message.acts, *self.topics.get(message.topic, ())):
            if act.op == "requeue" and act.possible:
                yield act

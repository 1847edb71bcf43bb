"""The words that users meet: what goes into a queue and what comes back."""

import enum
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypedDict, overload

import msgspec

from bide.clock import moment

Duration: TypeAlias = float | int | timedelta | str
"""Seconds, a timedelta, or text such as "1h30m"."""

Priority: TypeAlias = Literal["high", "normal", "low"]
"""The order among messages that are due."""

IfExists: TypeAlias = Literal["keep", "replace", "later", "merge", "error"]
"""What a send does if another message holds its key.

keep: the other message stays as it is. replace: it gets the new body and time, and keeps its id. later: it gets the new body
and the later of both times, and keeps its id; with max_wait, never later than that after the first of these sends. merge: its
body is a list, which gets the new body at its end; all else stays. error: raise Exists. A running message can't be changed:
keep returns it, error raises Exists, and with the others a new message takes over the key.
"""

State: TypeAlias = Literal["scheduled", "ready", "leased", "dead"]
"""The state of a stored message. Done, cancelled and expired messages are not stored."""

Outcome: TypeAlias = Literal["created", "kept", "replaced", "postponed", "merged", "duplicate", "exists"]
"""What a send did. duplicate: nothing, as one with this key was sent within unique_for, which may have ended by now."""


class _Body(msgspec.Struct, frozen=True):
    body: object = None


class Outgoing(_Body, frozen=True, kw_only=True):
    """One message for `send_many`, of a queue or a task, with its own options, which are those of `send`.

    body: for a task, the arguments by name; for one of batches, the item.
    """

    delay: Duration | None = None
    at: datetime | None = None
    key: str | None = None
    if_exists: IfExists = "keep"
    priority: Priority = "normal"
    expires_in: Duration | None = None
    max_attempts: int | None = None
    headers: Mapping[str, str] | None = None
    max_wait: Duration | None = None
    unique_for: Duration | None = None


class Sent(msgspec.Struct, frozen=True, gc=False):
    """What a send returns. Always true; `str(sent)` is the message's id."""

    id: str
    topic: str
    due: int
    outcome: Outcome

    @property
    def due_at(self) -> datetime:
        return moment(self.due)

    @property
    def created(self) -> bool:
        return self.outcome == "created"

    def result(self, *, timeout: Duration | None = None) -> Any:
        """Return what the task returned, of a message whose task has `keep=`: a TaskSent, or to be awaited an AsyncTaskSent."""
        raise TypeError(
            f"What was sent to {self.topic} has no result, as far as this program knows: its tasks have no keep=, as in "
            f"@queue.task({self.topic!r}, keep='1h'). If another program's task keeps it, ask with queue.result(sent)."
        )

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return self.id


class CancelResult(enum.Enum):
    """The result of `cancel`. Only CANCELLED is true; with the others, nothing was changed.

    RUNNING: a worker has the message, and goes on. DEAD: it is a dead letter; use requeue or purge. GONE: it has ended, or
    never existed. A dead letter's key is free, so with its key the result is GONE.
    """

    CANCELLED = "cancelled"
    RUNNING = "running"
    DEAD = "dead"
    GONE = "gone"

    def __bool__(self) -> bool:
        return self is CancelResult.CANCELLED


class RescheduleResult(enum.Enum):
    """The result of `reschedule`. Only MOVED is true; with the others, nothing was changed.

    RUNNING: a worker has the message, and goes on. DEAD: it is a dead letter; use requeue with a delay. GONE: it has ended, or
    never existed. A dead letter's key is free, so with its key the result is GONE.
    """

    MOVED = "moved"
    RUNNING = "running"
    DEAD = "dead"
    GONE = "gone"

    def __bool__(self) -> bool:
        return self is RescheduleResult.MOVED


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages of a topic are meant: those to which all of this applies.

    error: their last error contains this text, in upper or lower case. key: this is their key; `*` stands for any text. older,
    younger: they were due longer ago, or less long ago or not yet, by this machine's clock. A dead letter was due when its last
    attempt was.
    """

    error: str | None = None
    key: str | None = None
    older: Duration | None = None
    younger: Duration | None = None


class Requeued(int):
    """The number of requeued dead letters. `keyless`: how many of them lost their key to a newer message.

    `asked`: how many were named or found. `gone`: how many of these were no dead letters of the topic by then.
    """

    keyless: int
    asked: int

    def __new__(cls, count: int, keyless: int = 0, asked: int | None = None) -> Self:
        made = super().__new__(cls, count)
        made.keyless = keyless
        made.asked = count if asked is None else asked
        return made

    @property
    def gone(self) -> int:
        return self.asked - self

    def __repr__(self) -> str:
        return f"Requeued({int(self)}, keyless={self.keyless}, asked={self.asked})"

    def __reduce__(self) -> tuple[type[Self], tuple[int, int, int]]:
        return type(self), (int(self), self.keyless, self.asked)


class Removed(int):
    """The number of messages that `purge` or `cancel_all` has removed.

    `asked`: how many were named or found. `running`: how many of these a worker has received meanwhile; they go on. `gone`: how
    many had ended, or were dead letters, or no longer so.
    """

    asked: int
    running: int

    def __new__(cls, count: int, asked: int | None = None, running: int = 0) -> Self:
        made = super().__new__(cls, count)
        made.asked = count if asked is None else asked
        made.running = running
        return made

    @property
    def gone(self) -> int:
        return self.asked - self - self.running

    def __repr__(self) -> str:
        return f"Removed({int(self)}, asked={self.asked}, running={self.running})"

    def __reduce__(self) -> tuple[type[Self], tuple[int, int, int]]:
        return type(self), (int(self), self.asked, self.running)


class Attempt(msgspec.Struct, frozen=True):
    """An attempt that failed. `worker` is its host and process; None if its end was not told by it, as when its lease ended."""

    number: int
    began: int  # by the engine's clock
    worker: str | None
    error: str | None
    traceback: str | None

    @property
    def began_at(self) -> datetime:
        return moment(self.began)


class Info(msgspec.Struct, frozen=True):
    """What is stored about a message. A body that can't be decoded is bytes.

    attempts: those that failed, the oldest first and at most ten; with less than ten when they have long tracebacks. Only `get`
    tells them: in a list of messages it is empty. A requeued message keeps those of its life before.
    """

    id: str
    topic: str
    state: State
    due: int
    attempt: int
    max_attempts: int
    key: str | None
    priority: Priority
    body: Any
    headers: Mapping[str, str]
    last_error: str | None
    lease_until: int | None
    expires: int | None
    worker: str | None = None  # the process that has it, as `machine:pid`; of what is leased
    leased_since: int | None = None  # when it got it
    attempts: Sequence[Attempt] = ()

    @property
    def due_at(self) -> datetime:
        return moment(self.due)


class Page(Sequence[Info]):
    """A page of a topic's messages. `after`: pass it to get the next page; None on the last one.

    `missing`: servers that did not answer, of a queue that has several. Their messages are not on the page.
    """

    def __init__(self, messages: Sequence[Info], after: str | None, missing: Sequence[str] = ()) -> None:
        self._messages = tuple(messages)
        self.after = after
        self.missing: tuple[str, ...] = tuple(missing)

    @overload
    def __getitem__(self, index: int) -> Info: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Info]: ...
    def __getitem__(self, index: int | slice) -> Info | Sequence[Info]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"Page({list(self._messages)!r}, after={self.after!r})"


class Stats(msgspec.Struct, frozen=True):
    """Counts by state: of one topic, or of all together, with each in `topics`."""

    scheduled: int = 0
    ready: int = 0
    leased: int = 0
    dead: int = 0
    dead_dropped: int = 0  # dead letters that were older or more than the queue keeps
    paused: bool = False  # of all together: whether any topic is
    oldest_overdue: float | None = None  # seconds that the oldest ready message has been waiting
    next_due: int | None = None  # of what is scheduled
    topics: Mapping[str, "Stats"] = {}
    timeline: Sequence[int] = ()  # pending messages that fall due in each part of the window asked for
    about: bool = False  # scheduled, ready or due_within is an estimate; below 10,000 of a topic, they are always exact
    missing: Sequence[str] = ()  # servers that did not answer, of a queue that has several: what they have is not counted
    due_within: Sequence[int] = ()  # pending messages that fall due within each of the times asked for, from now on

    @property
    def next_due_at(self) -> datetime | None:
        return None if self.next_due is None else moment(self.next_due)

    @property
    def pending(self) -> int:
        return self.scheduled + self.ready


class ScheduleInfo(msgspec.Struct, frozen=True):
    """What is known about a schedule, from any machine."""

    name: str
    topic: str
    schedule: str  # an interval, or a cron expression
    timezone: str
    missed: str
    next: int | None  # the instant that is planned or handled now
    announced: int  # when a worker announced it last
    paused: bool
    changed: bool  # by an operator, so that it differs from what the application says

    @property
    def next_at(self) -> datetime | None:
        return None if self.next is None else moment(self.next)

    @property
    def announced_at(self) -> datetime:
        return moment(self.announced)


class WorkerMinute(msgspec.Struct, frozen=True):
    """What a worker process has done in a minute."""

    begin: int
    done: int
    failed: int
    lateness: float  # seconds: of what it has received in this minute, the message that came latest after its due time

    @property
    def begin_at(self) -> datetime:
        return moment(self.begin)


class WorkerInfo(msgspec.Struct, frozen=True):
    """What a worker process has told of itself, every five seconds. It is known for an hour after the last time."""

    name: str  # as messages name their worker, too
    host: str
    pid: int
    version: str
    topics: Sequence[str]  # that it serves
    started: int
    seen: int  # when it told this
    stopped: bool  # it has ended as it should
    running: Mapping[str, int]  # how many messages of each topic it had
    done: int  # since it started
    failed: int  # attempts
    minutes: Sequence[WorkerMinute]  # of the last hour, those in which it has done something

    @property
    def started_at(self) -> datetime:
        return moment(self.started)

    @property
    def seen_at(self) -> datetime:
        return moment(self.seen)


class WorkerInfos(list[WorkerInfo]):
    """Worker processes, as `queue.workers()` lists them."""

    def __init__(self, workers: Iterable[WorkerInfo] = (), missing: Sequence[str] = ()) -> None:
        super().__init__(workers)
        self.missing: Sequence[str] = missing  # servers that did not answer, of a queue that has several: who works may be more


class Span(NamedTuple):
    """One bucket of a timeline: how many messages fall due from `start` up to, not including, `end`."""

    start: datetime
    end: datetime
    messages: int


class Flushed(NamedTuple):
    """What became of the messages that `later` took in this process: how many wait, were sent, and were lost."""

    waiting: int
    sent: int
    lost: int


class OneOptions(TypedDict, total=False):
    """The options of `after` and `at`."""

    key: str | None
    if_exists: IfExists
    priority: Priority
    expires_in: Duration | None
    max_attempts: int | None
    headers: Mapping[str, str] | None
    operation: str | None
    connection: object | None
    max_wait: Duration | None
    unique_for: Duration | None


class SendOptions(OneOptions, total=False):
    """The options of `queue.send`."""

    delay: Duration | None
    at: datetime | None
    depends_on: "Iterable[str | Sent] | None"
    deadline: Duration | None

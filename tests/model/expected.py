"""What the model expects: its messages, what get, scan and stats should show of them, and in what order they may come."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from bide.core.lifecycle import ENDS, Stage, Step, follow
from bide.core.times import Planned
from bide.engines.base import NewMessage, Ref, Stored, Window
from bide.engines.stored import MOST, ROOM, lease_ended
from bide.types import State, Stats

ANY_TEXT = "(any text)"  # for a reason that an engine words itself


class Divergence(AssertionError):
    """An engine's answer breaks a promise."""


def insist(holds: bool, sentence: str) -> None:
    if not holds:
        raise Divergence(sentence)


def agree(what: str, expected: object, got: object) -> None:
    insist(expected == got, f"{what}: expected {expected!r}, got {got!r}.")


class LeaseEnded(NamedTuple):
    """The record that an engine makes itself: the attempt began between these times."""

    attempt: int
    first: int
    last: int

    def __len__(self) -> int:
        return len(lease_ended(self.attempt, self.last))

    def is_told(self, record: bytes) -> bool:
        told = msgspec.json.decode(record, type=dict[str, int])
        return record == lease_ended(self.attempt, told["began"]) and self.first <= told["began"] <= self.last


@dataclass(slots=True)
class Message:
    """One message. It stays known after its end, so that the model notices if it comes back."""

    id: str
    sent: NewMessage  # the last put of this id: body, headers, level and limits
    key: str | None
    due: int = 0
    instant: bool = False  # its due time is one, by the wall clock
    held_up: int = 0  # if it is an instant that the clock was behind: when by engine time it is looked at again, at the latest
    since: int = 0  # when engine time comes to the due time that was asked for, which no retry, release or ended lease moves
    expires: int | None = None
    stage: Stage = "new"
    attempt: int = 0
    last_error: str | None = None
    lease_until: int | None = None
    token: str = ""  # of the last delivery
    request: str | None = None  # of the last claim, where it had one
    order: int | None = None  # of sending; None once its time was changed
    died: int = 0
    began: int | None = None  # its first attempt since it was last given a time, as an end told it, or the end of its lease
    claimed_at: int = 0
    traces: list[bytes | LeaseEnded] = field(default_factory=list)
    began_by: int | None = None  # of one whose lease ended: it began between claimed_at and then, and the next claim says when

    @property
    def topic(self) -> str:
        return self.sent.topic

    @property
    def pending(self) -> bool:
        return self.stage in ("scheduled", "ready")

    @property
    def ended(self) -> bool:
        return self.stage in ENDS

    def sends(self, new: NewMessage) -> bool:
        """Whether the new message is sent by the handler of this one."""
        return not self.pending and self.id == new.within

    @property
    def unmoved(self) -> str:
        """The answer to a cancel or reschedule that finds it not pending."""
        return {"leased": "RUNNING", "dead": "DEAD"}.get(self.stage, "GONE")

    @property
    def last(self) -> bool:
        """Whether the current attempt is the last one."""
        return self.is_last()

    def is_last(self, most: int | None = None) -> bool:
        """The same, where the message has so many attempts in all."""
        return self.attempt >= (most or self.sent.max_attempts)

    def step(self, by: Step) -> None:
        self.stage = follow(self.stage, by)
        self.lease_until = None

    def plan(self, when: Planned) -> None:
        """Ask for a time, from which its expiry counts."""
        self.due, self.since, self.instant = when
        self.held_up = 0
        self.began = self.began_by = None
        self.expires = None if self.sent.expires_in is None else self.since + self.sent.expires_in

    def come_back(self, due: int) -> None:
        """With another due time than before, it comes after a delay."""
        self.instant = self.instant and due == self.due
        self.due, self.order, self.held_up = due, None, 0

    def vague(self, now: int) -> bool:
        """Whether the engine may not know yet that it is ready, or that it is not."""
        return self.pending and now < self.held_up

    def record(self, trace: "bytes | LeaseEnded") -> None:
        """Keep it, with as many of those before as there is room for."""
        self.traces = [*self.traces, trace][-MOST:]
        while len(self.traces) > 1 and sum(map(len, self.traces)) > ROOM:
            del self.traces[0]

    def too_late(self, when: int) -> bool:
        return self.expires is not None and when >= self.expires

    def lease_over(self, when: int) -> bool:
        return self.stage == "leased" and (self.lease_until or 0) <= when

    def before(self, other: "Message") -> bool:
        """Whether this one may come first, of two with the same topic and priority."""
        if self.due == other.due and self.order is not None and other.order is not None:
            return self.order <= other.order
        return self.due <= other.due

    @property
    def scan_order(self) -> tuple[int, int]:
        """Pending messages by due time, then leased ones by due time, then dead ones as they died."""
        if self.stage == "dead":
            return 2, self.died
        return int(self.stage == "leased"), self.due

    def stored(self, now: int = 0, got: Stored | None = None) -> Stored:
        """What is to be told of it where `got` is. An engine may not know when a claim was, and may name it itself."""
        state: State = self.stage  # type: ignore[assignment]  # asked of what has not ended
        if got is not None and self.vague(now) and got.state in ("scheduled", "ready"):
            state = got.state
        held = self.stage == "leased" and got is not None
        request = (self.request or got.request) if held and got else None
        since = got.leased_since if held and got else None
        insist(since is None or self.claimed_at <= since <= now, f"{self.id} is leased since {self.claimed_at}, not {since}.")
        born = None if got is None or got.since is None else self.since
        token = self.token if held and got and got.token else None
        return Stored(
            id=self.id, topic=self.topic, state=state, due=self.due, attempt=self.attempt,
            max_attempts=self.sent.max_attempts, key=self.key, level=self.sent.level, body=self.sent.body,
            headers=self.sent.headers, last_error=self.last_error, lease_until=self.lease_until, expires=self.expires,
            request=request, leased_since=since, since=born, token=token,
        )  # fmt: skip


@dataclass(slots=True)
class Expected:
    """All messages and what else is known of their topics, at one moment."""

    now: int = 0
    wall: int = 0  # the server's clock: behind now when it was set back
    messages: dict[str, Message] = field(default_factory=dict)
    alive: dict[str, Message] = field(default_factory=dict)  # of them, those that had not ended when time was last looked at
    paused: set[str] = field(default_factory=set)
    dropped: dict[str, list[int]] = field(default_factory=dict)  # dead letters, by topic: when each would be too old

    def add(self, message: Message) -> None:
        self.messages[message.id] = self.alive[message.id] = message

    def forget_ended(self) -> None:
        """They stay known, but are not searched any more: a long history has many."""
        for id in [id for id, each in self.alive.items() if each.ended]:
            del self.alive[id]

    def of(self, topic: str, *stages: Stage) -> list[Message]:
        return [each for each in self.alive.values() if each.topic == topic and each.stage in stages]

    def living(self) -> list[str]:
        return [id for id, each in self.alive.items() if not each.ended]

    def dead(self) -> list[str]:
        return [id for id, each in self.alive.items() if each.stage == "dead"]

    def stored(self, topic: str | None = None, state: State | None = None) -> list[Stored]:
        """What a scan should show."""
        shown = [each.stored() for each in self.alive.values() if not each.ended]
        return [each for each in shown if topic in (None, each.topic) and state in (None, each.state)]

    def stats(self, topic: str | None = None, window: Window | None = None) -> Stats:
        here = self.stored(topic)
        ready = [each.due for each in here if each.state == "ready"]
        scheduled = [each.due for each in here if each.state == "scheduled"]
        topics = {each.topic for each in here} | self.paused | {name for name, each in self.dropped.items() if each}
        return Stats(
            scheduled=len(scheduled),
            ready=len(ready),
            leased=sum(each.state == "leased" for each in here),
            dead=sum(each.state == "dead" for each in here),
            dead_dropped=sum(map(len, self.dropped.values())) if topic is None else len(self.dropped.get(topic, ())),
            paused=bool(self.paused) if topic is None else topic in self.paused,
            oldest_overdue=(self.now - min(ready)) / 1_000 if ready else None,
            next_due=min(scheduled, default=None),
            topics={name: self.stats(name, window) for name in topics} if topic is None else {},
            timeline=_timeline(ready + scheduled, window) if window else (),
        )

    def vague(self, topic: str | None) -> list[Message]:
        return [each for each in self.alive.values() if topic in (None, each.topic) and each.vague(self.now)]

    def drop(self, message: Message, too_old: int) -> None:
        message.step("drop")
        self.dropped.setdefault(message.topic, []).append(too_old)

    def _forget_dropped(self, topic: str, told: Stats | None) -> None:
        """An engine may stop counting dropped messages that would be too old by now, the oldest first."""
        ends = self.dropped.get(topic, [])
        count = len(ends) - (told.dead_dropped if told else 0)
        if count > 0 and max(ends[:count]) <= self.now:
            del ends[:count]

    def check_get(self, ref: Ref, known: Message | None, got: Stored | None) -> None:
        self._hear(got)
        told = got and replace(got, traces=())
        agree(f"get {ref}", known.stored(self.now, told) if known and not known.ended else None, told)
        if known and got:
            agree(f"get {ref}, number of records", len(known.traces), len(got.traces))
            for expected, record in zip(known.traces, got.traces, strict=True):
                same = expected.is_told(record) if isinstance(expected, LeaseEnded) else expected == record
                insist(same, f"get {ref}: the record {record!r} should be {expected!r}.")

    def check_scan(self, topic: str, state: State | None, answer: Iterable[Stored]) -> None:
        shown = list(answer)
        vague = {each.id for each in self.vague(topic)}
        if state in ("scheduled", "ready"):
            shown = [each for each in shown if each.id not in vague]
            expected = [each.id for each in self.stored(topic, state) if each.id not in vague]
        else:
            expected = [each.id for each in self.stored(topic, state)]
        agree(f"scan {topic} {state}, ids", sorted(expected), sorted(each.id for each in shown))
        for got in shown:
            self._hear(got)
            agree(f"scan {topic} {state}", self.messages[got.id].stored(self.now, got), got)
        order = [self.messages[got.id].scan_order for got in shown if not self.messages[got.id].held_up]
        agree(f"scan {topic} {state}, order", sorted(order), order)

    def check_stats(self, topic: str | None, window: Window | None, answer: Stats) -> None:
        for one in [*self.dropped] if topic is None else [topic]:
            self._forget_dropped(one, answer.topics.get(one) if topic is None else answer)
        expected, told = _plain(self.stats(topic, window)), _plain(answer)
        if any(each.held_up and each.pending for each in self.alive.values() if topic in (None, each.topic)):
            expected, told = _without_states(expected), _without_states(told)
        agree(f"stats of {topic or 'all topics'}", expected, told)

    def _hear(self, got: Stored | None) -> None:
        """Some reasons of death are worded by the engine: its first answer is expected from then on."""
        known = self.messages.get(got.id) if got else None
        if got and known and known.last_error == ANY_TEXT and got.last_error:
            known.last_error = got.last_error


def check_order(taken: Sequence[Message], left: Iterable[Message]) -> None:
    """Within a topic and a priority, messages are claimed and answered in order."""
    for first, second in [*combinations(taken, 2), *product(taken, left)]:
        same_level = first.topic == second.topic and first.sent.level == second.sent.level
        insist(
            not same_level or first.before(second),
            f"claim: {first.id}, due {first.due}, came before {second.id}, due {second.due}, in {first.topic}.",
        )


def fits(told: int | None, soonest: int | None, *, now: int, ordered: bool) -> bool:
    """If an engine is not ordered, the time to claim again may be too early, but not in the past."""
    if ordered or told == soonest:
        return told == soonest
    return told is not None and now < told and (soonest is None or told < soonest)


def check_oldest(what: str, expected: Sequence[Message], gone: Sequence[Message]) -> None:
    """The engine may choose among messages that died in the same millisecond."""
    agree(f"{what}, ages of those gone", *(sorted((m.topic, m.died) for m in each) for each in (expected, gone)))


def _timeline(dues: Iterable[int], window: Window) -> list[int]:
    width = (window.end - window.start) // window.parts
    counts = [0] * window.parts
    for due in dues:
        if window.start <= due < window.end:
            counts[(due - window.start) // width] += 1
    return counts


def _without_states(told: Mapping[str, Any]) -> Mapping[str, object]:
    """What there is to say where it is not sure yet which messages are ready. They may lie elsewhere on the timeline."""
    left_out = ("scheduled", "ready", "oldest_overdue", "next_due", "timeline", "topics")
    fields = {name: each for name, each in told.items() if name not in left_out}
    topics = {name: _without_states(each) for name, each in told["topics"].items()}
    return {**fields, "pending": told["scheduled"] + told["ready"], "topics": topics}


def _plain(stats: Stats) -> Mapping[str, Any]:
    """Comparable: seconds in whole milliseconds, sequences as lists, topics in order."""
    fields: dict[str, Any] = msgspec.structs.asdict(stats)
    overdue = stats.oldest_overdue
    fields["oldest_overdue"] = None if overdue is None else round(overdue * 1_000)
    fields["timeline"] = list(stats.timeline)
    fields["missing"] = list(stats.missing)
    fields["topics"] = {name: _plain(each) for name, each in sorted(stats.topics.items())}
    return fields

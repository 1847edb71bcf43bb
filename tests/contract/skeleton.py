"""The smallest engine that is one: a dict, and the verbs that an engine must have. It is slow, and keeps every promise."""

import itertools
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from bide.core.times import Planned, check_delay, due_time
from bide.engines import base
from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Claim, Hold, Move, NewMessage, Ref, Seen
from bide.engines.callers import Sleeper, Sleepers
from bide.errors import BadOption
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats
from bide.wakeable import AsyncSignal

LACKS = ("keys", "idempotent", "pause", "priority", "gates", "results", "persistent", "traces", "past", "instants")
CAPABILITIES = base.Capabilities(accepted="in a dict", colours=frozenset({"async"}), **dict.fromkeys(LACKS, False))
Ids = Sequence[str] | None
Now = int | None
Text = str | None
STATES = ("scheduled", "ready", "leased", "dead")  # the order of a listing; what is ready is kept among the scheduled


class Message(msgspec.Struct):
    id: str
    new: NewMessage
    due: int
    since: int
    kind: str = "scheduled"
    attempt: int = 0
    token: str = ""
    request: Text = None
    lease_until: int | None = None
    error: str | None = None
    died: int = 0
    began: int | None = None

    @property
    def expires(self) -> int | None:
        return None if self.new.expires_in is None else self.since + self.new.expires_in

    @property
    def place(self) -> tuple[int, int, str]:
        return STATES.index(self.kind), self.died if self.kind == "dead" else self.due, self.id

    def state(self, now: int) -> State:
        ready: State = "ready" if self.due <= now else "scheduled"
        return "dead" if self.kind == "dead" else "leased" if self.kind == "leased" else ready

    def claimed(self) -> base.Claimed:
        new, times = self.new, (self.due, self.since, self.attempt)
        return base.Claimed(self.id, new.topic, new.body, new.headers, None, *times, new.max_attempts, self.token, self.began)

    def stored(self, now: int) -> base.Stored:
        new, told = self.new, (self.id, self.new.topic, self.state(now), self.due, self.attempt, self.new.max_attempts, None, 1)
        held = (self.request, base.claim_time(self.token, now)) if self.kind == "leased" else (None, None)
        return base.Stored(*told, new.body, new.headers, self.error, self.lease_until, self.expires, *held)


class Shelf:  # what the engines of one namespace share
    def __init__(self, dead_for: int, dead_max: int) -> None:
        self.messages: dict[str, Message] = {}
        self.dropped: dict[str, int] = {}
        self.sleepers: Sleepers[str] = Sleepers()
        self.numbers = itertools.count(1)
        self.dead_for, self.dead_max, self.now, self.claims = dead_for, dead_max, 0, 0

    def at(self, now: int | None) -> int:
        self.now = max(self.now, time.time_ns() // 1_000_000 if now is None else now)
        return self.now

    def all(self, kind: str, topic: str | None = None) -> list[Message]:
        found = [each for each in self.messages.values() if each.kind == kind and topic in (None, each.new.topic)]
        return sorted(found, key=lambda each: each.place)

    def expired(self, message: Message) -> bool:
        return message.kind == "scheduled" and message.expires is not None and message.expires <= self.now

    def find(self, id: str | None) -> Message | None:
        message = self.messages.get(id or "")
        return None if message is None or self.expired(message) else message

    def held(self, hold: base.End | Hold) -> Message | None:
        message = self.messages.get(hold.id)
        known = message is not None and (message.kind, message.token, message.new.topic) == ("leased", hold.token, hold.topic)
        return message if known else None

    def schedule(self, message: Message, due: int) -> bool:  # False when it has expired by then, and so has ended
        message.kind, message.due, message.token, message.lease_until = "scheduled", due, "", None
        if message.expires is not None and max(due, self.now) >= message.expires:
            del self.messages[message.id]
            return False
        there = (each for each in self.messages.values() if each.kind == "scheduled" and each.new.topic == message.new.topic)
        if due <= self.now or all(message.place <= each.place for each in there):
            self.sleepers.wake([message.new.topic])
        return True

    def bury(self, message: Message, error: str | None) -> None:
        message.kind, message.error, message.died, message.lease_until, message.token = "dead", error, self.now, None, ""
        for each in self.all("dead", message.new.topic)[::-1][self.dead_max :]:
            self.drop(each)

    def drop(self, message: Message) -> None:
        del self.messages[message.id]
        self.dropped[message.new.topic] = self.dropped.get(message.new.topic, 0) + 1


class Skeleton(AsyncEngine):
    def __init__(self, shelf: Shelf) -> None:
        self.capabilities = CAPABILITIES
        self._shelf = shelf
        self._asleep: set[AsyncSignal] = set()

    async def open(self) -> None: ...

    async def close(self) -> None:
        for signal in self._asleep:
            signal.set()

    async def put(self, messages: Sequence[NewMessage], *, now: Now = None, **how: Any) -> list[Sent]:
        at = self._shelf.at(now)
        for new in messages:
            check_delay(new.delay, new.at, at)
        return [self._put(new, due_time(new.delay, new.at, at, at)) for new in messages]

    def _put(self, new: NewMessage, due: int) -> Sent:
        message = Message(f"{next(self._shelf.numbers):016d}", new, due, due)
        self._shelf.messages[message.id] = message
        self._shelf.schedule(message, due)
        return Sent(message.id, new.topic, due, "created")

    async def claim(self, topics: Sequence[str], limit: int, lease: int, *, request: Text = None, now: Now = None) -> Claim:
        shelf, at = self._shelf, self._shelf.at(now)
        held = [each for each in shelf.all("leased") if request is not None and each.request == request]
        for id in [each.id for each in shelf.messages.values() if shelf.expired(each) and each.new.topic in topics]:
            del shelf.messages[id]
        shelf.claims = max(shelf.claims + 1, at)
        for message in [] if held else self._choose(topics, limit):
            message.kind, message.token, message.request = "leased", f"{shelf.claims:016d}", request
            message.attempt, message.lease_until = message.attempt + 1, at + lease
            held.append(message)
        left = [each for each in shelf.all("scheduled") if each.new.topic in topics]
        shelf.sleepers.wake({each.new.topic for each in left if each.due <= at})
        return Claim([each.claimed() for each in held], at, min((each.due for each in left), default=None))

    def _choose(self, topics: Sequence[str], limit: int) -> list[Message]:  # one of each topic, and again
        shelf = self._shelf
        due = [[each for each in shelf.all("scheduled", topic) if each.due <= shelf.now] for topic in dict.fromkeys(topics)]
        turns = itertools.chain.from_iterable(itertools.zip_longest(*due))
        return sorted(itertools.islice(filter(None, turns), limit), key=lambda each: each.place)

    async def settle(self, ends: Sequence[base.End], *, connection: Any = None, now: Now = None) -> list[base.Ended]:
        self._shelf.at(now)
        return [self._end(end, self._shelf.held(end)) for end in ends]

    def _end(self, end: base.End, message: Message | None) -> base.Ended:
        if message is None:
            return "lost"
        if end.verdict == "done":
            return "done" if self._shelf.messages.pop(message.id) is message else "lost"
        most = end.attempts or message.new.max_attempts
        if end.verdict == "dead" or (end.verdict == "retry" and message.attempt >= most):
            self._shelf.bury(message, end.error)
            return "dead"
        message.new = msgspec.structs.replace(message.new, max_attempts=most)
        due = message.due if end.verdict == "release" and not end.delay else self._shelf.now + end.delay
        message.attempt -= end.verdict == "release"
        due = min(due, last) if end.aside and (last := (message.expires or due + 1) - 1) > self._shelf.now else due
        message.error, message.began = end.error or message.error, message.began if end.began is None else end.began
        return "scheduled" if self._shelf.schedule(message, due) else "expired"

    async def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: Now = None) -> list[bool]:
        at, found = self._shelf.at(now), [self._shelf.held(hold) for hold in holds]
        for message in filter(None, found):
            message.lease_until = at + lease
        return [message is not None for message in found]

    async def cancel(self, refs: Sequence[Ref], *, seen: Any = None, now: Now = None, **_: Any) -> list[CancelResult]:
        self._shelf.at(now)
        return [self._cancel(self._shelf.find(ref.id), *(seen or ())) for ref in refs]  # what was seen is of one alone

    def _cancel(self, message: Message | None, seen: Seen | None = None) -> CancelResult:
        if message and message.kind == "scheduled" and seen in (None, Seen(message.due), Seen(message.due, message.new.body)):
            del self._shelf.messages[message.id]
            return CancelResult.CANCELLED
        return CancelResult[_why(message)]

    async def reschedule(self, moves: Sequence[Move], *, now: Now = None, **_: Any) -> list[RescheduleResult]:
        at = self._shelf.at(now)
        for move in moves:
            check_delay(move.delay, move.at, at)
        return [self._move(self._shelf.find(each.ref.id), each, at) for each in moves]

    def _move(self, message: Message | None, move: base.Move, at: int) -> RescheduleResult:
        if message and message.kind == "scheduled" and move.seen in (None, message.due):
            message.since, message.began = move.planned(Planned(message.due, message.since, False), at, at, at).due, None
            self._shelf.schedule(message, message.since)
            return RescheduleResult.MOVED
        return RescheduleResult[_why(message)]

    async def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: Now = None) -> base.Tended:
        shelf, at = self._shelf, self._shelf.at(now)
        until = at if ended_by is None else min(at, ended_by)
        ended = [each for each in shelf.all("leased") if (each.lease_until or 0) <= until]
        expired = [each for each in shelf.messages.values() if shelf.expired(each)]
        old = [each for each in shelf.all("dead") if at - each.died >= shelf.dead_for]
        work = [*old, *ended, *expired]  # old first: burying another may drop them
        last = [each for each in ended[:budget] if each.attempt >= each.new.max_attempts]
        for message in work[:budget]:
            if message in old:
                shelf.drop(message)
            elif message in expired:
                del shelf.messages[message.id]
            elif message in last:
                shelf.bury(message, "The lease of the last attempt has ended.")
            else:
                message.began = message.began or min(int(message.token), at)
                shelf.schedule(message, message.due)
        did = [sum(each in some for each in work[:budget]) for some in (ended, last, expired, old)]
        return base.Tended(did[0], did[1], did[2], did[3], len(work) > budget)

    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        sleeper = Sleeper(signal := AsyncSignal(), topics)
        if not self._shelf.sleepers.add(sleeper):
            return
        self._asleep.add(signal)
        try:
            await signal.wait(timeout)
            sleeper.woken_by = None
        finally:
            self._asleep.discard(signal)
            self._shelf.sleepers.remove(sleeper)
            self._shelf.sleepers.wake([] if sleeper.woken_by is None else [sleeper.woken_by])

    async def get(self, refs: Sequence[Ref], *, brief: bool = False, now: Now = None) -> list[base.Stored | None]:
        found = map(self._shelf.find, (ref.id for ref in refs))
        return [None if each is None else each.stored(self._shelf.at(now)) for each in found]

    async def scan(self, topic: str, state: State | None, limit: int, after: Text = None, *, now: Now = None) -> base.Scanned:
        at, begin = self._shelf.at(now), None if after is None else _mark(after)
        found = [each for kind in STATES for each in self._shelf.all(kind, topic) if state in (None, each.state(at))]
        page = [each for each in found if begin is None or each.place > begin]
        mark = ".".join(map(str, page[limit - 1].place)) if len(page) > limit else None
        return base.Scanned([each.stored(at) for each in page[:limit]], mark)

    async def stats(self, topic: str | None = None, *, but: Any = (), window: Any = None, now: Now = None) -> Stats:
        at, span = self._shelf.at(now), window or base.Window(0, 1, 0)
        stored = [each for kind in STATES for each in self._shelf.all(kind, topic) if each.new.topic not in but]
        names = ({each.new.topic for each in stored} | set(self._shelf.dropped)) - set(but) if topic is None else ()
        due = {state: [each.due for each in stored if each.state(at) == state] for state in STATES}
        counts: dict[str, Any] = {state: len(some) for state, some in due.items()}
        falls = [when - span.start for when in due["ready"] + due["scheduled"] if span.start <= when < span.end]
        parts = [after * span.parts // (span.end - span.start) for after in falls]
        return Stats(
            **counts,
            dead_dropped=sum(count for name, count in self._shelf.dropped.items() if topic in (None, name) and name not in but),
            oldest_overdue=(at - min(due["ready"])) / 1000 if due["ready"] else None,
            next_due=min(due["scheduled"], default=None),
            topics={name: await self.stats(name, window=window, now=now) for name in names},
            timeline=[parts.count(part) for part in range(span.parts)],
        )

    async def requeue(
        self, topic: str, ids: Ids = None, *, delay: int = 0, over: int = 0, limit: int = MAX_BATCH, now: Now = None
    ) -> base.Swept:
        check_delay(delay + over, None, 0)
        at = self._shelf.at(now)
        dead = [each for each in self._shelf.all("dead", topic) if ids is None or each.id in ids]
        for place, message in enumerate(dead[:limit]):
            due = at + delay + place * over // limit
            message.attempt, message.error, message.since, message.began = 0, None, due, None
            self._shelf.schedule(message, due)
        return base.Swept(min(len(dead), limit), len(dead) > limit)

    async def purge(self, topic: str, state: State, ids: Ids = None, *, limit: int = MAX_BATCH, now: Now = None) -> base.Swept:
        named = [each for each in self._shelf.messages.values() if ids is None or each.id in ids]
        doomed = [each for each in named if (each.new.topic, each.state(self._shelf.at(now))) == (topic, state)]
        self._shelf.dropped.pop(topic if state == "dead" and ids is None else "", None)
        for message in doomed[:limit]:
            del self._shelf.messages[message.id]
        return base.Swept(min(len(doomed), limit), len(doomed) > limit)

    async def pause(self, topic: str, paused: bool) -> None: ...  # the guard has refused it


def _why(message: Message | None) -> str:
    return {"dead": "DEAD", "leased": "RUNNING"}.get(message.kind if message else "", "GONE")


def _mark(after: str) -> tuple[int, int, str]:
    try:
        kind, when, id = after.split(".")
        return int(kind), int(when), id
    except ValueError:
        raise BadOption("after is not the mark of a page: give back a page's own .after, or None for the first.") from None

"""Random histories of moves: runs are killed, fail, meet another run or a late statement, and users change what waits.
In the end each message is in one place, and is what its user has made of it.

    history = played(seed, {"kill", "user"})
    assert not history.faults, history

All of it is decided by the seed, and is due in an hour or later.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any, TypeAlias

import msgspec
from msgspec import json
from msgspec.structs import replace

from bide import Queue
from bide.adopt.adopting import Adoption
from bide.adopt.queue.listing import TOO_FAR
from bide.adopt.queue.moved_message import YEAR, Able
from bide.adopt.queue.moving import QueueSource
from bide.engines.base import Move, NewMessage, Ref, Stored
from bide.errors import BideError, OutcomeUnknown, QueueFull, Unavailable
from bide.queue.schedules.records import MOVING
from bide.types import CancelResult, RescheduleResult, Sent

Plan: TypeAlias = dict[tuple[str, int], str]  # by side, and which of its calls: what happens there

HOUR = 3_600_000
VERBS = ("put", "reschedule", "get", "cancel", "scan", "purge", "stats", "claim")
EVENTS = {
    "kill": ("kill", "kill after"),
    "error": ("unavailable", "unknown", "unknown, done", "partly"),
    "user": ("user", "user after"),
    "two": ("second", "second, killed"),
    "late": ("late",),
}
SHARDED = ({"two"}, {"kill", "error"})  # what a queue of several shards goes through without a loss
BATCH = 5


class Killed(BaseException):
    """The process of the mover is gone."""


class Kept(msgspec.Struct):
    """What a message is to be in the end."""

    topic: str
    key: str | None
    due: int | None = None  # not known of a dead letter, nor of what somebody has moved by a rule
    dead: bool = False
    attempt: int = 0


class Watched:
    """An engine at whose calls the plan's events happen."""

    def __init__(self, history: "History", side: str, plan: Plan) -> None:
        self.engine: Any = history.engines[side]
        self.capabilities: Any = replace(self.engine.capabilities, together=history.together)
        self._history, self._side, self._plan = history, side, plan
        self._calls = 0
        self._ends_one = False  # has noted that it is going to

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.engine, name)
        return self._watched(name, real) if name in VERBS else real

    def _watched(self, verb: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*asked: Any, **options: Any) -> Any:
            history = self._history
            if history.killed:
                raise Killed
            self._calls += 1
            self._note_ends(verb, asked)
            history.act_late()
            event = self._plan.get((self._side, self._calls))
            if event is None:
                return real(*asked, **options)
            history.log.append(f"  {self._side} call {self._calls}, {verb}: {event}")
            return self._happens(event, verb, asked, options, real)

        return call

    def _note_ends(self, verb: str, asked: Sequence[Any]) -> None:
        """Of one dead letter that a killed run was going to purge by itself, nobody can tell who has ended it."""
        if verb == "put" and self._side == "old":
            new = asked[0][0]
            ends = (new.key or "").startswith("ends/")
            self._ends_one = ends and (self._ends_one or len(json.decode(new.body)) == 1)
        elif verb in ("scan", "reschedule"):
            self._ends_one = False

    def _may_be_late(self, verb: str, asked: Sequence[Any], options: Mapping[str, Any]) -> bool:
        """What ends messages without a condition would end what somebody has changed since."""
        return verb in ("put", "reschedule") or "seen" in options

    def _happens(
        self, event: str, verb: str, asked: Sequence[Any], options: Mapping[str, Any], real: Callable[..., Any]
    ) -> Any:
        history = self._history

        def do() -> Any:
            return real(*asked, **options)

        # a dead letter that changes in the milliseconds between the last look at it and its end may come to life again
        looked = self._side == "old" and (verb, event) in (("get", "user after"), ("purge", "user"))
        history.unsure |= self._ends_one and event not in EVENTS["user"]
        if event in ("kill", "kill after", "late"):
            if event == "kill after":
                do()
            if event == "late" and self._may_be_late(verb, asked, options):
                history.late.append(do)
            history.killed = True
            raise Killed
        if event == "unavailable":
            raise QueueFull("full") if verb == "put" and self._side == "new" else Unavailable("away")
        if event in ("unknown", "unknown, done", "partly"):
            if event == "partly" and verb == "put" and self._side == "new":
                done = [history.chance.random() < 0.5 for _ in asked[0]]
                answers = iter(real([new for new, each in zip(asked[0], done, strict=True) if each]) if any(done) else ())
                raise OutcomeUnknown("partly", answers=[next(answers) if each else None for each in done])
            if event == "unknown, done":
                do()
            raise OutcomeUnknown("unknown")
        if event in ("second", "second, killed") and self._side == "old" and not (verb == "cancel" and len(asked[0]) == 1):
            # a third run, between the note of a late one and its end, is too much
            history.second(killed=event == "second, killed")
        if event == "user":
            history.user(dead=not looked)
        found = do()
        if event == "user after":
            history.user(dead=not looked)
        return found


class History:
    def __init__(self, seed: int, *, shards: bool = False) -> None:
        """`shards`: perhaps over several shards, which end nothing together."""
        self.chance = Random(seed)
        self.old, self.new = Queue("memory://"), Queue("memory://")
        self.engines: dict[str, Any] = {"old": self.old.session.engine(), "new": self.new.session.engine()}
        self.together: int = self.chance.choice([1, 3, 1_000] if shards else [3, 1_000])
        self.kept: dict[str, Kept] = {}
        self.ended: dict[str, str] = {}  # by what
        self.late: list[Callable[[], Any]] = []
        self.killed = False
        self.unsure = False  # who has ended a message
        self.log: list[str] = []
        self.faults: list[str] = []
        self._names = map("m{}".format, count())
        self._within = False
        self._fill()

    def __str__(self) -> str:
        return "\n".join([*self.faults, "--", *self.log])

    def _fill(self) -> None:
        for _ in range(self.chance.choice([3, 24, 72])):
            kind, key = self.chance.random(), self.chance.random() < 0.5
            name = next(self._names)
            if kind < 0.12:
                self._handled(name, key=name if key else None, dead=kind < 0.06)
                continue
            topic, delay = self.chance.choice(["mail", "orders"]), HOUR + self.chance.randrange(10**9)
            sent = self.old.send(
                topic,
                name,
                delay=delay / 1000,
                key=name if key else None,
                expires_in="10d" if self.chance.random() < 0.2 else None,
                priority=self.chance.choice(["low", "normal", "high"]),
            )
            self.kept[name] = Kept(topic, name if key else None, sent.due)
            if key and self.chance.random() < 0.08:
                other = f"another {name}"
                there = self.new.send(topic, other, delay=7_200, key=name)
                self.kept[other] = Kept(topic, name, there.due)

    def _handled(self, name: str, *, key: str | None, dead: bool) -> None:
        """A message that a handler has had once."""
        self.old.send("tried", name, key=key)
        [delivery] = self.old.receive("tried")
        if dead:
            delivery.bury("no use")
        else:
            delivery.retry("2h", error="it broke")
        [due] = [each.due for each in self.old.messages("tried", limit=1_000) if each.body == name]
        self.kept[name] = Kept("tried", key, None if dead else due, dead, 1)

    def run(self, plan: Plan, title: str) -> bool:
        """Move all; whether it came to its end."""
        self.killed = False
        source = QueueSource(Watched(self, "old", plan), "old", re.compile(".*"), Able(), "new")  # type: ignore[arg-type]
        adoption = Adoption(source, _Destination(self, plan), batch=BATCH)  # type: ignore[arg-type]
        result = "ended"
        try:
            try:
                adoption.run(lambda _: None, lambda: False)
            finally:
                if not self.killed:
                    source.close()
        except Killed:
            result = "killed"
        except BideError as error:
            result = f"{type(error).__name__}: {error}"
        self.killed = False
        self.log.append(f"{title}: {result}; {adoption.adopted} moved, {adoption.counts}")
        if TOO_FAR in adoption.refused and self.together > 1:
            self.faults.append(f"{title} takes what is on its way for something that is due in many years")
        return result == "ended"

    def second(self, *, killed: bool) -> None:
        """Another run, from begin to end, or until it is killed."""
        if self._within:
            return
        self._within = True
        self.run({(self.chance.choice(["old", "new"]), self.chance.randrange(1, 30)): "kill"} if killed else {}, "  second run")
        self._within = False

    def act_late(self) -> None:
        for each in [each for each in self.late if self.chance.random() < 0.2]:
            self.late.remove(each)
            each()

    def user(self, *, dead: bool = True) -> None:
        """Somebody changes a message that is in the old queue, perhaps a dead letter, and is told so."""
        there = _all(self.engines["old"])
        if not there:
            return
        stored = self.chance.choice(there)
        name = json.decode(stored.body)
        kept = self.kept.get(name)
        if kept is None or (kept.dead and not dead):
            return
        does = (
            [self._requeue, self._purge] if kept.dead else [self._cancel, self._move, self._move, self._put_off, self._replace]
        )
        do = self.chance.choice(does)
        self.log.append(f"    somebody: {do.__name__} {name}")
        do(stored, name, kept)

    def _cancel(self, stored: Stored, name: str, kept: Kept) -> None:
        ref = Ref(topic=stored.topic, key=stored.key) if stored.key and self.chance.random() < 0.5 else Ref(id=stored.id)
        if self.engines["old"].cancel([ref]) == [CancelResult.CANCELLED]:
            self._is_over(name, "cancelled")

    def _move(self, stored: Stored, name: str, kept: Kept) -> None:
        at = time.time_ns() // 1_000_000 + HOUR * self.chance.randrange(1, 5_000)
        if self.engines["old"].reschedule([Move(Ref(id=stored.id), at=at)]) == [RescheduleResult.MOVED]:
            kept.due = at

    def _put_off(self, stored: Stored, name: str, kept: Kept) -> None:
        moved = self.engines["old"].reschedule([Move(Ref(id=stored.id), delay=HOUR, origin="due")])
        if moved == [RescheduleResult.MOVED] and kept.due is not None:
            kept.due += HOUR

    def _replace(self, stored: Stored, name: str, kept: Kept) -> None:
        if stored.key is None:
            return
        other, if_exists = next(self._names), self.chance.choice(["replace", "later"])
        at = kept.due or time.time_ns() // 1_000_000 + HOUR
        new = NewMessage(stored.topic, json.encode(other), at=at, key=stored.key, if_exists=if_exists, headers=stored.headers)
        [sent] = self.engines["old"].put([new])
        if sent.outcome in ("replaced", "postponed"):
            self._is_over(name, if_exists)
        self.kept[other] = Kept(stored.topic, stored.key, at if if_exists == "replace" else None)

    def _requeue(self, stored: Stored, name: str, kept: Kept) -> None:
        did = self.engines["old"].requeue(stored.topic, [stored.id], delay=2 * HOUR)
        if did.count:
            kept.dead, kept.attempt, kept.due = False, 0, None
            kept.key = None if did.keyless else kept.key

    def _purge(self, stored: Stored, name: str, kept: Kept) -> None:
        if self.engines["old"].purge(stored.topic, "dead", [stored.id]).count:
            self._is_over(name, "purged")

    def _is_over(self, name: str, why: str) -> None:
        del self.kept[name]
        self.ended[name] = why

    def judge(self) -> None:
        here, there = _all(self.engines["old"]), _all(self.engines["new"])
        found = [(json.decode(each.body) if each.body else "nothing", each) for each in (*here, *there)]
        times = Counter(name for name, _ in found)
        self.faults += [f"{name} is lost" for name in self.kept if not times[name]]
        self.faults += [f"{name} is there {many} times" for name, many in times.items() if many > 1]
        keys = {(each.topic, each.key) for each in there}
        for name, stored in found:
            if name in self.ended:
                if not (self.unsure and self.ended[name] == "purged"):
                    self.faults.append(f"{name} was {self.ended[name]}, and is there")
            elif (kept := self.kept.get(name)) is None:
                self.faults.append(f"{name} was never sent")
            elif wrong := list(_differences(stored, kept)):
                self.faults.append(f"{name} has another {' and '.join(wrong)}: {stored}, not {kept}")
            elif stored in here and (stored.topic, stored.key) not in keys:
                self.faults.append(f"{name} was left")
        self.faults += [f"a note is left: {each.key}" for each in self.engines["old"].scan(MOVING, "scheduled", 1_000).messages]


class _Destination:
    """The new queue, as an adoption uses it, with its engine watched."""

    def __init__(self, history: History, plan: Plan) -> None:
        self._engine = Watched(history, "new", plan)
        self.capabilities = history.new.capabilities
        self.setup = history.new.session.setup
        self.session = self

    def engine(self) -> Any:
        return self._engine

    def put_many(self, messages: Sequence[NewMessage]) -> Sequence[Sent]:
        found: Sequence[Sent] = self._engine.put(messages) if messages else ()
        return found


def _all(engine: Any) -> list[Stored]:
    return [
        each
        for topic in engine.stats(but=(MOVING,)).topics
        for state in ("ready", "scheduled", "dead")
        for each in engine.scan(topic, state, 1_000).messages
    ]


def _differences(stored: Stored, kept: Kept) -> "Sequence[str]":
    return [
        what
        for what, differs in {
            "topic": stored.topic != kept.topic,
            "key": stored.key != kept.key,
            "state": (stored.state == "dead") != kept.dead,
            "attempt": stored.attempt != kept.attempt,
            "due time": kept.due is not None and not kept.dead and stored.due != kept.due,
            "way to go": stored.due > time.time_ns() // 1_000_000 + 20 * YEAR,
        }.items()
        if differs
    ]


def played(seed: int, kinds: Collection[str]) -> History:
    """One to four runs at which something happens, and then runs until nothing is left to do."""
    history = History(seed, shards=kinds in SHARDED)
    chance = history.chance
    events = [event for kind in sorted(kinds) for event in EVENTS[kind]]
    for number in range(chance.choice([1, 1, 2, 3, 4])):
        plan: Plan = {}
        for _ in range(chance.choice([1, 2, 3, 6])):
            side = chance.choice(["old", "old", "old", "new"])
            plan[side, chance.randrange(1, 60 if side == "old" else 20)] = chance.choice(events)
        history.run(plan, f"run {number}")
        if "user" in kinds and chance.random() < 0.3:
            history.user()
    for each in history.late:
        each()
    history.late.clear()
    for number in range(3):
        if not history.run({}, f"last run {number}"):
            history.faults.append("a run that nobody disturbs fails")
    history.judge()
    return history

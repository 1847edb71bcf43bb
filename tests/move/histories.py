"""Random histories of moves: runs are killed, fail, meet another run or a late statement, and users change what waits.
In the end each message is in one place, and is what its user has made of it.

    history = played(seed, {"kill", "user"})
    assert not history.faults, history

All of it is decided by the seed, and is due in an hour or later.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec import json

from bide import Queue
from bide.adopt import adoption
from bide.adopt.queue.messages import YEAR
from bide.engines.base import Move, NewMessage, Ref, Stored
from bide.queue.schedules.records import MOVING
from bide.types import CancelResult, RescheduleResult
from tests.move.runs import EVENTS, Beside, Hands, Plan, Run

HOUR = 3_600_000
MOST_BESIDE = 2
SHARDED = ({"two"}, {"kill", "error"}, {"two", "user"}, {"kill", "error", "user"})
"""What a queue of several shards goes through without a loss, but for what is known: it ends messages without a condition. So
what somebody changes between the last look at a message and its end is ended; and what somebody cancels then, or when a run has
stopped that was going to end it, is taken for moved. And what a run moves away when another one has come and gone stays away if
the run fails or is killed before it has looked whether it is still the one."""


class Kept(msgspec.Struct):
    """What a message is to be in the end."""

    topic: str
    key: str | None
    due: int | None = None  # not known of a dead letter, nor of what somebody has moved by a rule
    dead: bool = False
    attempt: int = 0


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
        self.beside: list[Beside] = []
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
            if kind < 0.18:
                self._handled(name, key=name if key else None, dead=kind < 0.12)
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
        topic = self.chance.choice(["tried", "orders"])
        self.old.send(topic, name, key=key)
        [delivery] = self.old.receive(topic)
        if dead:
            delivery.bury("no use")
        else:
            delivery.retry("2h", error="it broke")
        [due] = [each.due for each in self.old.messages(topic, limit=1_000) if each.body == name]
        self.kept[name] = Kept(topic, key, None if dead else due, dead, 1)

    def run(self, plan: Plan, title: str) -> bool:
        """Move all; whether it came to its end."""
        return Run(self, plan, title).go()

    def second(self, *, killed: bool) -> None:
        """Another run, from begin to end, or until it is killed."""
        if self._within:
            return
        self._within = True
        self.run({self._call(): "kill"} if killed else {}, "second run")
        self._within = False

    def begin_beside(self) -> None:
        """Another run, which stands still at some of its calls, and goes on later."""
        if len(self.beside) < MOST_BESIDE and not self._within:
            plan = {self._call(): "pause" for _ in range(self.chance.choice([2, 5, 20]))}
            if self.chance.random() < 0.3:
                plan[self._call()] = self.chance.choice(["kill", "kill after", "unknown", "unknown, done"])
            self.beside.append(Beside(Run(self, plan, f"run beside {len(self.log)}")))

    def _call(self) -> tuple[str, int]:
        """One of a run."""
        return self.chance.choice(["old", "old", "new"]), self.chance.randrange(1, 30)

    def others_go_on(self, often: float = 0.4) -> None:
        if self._within:
            return
        self._within = True
        for each in list(self.beside):
            if self.chance.random() < often:
                each.go_on()
                if each.ended:
                    self.beside.remove(each)
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
                if not (self.unsure and (self.together == 1 or self.ended[name] == "purged")):
                    self.faults.append(f"{name} was {self.ended[name]}, and is there")
            elif (kept := self.kept.get(name)) is None:
                self.faults.append(f"{name} was never sent")
            elif wrong := list(_differences(stored, kept)):
                self.faults.append(f"{name} has another {' and '.join(wrong)}: {stored}, not {kept}")
            elif stored in here and (stored.topic, stored.key) not in keys:
                self.faults.append(f"{name} was left")
        self.faults += [f"a note is left: {each.key}" for each in self.engines["old"].scan(MOVING, "scheduled", 1_000).messages]


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
    with patch.object(adoption, "ThreadPoolExecutor", lambda *_: Hands(history.chance)):
        _play(history, kinds)
    history.judge()
    return history


def _play(history: History, kinds: Collection[str]) -> None:
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
    while history.beside:
        history.others_go_on(0.5)
    for each in history.late:
        each()
    history.late.clear()
    for number in range(3):
        if not history.run({}, f"last run {number}"):
            history.faults.append("a run that nobody disturbs fails")

"""The store that the sync and async engines share: its state, its time, its sleepers, and the steps that verbs are made of.

The verbs themselves are functions over a store, in the files beside this one: change.py, deliver.py and look.py.
Each takes the lock, and so they happen one at a time: `with store.alone(), store:`.
"""

import heapq
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence, Sized

from bide.clock import MS, Clock, Monotonic
from bide.engines.base import Ref
from bide.engines.callers import Sleeper, Sleepers
from bide.engines.memory.gate import GateStore
from bide.engines.memory.result import ResultStore
from bide.engines.memory.topic import DEAD, ENDED, PENDING, HeldClaim, Message, Topic
from bide.ids import sequence
from bide.types import Sent
from bide.wakeable import Wakeable, refuse_reentry

Deadline = tuple[int, int, HeldClaim, Sequence[str]]
SPARE = 1_000  # records that count no more, before it is worth while to look for them


class Store:
    def __init__(self, clock: Clock, dead_for: int, dead_max: int) -> None:
        self.clock: Clock = clock
        self.dead_for: int = dead_for
        self.dead_max: int = dead_max
        self._begin()
        clock.on_jump(self._jumped)
        _stores.add(self)

    def _begin(self) -> None:
        self._lock: threading.RLock = threading.RLock()
        self._monotonic = Monotonic()
        self.messages: dict[str, Message] = {}
        self.topics: dict[str, Topic] = {}
        self.deadlines: list[Deadline] = []  # a heap of leases by their end
        self.expiries: list[tuple[int, str]] = []  # a heap
        self.deaths: deque[tuple[int, str]] = deque()
        self.answers: dict[str, Sent] = {}  # to operations, and of keys that are sent once for a time
        self.answer_ends: list[tuple[int, str]] = []  # a heap
        self.held_claims: dict[str, HeldClaim] = {}  # by the request that made them
        self.last_token: int = 0
        self.wall: int = 0  # in ms: the clock as it stands, which is engine time, unless it was set back
        self.gates: GateStore = GateStore()
        self.results: ResultStore = ResultStore()
        self.new_id: Callable[[], str] = sequence()
        self.new_entry: Callable[[], int] = itertools.count().__next__
        self._sleepers: Sleepers[str] = Sleepers()
        self._wake: set[str] = set()

    def forked(self) -> None:
        """In a forked child: the messages are the parent's, and its lock may be held for ever."""
        self._begin()

    # time and waking

    def alone(self) -> threading.RLock:
        """One verb at a time: `with store.alone(), store:`.

        The lock itself is what is entered and left: no signal handler, as of Ctrl-C, runs between its steps, which are in C.
        """
        refuse_reentry(self._lock)
        return self._lock

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        """Wake sleepers of the topics in which the verb made something due."""
        if self._wake:
            self._sleepers.wake(self._wake)
            self._wake.clear()

    def now_ns(self, now: int | None) -> int:
        """Engine time in nanoseconds."""
        clock = self.clock.now_ns() if now is None else now * MS
        at = self._monotonic.read(clock if now is None else max(clock, self._monotonic.mark))
        self.wall = min(clock, at) // MS
        return at

    def now(self, now: int | None) -> int:
        """Engine time in milliseconds, rounded down: what is not due by a hair is not due."""
        return self.now_ns(now) // MS

    def work_for(self, topic: str) -> None:
        """Something has become due, or due sooner than all else."""
        self._wake.add(topic)

    def sleep(self, signal: Wakeable, topics: Sequence[str]) -> Sleeper[str] | None:
        """Register a sleeper; None when there is a wake-up already."""
        sleeper = Sleeper(signal, topics)
        with self._lock:
            return sleeper if self._sleepers.add(sleeper) else None

    def stop_sleeping(self, sleeper: Sleeper[str], *, cancelled: bool) -> None:
        """Remove a sleeper; if it was cancelled after it was woken, wake another one."""
        with self._lock:
            self._sleepers.remove(sleeper)
            if cancelled and sleeper.woken_by is not None:
                self._sleepers.wake([sleeper.woken_by])

    def _jumped(self) -> None:
        with self._lock:
            self._sleepers.wake_all()

    # steps of a life

    def find(self, ref: Ref, now: int) -> Message | None:
        """The message, unless it has ended; one that has expired ends now."""
        if ref.id is not None:
            message = self.messages.get(ref.id)
        else:
            topic = self.topics.get(ref.topic or "")
            message = topic.keys.get(ref.key or "") if topic is not None else None
        if message is not None and message.stage == PENDING and message.expired(now):
            self.end_pending(message)
            return None
        return message

    def topic(self, name: str) -> Topic:
        """The topic, made on first use."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name)
        return topic

    def schedule(self, message: Message, now: int) -> None:
        """Make a message pending until its due time."""
        topic = self.topic(message.content.topic)
        message.stage = PENDING
        first = topic.add(message)
        if (first or message.ready(now, self.wall)) and not topic.paused:
            self._wake.add(topic.name)

    def expire_in_time(self, message: Message) -> None:
        """Note when a message that has a life's end, and was given a new time, expires."""
        expires = message.expires
        if expires is not None:
            heapq.heappush(self.expiries, (expires, message.id))
            if self._piled_up(self.expiries):
                self.expiries = [each for each in self.expiries if self._will_expire(*each)]
                heapq.heapify(self.expiries)

    def bury(self, message: Message, reason: str | None, now: int) -> None:
        """Make a dead letter of a message that is in no heap and under no lease."""
        topic = self.topic(message.content.topic)
        _free_key(topic, message)
        message.stage = DEAD
        message.last_error = reason
        message.died = now
        topic.dead[message.id] = message
        self.deaths.append((now, message.id))
        if self._piled_up(self.deaths):
            self.deaths = deque(each for each in self.deaths if self._died(*each))
        while len(topic.dead) > self.dead_max:
            self.drop_dead(next(iter(topic.dead.values())))

    def _piled_up(self, records: Sized) -> bool:
        """Whether most records are of messages that have ended, or were given a new life: those count no more."""
        return len(records) > 2 * len(self.messages) + SPARE

    def _will_expire(self, expires: int, id: str) -> bool:
        message = self.messages.get(id)
        return message is not None and message.expires == expires

    def _died(self, when: int, id: str) -> bool:
        message = self.messages.get(id)
        return message is not None and message.stage == DEAD and message.died == when

    def drop_dead(self, message: Message) -> None:
        self.topics[message.content.topic].dead_dropped += 1
        self.end(message)

    def end_pending(self, message: Message) -> None:
        topic = self.topics[message.content.topic]
        message.stage = ENDED
        topic.forget()
        self.end(message)

    def end(self, message: Message) -> None:
        """Forget a message that is in no heap and under no lease."""
        topic = self.topics[message.content.topic]
        message.stage = ENDED
        del self.messages[message.id]
        topic.dead.pop(message.id, None)
        _free_key(topic, message)
        self.drop_if_idle(topic)

    def drop_if_idle(self, topic: Topic) -> None:
        if topic.idle:
            self.topics.pop(topic.name, None)
            self._sleepers.forget(topic.name)


def _free_key(topic: Topic, message: Message) -> None:
    if message.key is not None and topic.keys.get(message.key) is message:
        del topic.keys[message.key]


_stores: "weakref.WeakSet[Store]" = weakref.WeakSet()


def _forked() -> None:
    for store in list(_stores):
        store.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

"""A small run with all that can go wrong on the users' side: threads that send, receive, change and die, and record it all.

    paths = run(lambda: Queue("memory://load"), folder, seed=1)
    print(check(paths, steady=True))

Each thread stands for a process: it has its own queue and its own history, and when it dies it loses what it held. It uses the
queue in its own way, by chance, drawn from the run's seed and its name. When the engine raises, it goes on with the next thing:
its history has the outcome of the last one.
"""

import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Thread

from bide.errors import EngineError, LeaseLost
from bide.prove.history import History
from bide.prove.sync import Recorded, RecordedDelivery
from bide.queue import Queue
from bide.types import IfExists, Sent

TOPICS = ("mail", "orders", "orders.eu")
PAUSED, FUTURE = "shut", "far"
LEASE = 0.06  # seconds
WAIT = 0.02
KEYS = 12
IF_EXISTS: tuple[IfExists, ...] = ("keep", "replace", "later")


class ActorKilled(Exception):
    """The thread ends at once, and loses what it holds."""


class Stage:
    """What the threads of a run share. It starts them, and gives each that is killed a successor."""

    def __init__(self, make_queue: Callable[[], Queue], folder: Path, seed: int, share: int) -> None:
        self.make_queue = make_queue
        self.folder = folder
        self.seed = seed
        self.share = share  # of the messages, for each producer
        self.paths: list[Path] = []
        self.sent: deque[Sent] = deque()  # for the changer
        self.buried: deque[str] = deque()
        self.received: int = 0
        self.all_sent: threading.Event = threading.Event()
        self.stop: threading.Event = threading.Event()
        self.errors: list[BaseException] = []
        self._progress = threading.Condition()

    def start(self, actor: type["Actor"], name: str) -> threading.Thread:
        thread = threading.Thread(target=self._live, args=(actor, name), name=name)
        thread.start()
        return thread

    def history(self, name: str) -> History:
        path = self.folder / f"{name}.jsonl"
        self.paths.append(path)
        return History(path, name)

    def count_received(self, many: int) -> None:
        with self._progress:
            self.received += many
            self._progress.notify_all()

    def wait_for_received(self, many: int, seconds: float) -> None:
        """Until that many more have been received, or the time is up."""
        with self._progress:
            until = self.received + many
            self._progress.wait_for(lambda: self.received >= until or self.stop.is_set(), seconds)

    def _live(self, actor: type["Actor"], name: str) -> None:
        """Until one of its lives ends by itself."""
        life = 1
        try:
            while self._was_killed(actor, f"{name}.{life}"):
                life += 1
        except BaseException as error:
            self.errors.append(error)
            self.stop.set()

    def _was_killed(self, actor: type["Actor"], name: str) -> bool:
        with self.make_queue() as queue, self.history(name) as history:
            try:
                actor(self, Recorded(queue, history), name).work()
            except ActorKilled as killed:
                with history.fault(f"kill a {actor.__name__.lower()}") as fault:
                    fault.landed(str(killed))
                return True
        return False


class Actor:
    def __init__(self, stage: Stage, queue: Recorded, name: str) -> None:
        self.stage = stage
        self.queue = queue
        self.name = name
        self.chance: random.Random = random.Random(f"{stage.seed} {name}")

    def work(self) -> None:
        """Until there is nothing left to do; or raise Killed."""
        raise NotImplementedError


class Producer(Actor):
    """Sends in all ways. Some answers are lost, and some sends are repeated."""

    left: int

    def work(self) -> None:
        self.left = self.stage.share
        while self.left > 0 and not self.stage.stop.is_set():
            self.left -= 1
            with contextlib.suppress(EngineError):
                self._send()

    def _send(self) -> None:
        chance, topic = self.chance.random(), self.chance.choice(TOPICS)
        delay, body = self.chance.randrange(300) / 1000, {"n": self.chance.randrange(10**9), "text": "ключ ✓"}
        if chance < 0.1:
            key = f"{topic}:{self.chance.randrange(KEYS)}"
            self.queue.send(topic, body, delay=delay, key=key, if_exists=self.chance.choice(IF_EXISTS), max_attempts=9)
        elif chance < 0.2:
            self._send_twice(topic, body, delay)
        elif chance < 0.25:
            with self.queue.history.sending(topic, body, delay=delay) as op:
                self.queue.plain.send(topic, op.body, delay=delay)  # and the answer is lost
        elif chance < 0.26:
            self.left -= 19
            self.queue.send_many(topic, [body] * 20)
        elif chance < 0.5:
            sent = self.queue.send(topic, body, delay=delay + 0.1, max_attempts=9, headers={"from": self.name})
            self.stage.sent.append(sent)
        else:
            self.queue.send(topic, body, delay=delay, max_attempts=self.chance.choice((2, 9, 9, 9)))

    def _send_twice(self, topic: str, body: object, delay: float) -> None:
        """With one operation; the first answer may be lost."""
        operation = f"{self.name}/{self.chance.getrandbits(64):x}"
        with self.queue.history.sending(topic, body, delay=delay, operation=operation) as op:
            sent = self.queue.plain.send(topic, op.body, delay=delay, operation=operation)
            if self.chance.random() < 0.5:
                op.ok(sent)
        self.queue.send(topic, delay=delay, operation=operation, again=op)


class ReceivingActor(Actor):
    """Takes a few messages and ends each at once, in all ways. Now and then it is killed."""

    def work(self) -> None:
        while not self.stage.stop.is_set():
            topics = self.chance.sample(TOPICS, self.chance.randint(1, len(TOPICS)))
            found = self.take(topics, 4)
            if found and self.chance.random() < 0.02:
                self._die(found[0])
            self.end(found)

    def take(self, topics: Sequence[str], limit: int) -> list[RecordedDelivery]:
        found: list[RecordedDelivery] = []
        with contextlib.suppress(EngineError):
            found = self.queue.receive(*topics, limit=limit, wait=WAIT, lease=LEASE)
        self.stage.count_received(len(found))
        return found

    def end(self, found: Iterable[RecordedDelivery]) -> None:
        for each in found:
            with contextlib.suppress(LeaseLost, EngineError):
                self._end(each)

    def _end(self, delivery: RecordedDelivery) -> None:
        chance = self.chance.random()
        if chance < 0.08:
            delivery.retry(self.chance.randrange(60) / 1000, error="it was asked to fail")
        elif chance < 0.12:
            delivery.release(self.chance.choice((0, 0, 0.03)))
        elif chance < 0.13:
            delivery.bury("it was asked to die")
            self.stage.buried.append(delivery.plain.id)
        elif chance < 0.2:
            delivery.extend(2 * LEASE)
            delivery.ack()
        else:
            delivery.ack()

    def _die(self, delivery: RecordedDelivery) -> None:
        way = self.chance.randrange(3)
        if way == 0:
            with self.queue.history.ending("ack", delivery.plain):
                raise ActorKilled("before its ack was sent")
        if way == 1:
            with self.queue.history.ending("ack", delivery.plain), contextlib.suppress(LeaseLost, EngineError):
                delivery.plain.ack()
            raise ActorKilled("before its ack was answered")
        with self.queue.history.receiving(TOPICS, limit=2, lease=LEASE), contextlib.suppress(EngineError):
            self.queue.plain.receive(*TOPICS, limit=2, lease=LEASE)
        raise ActorKilled("before it saw what it had received")


class Slowcoach(ReceivingActor):
    """Holds what it takes for longer than its lease, so its ends come too late."""

    def work(self) -> None:
        held: deque[tuple[float, RecordedDelivery]] = deque()
        while not self.stage.stop.is_set():
            found = self.take(TOPICS, 8) if len(held) < 32 else []
            late = time.monotonic() + 1.5 * LEASE
            held.extend((late, each) for each in found)
            if not found and held:
                self.stage.stop.wait(max(0.0, held[0][0] - time.monotonic()))
            while held and held[0][0] <= time.monotonic():
                self.end([held.popleft()[1]])


class Changer(Actor):
    """Cancels, reschedules, requeues, and pauses each topic once for a while."""

    def work(self) -> None:
        to_pause = list(TOPICS)
        while (self.stage.sent or not self.stage.all_sent.is_set()) and not self.stage.stop.is_set():
            with contextlib.suppress(EngineError):
                if to_pause and self.stage.received > 200 * (4 - len(to_pause)):
                    self._pause(to_pause.pop())
                elif self.stage.buried and self.chance.random() < 0.3:
                    self._requeue(self.stage.buried.popleft())
                elif self.stage.sent:
                    self._change(self.stage.sent.popleft())
                else:
                    self.stage.wait_for_received(1, WAIT)

    def _pause(self, topic: str) -> None:
        self.queue.pause(topic)
        self.stage.wait_for_received(60, 0.5)
        self.queue.resume(topic)

    def _requeue(self, id: str) -> None:
        for topic in TOPICS:
            self.queue.requeue(topic, [id], delay=0.02)

    def _change(self, sent: Sent) -> None:
        chance, topic = self.chance.random(), self.chance.choice(TOPICS)
        key = f"{topic}:{self.chance.randrange(KEYS)}"
        if chance < 0.5:
            self.queue.cancel(sent)
        elif chance < 0.9:
            self.queue.reschedule(sent, delay=self.chance.randrange(200) / 1000)
        elif chance < 0.95:
            self.queue.cancel(topic=topic, key=key)
        else:
            self.queue.reschedule(topic=topic, key=key, delay=0.05)


def run(
    make_queue: Callable[[], Queue], folder: Path, *, seed: int, messages: int = 4_000, timeout: float = 10.0
) -> list[Path]:
    """Do all that, drain the queue, and return the paths of the histories.

    make_queue: each thread calls it for its own queue; all lead to the same messages, none at first. folder: for the
    histories. timeout: seconds that draining may take; what is left then is recorded as it is. Injected faults must have
    ended by then.
    """
    stage = Stage(make_queue, folder, seed, messages // 2)
    producers = [stage.start(Producer, f"producer-{number}") for number in (1, 2)]
    others = [stage.start(ReceivingActor, f"receiver-{number}") for number in (1, 2)]
    others += [stage.start(Slowcoach, f"slowcoach-{number}") for number in (1, 2, 3)]
    changer = stage.start(Changer, "changer")
    for thread in producers:
        thread.join()
    stage.all_sent.set()
    changer.join()
    with make_queue() as queue, stage.history("drain") as history:
        _drain(Recorded(queue, history), stage, others, timeout)
    if stage.errors:
        raise stage.errors[0]
    return stage.paths


def _drain(queue: Recorded, stage: Stage, others: Iterable[Thread], timeout: float) -> None:
    """Receive until nothing is left but paused, scheduled and dead messages."""
    until = time.monotonic() + timeout
    for topic in TOPICS:
        queue.resume(topic)  # in case it could not be
    while any(queue.plain.stats(topic).pending for topic in TOPICS) and time.monotonic() < until:
        stage.wait_for_received(1, WAIT)
    stage.stop.set()
    for thread in others:
        thread.join()
    queue.send_many(PAUSED, [1, 2, 3])
    queue.pause(PAUSED)
    queue.send(FUTURE, delay=3_600)
    while any(each.pending or each.leased for each in map(queue.plain.stats, TOPICS)) and time.monotonic() < until:
        for each in queue.receive(*TOPICS, limit=100, wait=LEASE, lease="10s"):
            with contextlib.suppress(LeaseLost):  # its history says so
                each.ack()
    queue.look()

"""Threads that use a queue on a Cluster or on Sentinels under faults, and write down what they do; the histories are judged.

    crowd = Crowd(group.url, folder, confirm="replicas:1")
    with crowd.at_work():
        with crowd.fault("kill", "the first master"):
            ...
    print(crowd.outcome())

Nobody begins anew: an error that is not bide's own ends the run.
"""

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from bide import AsyncQueue, Queue, errors
from bide.engines.redis.protocol.encoding import name_of
from bide.errors import EngineError, LeaseLost, OutcomeUnknown, Unavailable
from bide.prove import AsyncRecorded, AsyncRecordedDelivery, Record, Recorded, Report, check, read
from bide.prove.workload import IF_EXISTS, KEYS, TOPICS, Actor, Changer, Producer, ReceivingActor, Slowcoach, Stage
from bide.types import Sent

PACE = 0.02  # seconds between two sends of one producer
PATIENCE = 120.0  # seconds until all are at work again, on a machine that is busy
DRAIN = 60.0
LEASE = 1.0
WELCOME = frozenset({"Unavailable", "OutcomeUnknown", "ConfirmTimeout"})
ENGINE_ERRORS = frozenset(
    name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, errors.EngineError)
)


class Sender(Producer):
    """Sends in all ways until it is told to stop."""

    def work(self) -> None:
        while not self.stage.all_sent.is_set():
            self.left = 1
            with contextlib.suppress(EngineError):
                self._send()
            self.stage.all_sent.wait(PACE)


class Repeater(Producer):
    """Sends what may not have been accepted again, with the operation that the error names, until it is."""

    def work(self) -> None:
        while not self.stage.all_sent.is_set():
            topic = self.chance.choice(TOPICS)
            with self.queue.history.sending(topic, {"n": self.chance.randrange(10**9)}, max_attempts=9) as op:
                sent = self._accepted(topic, op.body)
                if sent is not None:
                    op.ok(sent)
            self.stage.all_sent.wait(PACE)

    def _accepted(self, topic: str, body: object) -> Sent | None:
        operation: str | None = None
        for _ in range(20):
            try:
                return self.queue.plain.send(topic, body, max_attempts=9, operation=operation)
            except OutcomeUnknown as error:
                self.stage.errors += [] if error.operation else [AssertionError(f"{error!r} has no operation")]
                operation = error.operation
            except EngineError:
                self.stage.stop.wait(PACE)
        return None


async def _begin(queue: AsyncQueue) -> None:
    """Open it. Its thread may be late on a full machine, when a fault is there already: then it begins again."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return await queue.open()
        except Unavailable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.05)


class AsyncActor(Actor):
    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        plain = self.queue.plain.aio
        await _begin(plain)
        async with plain:
            await self.act(AsyncRecorded(plain, self.queue.history))

    async def act(self, queue: AsyncRecorded) -> None:
        raise NotImplementedError


class AsyncSender(AsyncActor):
    """Several at once, with keys and without."""

    async def act(self, queue: AsyncRecorded) -> None:
        while not self.stage.all_sent.is_set():
            answers = await asyncio.gather(*(self._send(queue) for _ in range(4)), return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, EngineError):
                    raise answer
            await asyncio.sleep(4 * PACE)

    async def _send(self, queue: AsyncRecorded) -> None:
        topic, delay = self.chance.choice(TOPICS), self.chance.randrange(300) / 1000
        if self.chance.random() < 0.2:
            key = f"{topic}:{self.chance.randrange(KEYS)}"
            await queue.send(topic, 1, delay=delay, key=key, if_exists=self.chance.choice(IF_EXISTS), max_attempts=9)
        else:
            await queue.send(topic, 1, delay=delay, max_attempts=self.chance.choice((2, 9)))


class AsyncTaker(AsyncActor):
    async def act(self, queue: AsyncRecorded) -> None:
        while not self.stage.stop.is_set():
            found: list[AsyncRecordedDelivery] = []
            with contextlib.suppress(EngineError):
                found = await queue.receive(*TOPICS, limit=10, wait=0.2, lease=LEASE)
            self.stage.count_received(len(found))
            for answer in await asyncio.gather(*map(self._end, found), return_exceptions=True):
                if isinstance(answer, BaseException) and not isinstance(answer, LeaseLost | EngineError):
                    raise answer

    async def _end(self, delivery: AsyncRecordedDelivery) -> None:
        chance = self.chance.random()
        if chance < 0.05:
            await delivery.retry(0.02, error="it was asked to fail")
        elif chance < 0.1:
            await delivery.release()
        else:
            await delivery.ack()


CROWD: Mapping[str, type[Actor]] = {
    "sender": Sender,
    "repeater": Repeater,
    "async-sender": AsyncSender,
    "receiver": ReceivingActor,
    "slowcoach": Slowcoach,
    "async-taker": AsyncTaker,
    "changer": Changer,
}
SENDING = (Sender, Repeater, AsyncSender, Changer)


class Pause(NamedTuple):
    """Around one fault: the longest time that a shard took nothing."""

    fault: int  # its number
    kind: str
    shard: int
    seconds: float
    after: float  # seconds from when the fault was over, or the new master known, until the shard took something


class Outcome(NamedTuple):
    report: Report
    pauses: Sequence[Pause]
    raised: Mapping[tuple[str, str], int]  # by their name and the operation: errors of the engine that came to a caller
    lost: int  # accepted, not ended, and not there

    @property
    def unwelcome(self) -> set[str]:
        return {error for error, _ in self.raised} - WELCOME

    def __str__(self) -> str:
        worst = max(self.pauses, key=lambda pause: pause.after, default=None)
        counts, broken = self.report.counts, {name: len(found) for name, found in self.report.violations.items()}
        lines = {
            "faults": len({pause.fault for pause in self.pauses}),
            "accepted": counts["accepted"],
            "lost": self.lost,
            "stale endings accepted": broken.get("fencing", 0),
            "stale endings refused": counts["refused"],
            "ends undone": counts["undone"],
        } | {f"raised {error} by {op}": count for (error, op), count in sorted(self.raised.items())}
        page = [f"{count:>12,} {name}" for name, count in lines.items()]
        page += [
            f"{each.kind:>24}: shard {each.shard} took nothing for {each.seconds:.1f} s, until {each.after:+.1f} s from when "
            "the servers had dealt with it"
            for each in self.pauses
        ]
        page += [] if worst is None else [f"all shards worked again {worst.after:.1f} s after that at the latest"]
        return "\n".join([*page, str(self.report)])


class Crowd:
    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        seed: int = 1,
        confirm: str | None = None,
        loses: bool = True,
        actors: Sequence[str] = (),
    ) -> None:
        def make_queue() -> Queue:
            """One that is open: a program that begins while nothing listens is told so at once, and begins again."""
            until = time.monotonic() + PATIENCE
            while True:
                queue = Queue(url, confirm=confirm) if confirm else Queue(url)
                try:
                    queue.open()
                except Unavailable:
                    if time.monotonic() > until:
                        raise
                    self.stage.stop.wait(0.05)
                else:
                    return queue

        self.stage = Stage(make_queue, folder, seed, 0)
        self._confirmed = confirm is not None  # but not what receivers do
        self.loses: bool = loses and confirm is None  # by design: what is done from the beginning of a fault on
        self._actors = actors or list(CROWD)
        self._times: list[tuple[str, float, float]] = []  # of each fault: its kind, when it began, when it was dealt with
        self.history = self.stage.history("director")

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Until the block is left; then all that is due is received."""
        threads = {self.stage.start(CROWD[name], f"{name}-{n}"): CROWD[name] for n, name in enumerate(self._actors, 1)}
        try:
            self.wait_for_work()
            yield
            self.stage.all_sent.set()
            _join([thread for thread, actor in threads.items() if issubclass(actor, SENDING)])
            self._drain(list(threads))
        finally:
            self.stage.all_sent.set()
            self.stage.stop.set()
            _join(list(threads))
            self.history.close()
        self._raise()

    @contextlib.contextmanager
    def fault(self, kind: str) -> Iterator["Dealt"]:
        """Do the fault in the block, and say when the servers have dealt with it. Afterwards all work again."""
        began = time.monotonic()
        name = "rollback" if self.loses else "lost claims" if self._confirmed else kind
        with self.history.fault(name, kind) as fault:
            dealt = Dealt()
            yield dealt
            fault.landed(kind)
        self.wait_for_work()
        self._times.append((kind, began, dealt.at or time.monotonic()))

    def wait_for_work(self, many: int = 60) -> None:
        """Until so many more have been received, and so that all shards have had their turn."""
        before = self.stage.received
        self.stage.wait_for_received(many, PATIENCE)
        self._raise()
        assert self.stage.received >= before + many, f"nobody got {many} messages in {PATIENCE:.0f} s"

    def outcome(self) -> Outcome:
        paths = self.stage.paths
        records = [record for path in paths for record in read(path)]
        return Outcome(
            report=check(paths, steady=True, spread=True),
            pauses=list(self._pauses(records)),
            raised=Counter((record.outcome, record.op) for record in records if record.outcome in ENGINE_ERRORS),
            lost=_lost(records),
        )

    def _raise(self) -> None:
        if self.stage.errors:
            raise self.stage.errors[0]

    def _drain(self, threads: list[Thread]) -> None:
        until = time.monotonic() + DRAIN
        with self.stage.make_queue() as plain:
            queue = Recorded(plain, self.history)
            for topic in TOPICS:
                queue.resume(topic)
            while any(plain.stats(topic).pending for topic in TOPICS) and time.monotonic() < until:
                self.stage.wait_for_received(1, 0.1)
            self.stage.stop.set()
            _join(threads)
            while any(each.pending or each.leased for each in map(plain.stats, TOPICS)) and time.monotonic() < until:
                for each in queue.receive(*TOPICS, limit=100, wait=0.1, lease="10s"):
                    with contextlib.suppress(LeaseLost):
                        each.ack()
            queue.look()

    def _pauses(self, records: Sequence[Record]) -> Iterator[Pause]:
        done: dict[int, list[float]] = {}
        for record in records:
            if record.op in ("send", "ack") and record.result == "ok" and record.id:
                done.setdefault(name_of(record.id).shard, []).append(record.mono / 1e9)
        ends = [began for _, began, _ in self._times[1:]] + [float("inf")]
        for number, ((kind, began, dealt), end) in enumerate(zip(self._times, ends, strict=True)):
            for shard, times in sorted(done.items()):
                near = sorted([began, *(each for each in times if began <= each <= end)])
                gaps = [(later - sooner, later) for sooner, later in itertools.pairwise(near)]
                longest, resumed = max(gaps, default=(0.0, began))
                yield Pause(number, kind, shard, longest, resumed - dealt)


class Dealt:
    """When the servers had dealt with a fault: a new master was known, or the old one was back."""

    at = 0.0

    def now(self) -> None:
        self.at = time.monotonic()


def judge(crowd: Crowd) -> Outcome:
    outcome = crowd.outcome()
    print(outcome)
    assert outcome.report.valid is True, str(outcome)
    assert not outcome.unwelcome
    return outcome


def _lost(records: Sequence[Record]) -> int:
    """Accepted, and neither received nor cancelled nor left. Those with a key may have been cancelled or replaced by it."""
    ids = {"send": set[str](), "deliver": set[str](), "cancel": set[str](), "left": set[str]()}
    for record in records:
        if record.op in ids and record.result == "ok" and record.id:
            ids[record.op].add(record.id)
    keyed = {record.tag for record in records if record.op == "send" and record.key}
    calls = {(record.process, record.call) for record in records if record.op == "send" and record.tag in keyed}
    ids["maybe"] = {record.id for record in records if record.id and (record.process, record.call) in calls}
    ids["maybe"] |= {record.id for record in records if record.op == "cancel" and record.id}
    return len(ids.pop("send").difference(*ids.values()))


def _join(threads: Sequence[Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"{thread.name} hangs"

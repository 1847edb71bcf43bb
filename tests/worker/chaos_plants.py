"""Faults of an engine and of a worker, planted below what writes the histories, for the checker to find."""

import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from bide import AsyncQueue
from bide.cli.worker import run
from bide.engines.base import Claim, End, Ended, Hold
from bide.queue.aio.receive import AsyncReceiver
from bide.queue.deliveries import Raised
from bide.queue.heartbeat import Heartbeat
from bide.queue.leases import Part
from bide.queue.run import call as calling
from bide.queue.run.call import Handlers
from bide.queue.run.message import Handling
from bide.queue.run.threads import Threads
from bide.queue.tasks.outcome import DONE, Outcome
from bide.worker import stop
from bide.worker.pipeline import UnderWay
from tests.negative.faulty import DeliversTwice, Fault, FaultySource, Steps


class DropsAcks(Fault):
    """One ack in so many is said to be accepted, and forgotten."""

    def __init__(self, every: int = 50) -> None:
        self._every = every
        self._count = itertools.count(1).__next__

    def settle(self, engine: Any, ends: Sequence[End], **how: Any) -> Steps:
        kept = [end for end in ends if end.verdict != "done" or self._count() % self._every]
        answers: list[Ended] = (yield engine.settle(kept, **how)) if kept else []
        said = dict(zip(map(id, kept), answers, strict=True))
        return [said.get(id(end), "done") for end in ends]


class AcceptsOldTokens(Fault):
    """Whoever comes too late is told that all is well."""

    def settle(self, engine: Any, ends: Sequence[End], **how: Any) -> Steps:
        answers: list[Ended] = yield engine.settle(ends, **how)
        return ["done" if answer == "lost" else answer for answer in answers]

    def extend(self, engine: Any, holds: Sequence[Hold], *asked: Any, **how: Any) -> Steps:
        yield engine.extend(holds, *asked, **how)
        return [True] * len(holds)


class LosesSome(Fault):
    """One message in so many is acked before anybody has it."""

    def __init__(self, every: int = 50) -> None:
        self._every = every
        self._count = itertools.count(1).__next__

    def claim(self, engine: Any, *asked: Any, **how: Any) -> Steps:
        claim: Claim = yield engine.claim(*asked, **how)
        lost = {each.id for each in claim.messages if self._count() % self._every == 0}
        if lost:
            yield engine.settle([End(each.topic, each.id, each.token, "done") for each in claim.messages if each.id in lost])
        return replace(claim, messages=[each for each in claim.messages if each.id not in lost])


class EndsLeasesEarly(Fault):
    """One message in so many is given to the next who asks, while its holder works on it."""

    def __init__(self, every: int = 30) -> None:
        self._every = every
        self._count = itertools.count(1).__next__

    def claim(self, engine: Any, *asked: Any, **how: Any) -> Steps:
        claim: Claim = yield engine.claim(*asked, **how)
        freed = [each for each in claim.messages if self._count() % self._every == 0]
        if freed:
            yield engine.settle([End(each.topic, each.id, each.token, "release") for each in freed])
        return claim


class RollsBack(Fault):
    """Again and again it goes back to what it was a moment ago, and says nothing of it: answers are given for nothing."""

    def __init__(self, every: float = 1.0, lasts: float = 0.15) -> None:
        self._every = every
        self._lasts = lasts

    def _forgets(self) -> bool:
        return time.monotonic() % self._every < self._lasts

    def settle(self, engine: Any, ends: Sequence[End], **how: Any) -> Steps:
        if not self._forgets():
            return (yield engine.settle(ends, **how))
        said: Mapping[str, Ended] = {"done": "done", "dead": "dead"}
        return [said.get(end.verdict, "scheduled") for end in ends]

    def claim(self, engine: Any, *asked: Any, **how: Any) -> Steps:
        claim: Claim = yield engine.claim(*asked, **how)
        if claim.messages and self._forgets():
            yield engine.settle([End(each.topic, each.id, each.token, "release") for each in claim.messages])
        return claim


class SkipsAttempts(Fault):
    """One delivery in so many counts for two."""

    def __init__(self, every: int = 30) -> None:
        self._count = itertools.count(1).__next__
        self._every = every

    def claim(self, engine: Any, *asked: Any, **how: Any) -> Steps:
        claim: Claim = yield engine.claim(*asked, **how)
        counted = [
            replace(each, attempt=each.attempt + 1)
            if each.attempt < each.max_attempts and self._count() % self._every == 0
            else each
            for each in claim.messages
        ]
        return replace(claim, messages=counted)


class ClaimsEarly(Fault):
    """The engine's clock is ahead when messages are claimed."""

    def claim(self, engine: Any, *asked: Any, **how: Any) -> Steps:
        ahead = time.time_ns() // 1_000_000 + 250
        return (yield engine.claim(*asked, **(how | {"now": ahead})))


def _faulty(fault: Callable[[], Fault]) -> Callable[[AsyncQueue], None]:
    def plant(queue: AsyncQueue) -> None:
        queue.session.setup.source = FaultySource(queue.session.setup.source, fault())

    return plant


def _acks_what_failed(queue: AsyncQueue) -> None:
    calling.failed = lambda handling, error, **how: (DONE, error)  # a worker that takes every end of a handler for a good one


def _acks_unhandled(queue: AsyncQueue) -> None:
    """A worker that forgets to call one handler in so many."""
    count, plain = itertools.count(1), Handlers.call

    async def nothing() -> None: ...

    def call(self: Handlers, handling: Handling, *, told: bool = False) -> Awaitable[None]:
        return plain(self, handling, told=told) if next(count) % 50 else nothing()

    Handlers.call = call  # type: ignore[method-assign]


def _counts_threads_too_soon(queue: AsyncQueue) -> None:
    """A worker that takes a thread for begun before it is."""
    plain = Threads._begin

    def begin(self: Threads) -> bool:
        if not plain(self):
            self._begun += 1
        return True

    Threads._begin = begin  # type: ignore[method-assign]


def _logs_first(queue: AsyncQueue) -> None:
    """A worker that frees a place after it has logged, and so does not when that fails."""
    plain = UnderWay.ended

    def ended(
        self: UnderWay, handling: Handling, became: Outcome | None, *, by_itself: bool, raised: Raised | None = None
    ) -> None:
        logging.getLogger("bide.worker").warning("a handler has ended")
        plain(self, handling, became, by_itself=by_itself, raised=raised)

    UnderWay.ended = ended  # type: ignore[method-assign]


def _renews_nothing(queue: AsyncQueue) -> None:
    """A heartbeat that takes leases for renewed which it has asked nobody to renew."""

    def renew(self: Heartbeat, engine: Any, part: Part) -> None:
        for beat, _ in part.leases:
            beat.renewed(beat.until)

    Heartbeat._renew = renew  # type: ignore[method-assign]


def _does_not_stand_in(queue: AsyncQueue) -> None:
    """A worker that leaves all to its heartbeat."""

    async def renew(self: AsyncReceiver) -> int:
        return 0

    AsyncReceiver.renew = renew  # type: ignore[method-assign]


def _waits_for_logs(queue: AsyncQueue) -> None:
    """A process that ends only when its logs have said all."""

    def see_through(part: Callable[[], object], seconds: float = 0.0) -> bool:
        part()
        return True

    for place in (stop, run):
        setattr(place, "give_time", see_through)  # noqa: B010


def _flushes_without_care(queue: AsyncQueue) -> None:
    """A process that does not expect that its logs fail."""

    def flush() -> None:
        for each in [*logging._handlers.values(), *logging.getLogger("bide").handlers]:  # type: ignore[attr-defined]
            each.flush()

    for place in (stop, run):
        setattr(place, "flush", flush)  # noqa: B010


PLANTS: Mapping[str, Callable[[AsyncQueue], None]] = {
    "drops acks": _faulty(DropsAcks),
    "accepts old tokens": _faulty(AcceptsOldTokens),
    "loses some": _faulty(LosesSome),
    "ends leases early": _faulty(EndsLeasesEarly),
    "rolls back": _faulty(RollsBack),
    "skips attempts": _faulty(SkipsAttempts),
    "claims early": _faulty(ClaimsEarly),
    "delivers twice": _faulty(DeliversTwice),
    "acks what failed": _acks_what_failed,
    "acks unhandled": _acks_unhandled,
    "counts threads too soon": _counts_threads_too_soon,
    "logs first": _logs_first,
    "renews nothing": _renews_nothing,
    "does not stand in": _does_not_stand_in,
    "waits for logs": _waits_for_logs,
    "flushes without care": _flushes_without_care,
}

"""Lets messages pass their task's gates before their handlers are called: locks, and limits over all workers.

A message that may not pass holds no place here: it waits aside until it is called, or all of its topic waits.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from bide.engines.aio import AsyncEngine
from bide.engines.gates import Entered, Entry, Held, Spend, Spent
from bide.errors import EngineError
from bide.logs import Log
from bide.queue.batching import Batches
from bide.queue.beats import Places
from bide.queue.heartbeat import Heartbeat
from bide.queue.tasks.limits import Limits, Step
from bide.queue.tasks.outcome import RELEASED, Outcome
from bide.worker.handling import Handling
from bide.worker.leaving import Leaving
from bide.worker.retry import Retrying
from bide.worker.slots import Slots

_log = Log("bide.worker")
ASIDE = 600_000  # ms: a message that waits for its turn looks for itself so often, should nobody call it


class Inside(Protocol):
    """Who is told what becomes of a message at its gates."""

    def admitted(self, handling: Handling) -> None: ...
    def refused(self, handling: Handling, became: Outcome) -> None: ...
    def lost_place(self, handling: Handling) -> None: ...


class Visit:
    """A message on its way through its gates."""

    def __init__(self, handling: Handling, limits: Limits, steps: list[Step]) -> None:
        self.handling: Handling = handling
        self.limits: Limits = limits
        self.steps: list[Step] = steps
        self.held: list[Held] = []
        self.refused: Outcome | None = None
        self.again: float = 0.0  # seconds until its topic may go on; 0: when there is a place

    @property
    def goes_on(self) -> bool:
        return bool(self.steps) and self.refused is None


class Answered(NamedTuple):
    """One step of a visit, and what the engine said."""

    visit: Visit
    step: Step
    answer: Entered | Spent


class Entrance(Batches[Handling]):
    def __init__(
        self,
        engine: AsyncEngine,
        heartbeat: Heartbeat,
        leaving: Leaving,
        slots: Slots,
        lease_ms: int,
        inside: Inside,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._heartbeat = heartbeat
        self._leaving = leaving
        self._slots = slots
        self._lease_ms = lease_ms
        self._inside = inside
        self._retrying = Retrying("let messages pass their limits")

    async def one_call(self, batch: list[Handling]) -> None:
        visits = [self._visit(each) for each in batch if not each.told]
        asked, ms = time.monotonic(), max((each.delivery.now for each in batch), default=0)
        try:
            while going := [each for each in visits if each.goes_on]:
                for answered in await self._step(going):
                    self._take(answered, ms + round((time.monotonic() - asked) * 1000))
        except EngineError as error:
            self._leaving.put_all([held for each in visits for held in each.held])
            self.bring_again(batch)
            await self._retrying.lose(error)
            return
        self._retrying.regain()
        for visit in visits:
            self._end(visit, asked)
        self._tell_slots([each for each in visits if each.limits.of_topic])

    def _tell_slots(self, visits: Sequence[Visit]) -> None:
        """How far the limits of whole topics have let their messages pass."""
        for topic in {each.handling.delivery.topic for each in visits}:
            own = [each for each in visits if each.handling.delivery.topic == topic]
            refused = [each.again for each in own if each.refused is RELEASED]
            self._slots.passed(topic, len(own) - len(refused), max(refused, default=None))

    def _visit(self, handling: Handling) -> Visit:
        limits, arguments = handling.task.limits, handling.delivery.arguments
        steps: list[Step] = []
        assert limits is not None
        try:
            if arguments is None:
                arguments = handling.task.arguments.of_message(handling.delivery.body)
            steps = limits.steps(handling.task.arguments.with_defaults(arguments))
        except Exception as error:  # it does not fit its task: the call of its handler says so
            _log.debug("Message %s passes no limits: %s", handling.delivery.id, error)
        return Visit(handling, limits, steps)

    async def _step(self, visits: Sequence[Visit]) -> list[Answered]:
        """The next step of all, in a call for those that enter, and one for those that begin at a rate."""
        steps = [(each, each.steps.pop(0)) for each in visits]
        entering = [(visit, step) for visit, step in steps if step.places is not None]
        beginning = [(visit, step) for visit, step in steps if step.places is None]
        answered: list[Answered] = []
        if entering:
            entered = await self._engine.gates.enter([self._entry(visit, step) for visit, step in entering])
            answered += [Answered(*each, answer) for each, answer in zip(entering, entered, strict=True)]
        if beginning:
            spent = await self._engine.gates.spend([_spend(visit, step) for visit, step in beginning])
            answered += [Answered(*each, answer) for each, answer in zip(beginning, spent, strict=True)]
        return answered

    def _entry(self, visit: Visit, step: Step) -> Entry:
        waits = step.waits and not (step.lock and visit.limits.on_conflict != "wait")
        claimed = visit.handling.delivery.claimed
        return Entry(step.gate, _holder(visit), self._lease_ms, step.places or 1, claimed.id if waits else None)

    def _take(self, answered: Answered, now: int) -> None:
        visit, step, answer = answered
        if isinstance(answer, Entered):
            if answer.token is not None:
                visit.held.append(Held(step.gate, _holder(visit), answer.token))
            elif step.waits:
                visit.refused = _waits(visit, step, answer.since, now)
            else:
                visit.refused = RELEASED
        elif step.waits:
            if (wait := answer.at[0] - answer.now) > 0:
                visit.refused = Outcome("release", wait, aside=True)
        elif not answer.at:
            visit.refused, visit.again = RELEASED, (answer.next_at - answer.now) / 1000

    def _end(self, visit: Visit, asked: float) -> None:
        handling = visit.handling
        if handling.told or visit.refused is not None:
            self._leaving.put_all(visit.held)
            if visit.refused is not None and not handling.told:
                self._inside.refused(handling, visit.refused)
            return
        if visit.held:
            handling.places = Places(visit.held, self._lease_ms, lambda _: self._inside.lost_place(handling), asked=asked)
            self._heartbeat.add(handling.places)
        self._inside.admitted(handling)


def _holder(visit: Visit) -> str:
    """Each delivery of a message for itself: an earlier one may still run."""
    claimed = visit.handling.delivery.claimed
    return f"{claimed.id} {claimed.token}"


def _spend(visit: Visit, step: Step) -> Spend:
    rate = step.rate
    assert rate is not None
    return Spend(step.gate, rate.most, rate.window, holder=visit.handling.delivery.id if step.waits else None)


def _waits(visit: Visit, step: Step, since: int | None, now: int) -> Outcome:
    """What becomes of a message whose gate is full."""
    limits = visit.limits
    if step.lock is None:
        return Outcome("release", ASIDE, aside=True)
    if limits.on_conflict == "defer":
        return Outcome("release", limits.lock_delay, aside=True)
    if limits.on_conflict == "error":
        return Outcome("dead", 0, f"Locked: the lock {step.lock} is held")
    left = limits.lock_wait - (now - (since or now))
    if left <= 0:
        visit.held.append(Held(step.gate, visit.handling.delivery.id, None))  # it leaves the line
        return Outcome("dead", 0, f"Locked: the lock {step.lock} was held for all of {limits.lock_wait / 1000:g} s")
    return Outcome("release", min(left, ASIDE), aside=True)

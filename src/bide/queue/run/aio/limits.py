# unasync: ../sync/limits.py
"""The step of a task's limits: its messages pass the gates of its lock, its places and its rate, over all workers.

And how waiters are told that it is their turn at a gate, after a place was left or taken back.
"""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TypeVar

from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Move, Ref, Tended
from bide.engines.gates import Called, Held
from bide.errors import OutcomeUnknown
from bide.queue.batching import joined
from bide.queue.run import Message, arguments_of
from bide.queue.run.passage import Passage
from bide.queue.tasks.limits import GateStep
from bide.types import RescheduleResult

T = TypeVar("T")
PROGRAM = "program "  # begins the name of a waiter that is no message, and looks for itself whether its turn has come


class AsyncLimitsStep:
    def __init__(self, engine: AsyncEngine, lease_ms: int) -> None:
        """`lease_ms`: of the places that are taken."""
        self._gates = engine.gates
        self._lease_ms = lease_ms

    def part_of(self, message: Message) -> Hashable:
        """The parts of the engine that have the gates of its task."""
        limits = message.task.limits
        if limits is None or self._gates.part_of("") is None:
            return None
        try:
            steps = limits.steps(arguments_of(message))
        except Exception:  # it does not fit its task, and passes no gate
            return None
        return joined(self._gates.part_of(step.gate) for step in steps)

    async def through(self, passages: Sequence[Passage], now: Callable[[], int]) -> list[Passage]:
        """All the gates of each, or up to the one that it may not pass. Gives those of which a part has not answered."""
        failed: list[Passage] = []
        while going := [(each, step) for each in passages if (step := each.step) is not None and each not in failed]:
            failed += await self._step(going, now())
        return failed

    async def _step(self, going: Sequence[tuple[Passage, GateStep]], now: int) -> list[Passage]:
        """One gate of each, in a call for those that enter and one for those that begin at a rate."""
        failed: list[Passage] = []
        entering = [each for each in going if not each[1].window]
        beginning = [each for each in going if each[1].window]
        if entering:
            entries = [passage.entry(step, self._lease_ms) for passage, step in entering]
            for (passage, _), entered in zip(entering, await _answers(lambda: self._gates.enter(entries)), strict=True):
                if entered is None:
                    failed.append(passage)
                else:
                    passage.entered(entered, now)
        if beginning:
            spends = [passage.spend(step) for passage, step in beginning]
            for (passage, _), spent in zip(beginning, await _answers(lambda: self._gates.spend(spends)), strict=True):
                if spent is None:
                    failed.append(passage)
                else:
                    passage.spent(spent)
        return failed


async def _answers(call: Callable[[], Awaitable[Sequence[T]]]) -> Sequence[T | None]:
    """None where a part of the engine has not answered."""
    try:
        return await call()
    except OutcomeUnknown as error:
        if not error.answers:
            raise
        return error.answers


async def leave(engine: AsyncEngine, held: Sequence[Held]) -> list[Called]:
    """Leave gates, and call who is next; those that can't be called yet, since their messages are on their way aside."""
    running: list[Called] = []
    for first in range(0, len(held), MAX_BATCH):
        left = await engine.gates.leave(held[first : first + MAX_BATCH])
        running += await call(engine, left.called)
    return running


async def tend(engine: AsyncEngine) -> Tended:
    """A piece of upkeep, for callers that hold no leases."""
    did = await engine.tend()
    await call(engine, did.called)
    return did


async def call(engine: AsyncEngine, called: Sequence[Called]) -> list[Called]:
    """Bring messages to the front. The turns of those that are gone are passed on; returns those that still run."""
    running: list[Called] = []
    called = [each for each in called if not each.waiter.startswith(PROGRAM)]
    while called:
        called, rest = called[:MAX_BATCH], called[MAX_BATCH:]
        still, gone = told_of(called, await engine.reschedule(called_back(called)))
        running += still
        passed_on = (await engine.gates.leave(gone)).called if gone else []
        called = [*rest, *(each for each in passed_on if not each.waiter.startswith(PROGRAM))]
    return running


def called_back(called: Sequence[Called]) -> list[Move]:
    """What brings them to the front."""
    return [Move(Ref(each.waiter), origin="since") for each in called]


def told_of(called: Sequence[Called], results: Sequence[RescheduleResult]) -> tuple[list[Called], list[Held]]:
    """Those that still run, and the turns of those that are gone, to be passed on."""
    both = list(zip(called, results, strict=True))
    running = [each for each, result in both if result is RescheduleResult.RUNNING]
    over = (RescheduleResult.RUNNING, RescheduleResult.MOVED)
    return running, [Held(each.gate, each.waiter, None) for each, result in both if result not in over]

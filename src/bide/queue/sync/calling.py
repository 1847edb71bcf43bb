# Generated from ../aio/calling.py by tools/unasync.py; change that file instead.
"""Whose turn it is at a gate is told: its message, which waits aside, is brought to the front of its topic."""

from collections.abc import Sequence

from bide.engines.base import MAX_BATCH, Move, Ref
from bide.engines.gates import Called, Held, Recalled
from bide.engines.sync import Engine
from bide.types import RescheduleResult

PROGRAM = "program "  # begins the name of a waiter that is no message, and looks for itself whether its turn has come


def leave(engine: Engine, held: Sequence[Held]) -> list[Called]:
    """Leave gates, and call who is next; those that can't be called yet, since their messages are on their way aside."""
    running: list[Called] = []
    for first in range(0, len(held), MAX_BATCH):
        left = engine.gates.leave(held[first : first + MAX_BATCH])
        running += call(engine, left.called)
    return running


def recall(engine: Engine) -> Recalled:
    """One look at the gates whose time is over."""
    recalled = engine.gates.recall()
    call(engine, recalled.called)
    return recalled


def call(engine: Engine, called: Sequence[Called]) -> list[Called]:
    """Bring messages to the front. The turns of those that are gone are passed on; returns those that still run."""
    running: list[Called] = []
    called = [each for each in called if not each.waiter.startswith(PROGRAM)]
    while called:
        called, rest = called[:MAX_BATCH], called[MAX_BATCH:]
        still, gone = told_of(called, engine.reschedule(called_back(called)))
        running += still
        passed_on = engine.gates.leave(gone).called if gone else []
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
